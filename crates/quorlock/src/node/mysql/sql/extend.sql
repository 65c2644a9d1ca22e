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
DROP PROCEDURE IF EXISTS quorlock_extend
//
CREATE PROCEDURE quorlock_extend(
  IN p_name VARBINARY(512), IN p_token VARBINARY(128), IN p_ttl_us BIGINT, IN p_restore VARBINARY(8), IN p_last BIGINT,
  IN p_who VARBINARY(32),
  IN c_session VARBINARY(64), IN c_sent_us BIGINT, IN c_behind_us BIGINT, IN c_ahead_us BIGINT, IN c_voter VARBINARY(255))
SQL SECURITY DEFINER
verb: BEGIN
  DECLARE held_token VARBINARY(128);
  DECLARE held_fence, held_ends_us, moment, new_fence BIGINT;
  DECLARE held_shared, timely BOOLEAN;
  DECLARE marker MEDIUMBLOB;
  DECLARE state, said VARBINARY(8);
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  CALL quorlock_enter(p_name, p_restore <> 'no', FALSE, c_session, c_sent_us, c_behind_us, c_ahead_us, c_voter,
    held_token, held_fence, held_ends_us, held_shared, moment, marker, state, timely, said);
  IF said IS NOT NULL THEN
    ROLLBACK;
    SELECT said, moment AS number, marker;
    LEAVE verb;
  END IF;
  -- A holder that may still count on an extension has a record that has not ended. One that came back from a backup may be
  -- another's by right: on a node that casts no vote it counts only for a holder whose lease there has not run out.
  IF held_token <=> p_token AND held_ends_us > moment AND (p_restore = 'heal' OR state = 'votes') THEN
    CALL quorlock_keep_for(p_name, held_shared, held_ends_us, held_fence, p_who, p_ttl_us, moment, c_sent_us, new_fence);
  ELSEIF p_restore = 'win' AND state <> 'votes' THEN
    ROLLBACK;
    SELECT 'MARKER' AS said, moment AS number, marker;
    LEAVE verb;
  ELSEIF p_restore <> 'no' AND NOT (held_token <> '' AND held_ends_us > moment)
    AND (p_restore = 'win' OR held_fence <= p_last AND state = 'quiet')
  THEN
    SET new_fence = GREATEST(held_fence, p_last);
    IF new_fence > c_sent_us + 86400000000 THEN
      SET new_fence = -new_fence;
    ELSE
      -- Who else holds it is not known here any more, and is listed again with its next extension.
      CALL quorlock_give(p_name, p_token, new_fence, moment + p_ttl_us, held_shared);
      IF p_who <> '' THEN
        INSERT INTO quorlock_participant (name, who, ends_us) VALUES (p_name, p_who, moment + p_ttl_us);
        UPDATE quorlock_lock SET shared = TRUE WHERE name = p_name;
      END IF;
      -- The holder of the record needs no place in its queue: a forced release would pass the lock on to it again.
      DELETE FROM quorlock_ticket WHERE name = p_name AND token = p_token;
    END IF;
  END IF;
  IF new_fence IS NULL THEN
    ROLLBACK;
    SELECT 'refused' AS said;
  ELSEIF new_fence < 0 THEN
    ROLLBACK;
    SELECT 'FENCE' AS said, -new_fence AS number;
  ELSE
    COMMIT;
    SELECT 'granted' AS said, new_fence AS number;
  END IF;
END
//
