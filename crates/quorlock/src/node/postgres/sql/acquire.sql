-- Takes a lock if it is free.
--
-- p_token   our token
-- p_ttl_us  how long to keep the record
-- p_least   the least that the first of our fences may be
-- p_block   how many fences we want
-- Answers   granted, refused, or a refusal
CREATE OR REPLACE FUNCTION @schema@.acquire(
  p_name bytea, p_token bytea, p_ttl_us bigint, p_least bigint, p_block bigint,
  c_session text, c_sent_us bigint, c_behind_us bigint, c_ahead_us bigint, c_voter text)
RETURNS @schema@.reply LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, @schema@, pg_temp
AS $$
DECLARE
  answer reply;
  held lock;
  moment bigint;
  new_fence bigint;
BEGIN
  PERFORM enter(c_session);
  SELECT * INTO held FROM lock l WHERE l.name = p_name FOR NO KEY UPDATE;
  moment := now_us();
  answer := refusal(moment, true, c_sent_us, c_behind_us, c_ahead_us, c_voter);
  IF answer.said IS NOT NULL THEN
    RETURN answer;
  END IF;
  IF held.name IS NULL THEN
    held := new_row(p_name);
    -- Another may have been making it.
    moment := now_us();
    answer := refusal(moment, true, c_sent_us, c_behind_us, c_ahead_us, c_voter);
    IF answer.said IS NOT NULL THEN
      RETURN answer;
    END IF;
  END IF;
  IF held.token <> '' AND held.ends_us > moment THEN
    answer.said := 'refused';
    RETURN answer;
  END IF;
  new_fence := next_fence(held.fence, p_least, p_block, c_sent_us);
  IF new_fence < 0 THEN
    RETURN fence_refusal(new_fence);
  END IF;
  PERFORM give(held, p_token, new_fence, moment + p_ttl_us);
  answer.said := 'granted';
  answer.number := new_fence;
  RETURN answer;
END $$;
