-- Drops a lock if it is ours, or passes it on to the first in its queue. Our own place in the queue is gone either way.
-- For one who takes part in what another process has made, only its part ends; the last one drops the lock.
--
-- p_token   our token
-- p_next    the least fence for the waiter that it is passed on to
-- p_who     empty, or who takes part
-- Answers   done: it was ours, and is free or another's now;
--           left: it was ours, and others hold it still;
--           refused: there is none, or another's, or who takes part is not listed: it was not changed
--
-- Neither the clock nor the marker keeps a holder from releasing.
CREATE OR REPLACE FUNCTION @schema@.release(
  p_name bytea, p_token bytea, p_next bigint, p_who text,
  c_session text, c_sent_us bigint, c_behind_us bigint, c_ahead_us bigint, c_voter text)
RETURNS @schema@.reply LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, @schema@, pg_temp
AS $$
DECLARE
  answer reply;
  held lock;
  moment bigint;
BEGIN
  PERFORM enter(c_session);
  SELECT * INTO held FROM lock l WHERE l.name = p_name FOR NO KEY UPDATE;
  IF held.token IS DISTINCT FROM p_token THEN
    IF p_who = '' THEN
      DELETE FROM ticket t WHERE t.name = p_name AND t.token = p_token;
    END IF;
    answer.said := 'refused';
    RETURN answer;
  END IF;
  IF p_who <> '' AND NOT EXISTS (SELECT FROM participant p WHERE p.name = p_name AND p.who = p_who) THEN
    answer.said := 'refused';
    RETURN answer;
  END IF;
  moment := now_us();
  IF held.shared AND leave_to_others(held, p_who, moment,
    may_pass_on(moment, c_sent_us, c_behind_us, c_ahead_us, c_voter))
  THEN
    answer.said := 'left';
    RETURN answer;
  END IF;
  PERFORM release_row(held, p_token, p_next, c_session, c_sent_us, c_behind_us, c_ahead_us, c_voter);
  answer.said := 'done';
  RETURN answer;
END $$;
