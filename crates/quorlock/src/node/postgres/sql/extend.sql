-- Keeps a lock longer that is ours, never shorter.
--
-- p_token    our token
-- p_ttl_us   how long to keep it from now on
-- p_restore  'no', or what to do if the record is not there:
--            'heal'  our lease stands on this node and has not run out: store the record again, if this node has forgotten
--                    it, casts no vote for that, and has seen no later holder
--            'win'   our lease stands on a majority of others: take it anew if this node votes, and nobody has it. Until
--                    that lease ends, those others keep all others out: a client that had the record here in between tried
--                    in vain, though its fence is above ours
-- p_last     the last of our fences
-- p_who      empty, or who takes part in what another process has made
-- Answers    granted: it is ours, lasts at least so long, and its last fence is `number`;
--            refused: there is none, or another's, or no room for another: nothing was changed; or a refusal
CREATE OR REPLACE FUNCTION @schema@.extend(
  p_name bytea, p_token bytea, p_ttl_us bigint, p_restore text, p_last bigint, p_who text,
  c_session text, c_sent_us bigint, c_behind_us bigint, c_ahead_us bigint, c_voter text)
RETURNS @schema@.reply LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, @schema@, pg_temp
AS $$
DECLARE
  answer reply;
  held lock;
  moment bigint;
  state text;
  new_fence bigint;
  is_kept boolean;
BEGIN
  PERFORM enter(c_session);
  SELECT * INTO held FROM lock l WHERE l.name = p_name FOR NO KEY UPDATE;
  moment := now_us();
  answer := refusal(moment, false, c_sent_us, c_behind_us, c_ahead_us, c_voter);
  IF answer.said IS NOT NULL THEN
    RETURN answer;
  END IF;
  state := (standing(moment, c_voter)).state;
  -- A holder that may still count on an extension has a record that has not ended. One that came back from a backup may be
  -- another's by right: on a node that casts no vote it counts only for a holder whose lease there has not run out.
  is_kept := held.token = p_token AND held.ends_us > moment AND (p_restore = 'heal' OR state = 'votes');
  IF is_kept THEN
    new_fence := keep_for(held, held.fence, p_who, p_ttl_us, moment, c_sent_us);
  ELSIF p_restore IN ('heal', 'win') THEN
    IF held.name IS NULL THEN
      held := new_row(p_name);
      -- Another may have been making it.
      moment := now_us();
    END IF;
    answer := refusal(moment, p_restore = 'win', c_sent_us, c_behind_us, c_ahead_us, c_voter);
    IF answer.said IS NOT NULL THEN
      RETURN answer;
    END IF;
    IF NOT (held.token <> '' AND held.ends_us > moment)
      AND (p_restore = 'win' OR held.fence <= p_last AND (standing(moment, c_voter)).state = 'quiet')
    THEN
      new_fence := greatest(held.fence, p_last);
      IF new_fence > highest(c_sent_us) THEN
        RETURN fence_refusal(new_fence);
      END IF;
      -- Who else holds it is not known here any more, and is listed again with its next extension.
      PERFORM give(held, p_token, new_fence, moment + p_ttl_us);
      IF p_who <> '' THEN
        INSERT INTO participant (name, who, ends_us) VALUES (p_name, p_who, moment + p_ttl_us);
        UPDATE lock l SET shared = true WHERE l.name = p_name;
      END IF;
      -- The holder of the record needs no place in its queue: a forced release would pass the lock on to it again.
      DELETE FROM ticket t WHERE t.name = p_name AND t.token = p_token;
    END IF;
  END IF;
  IF new_fence IS NULL THEN
    answer.said := 'refused';
  ELSIF new_fence < 0 THEN
    RETURN fence_refusal(new_fence);
  ELSE
    answer.said := 'granted';
    answer.number := new_fence;
  END IF;
  RETURN answer;
END $$;
