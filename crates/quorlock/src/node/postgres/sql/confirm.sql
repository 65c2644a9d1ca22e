-- Raises the last fence of a lock, if the lock is ours.
--
-- p_token   our token
-- p_fence   the fence
-- Answers   granted, refused, or the refusal of a fence that no holder can have been given
--
-- Without the look at the owner it would prove nothing: the fence of the present holder was given out before, and may be
-- lower.
CREATE OR REPLACE FUNCTION @schema@.confirm(
  p_name bytea, p_token bytea, p_fence bigint,
  c_session text, c_sent_us bigint, c_behind_us bigint, c_ahead_us bigint, c_voter text)
RETURNS @schema@.reply LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, @schema@, pg_temp
AS $$
DECLARE
  answer reply;
  held lock;
BEGIN
  PERFORM enter(c_session);
  SELECT * INTO held FROM lock l WHERE l.name = p_name FOR NO KEY UPDATE;
  IF held.token IS DISTINCT FROM p_token OR held.ends_us <= now_us() THEN
    answer.said := 'refused';
    RETURN answer;
  END IF;
  answer.number := greatest(held.fence, p_fence);
  IF answer.number > highest(c_sent_us) THEN
    RETURN fence_refusal(answer.number);
  END IF;
  IF answer.number > held.fence THEN
    UPDATE lock l SET fence = answer.number WHERE l.name = p_name;
  END IF;
  answer.said := 'granted';
  RETURN answer;
END $$;
