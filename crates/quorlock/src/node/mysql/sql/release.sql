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
DROP PROCEDURE IF EXISTS quorlock_release
//
CREATE PROCEDURE quorlock_release(
  IN p_name VARBINARY(512), IN p_token VARBINARY(128), IN p_next BIGINT, IN p_who VARBINARY(32),
  IN c_session VARBINARY(64), IN c_sent_us BIGINT, IN c_behind_us BIGINT, IN c_ahead_us BIGINT, IN c_voter VARBINARY(255))
SQL SECURITY DEFINER
verb: BEGIN
  DECLARE held_token VARBINARY(128);
  DECLARE held_fence, held_ends_us, moment, waker BIGINT;
  DECLARE held_shared, timely, to_others BOOLEAN;
  DECLARE marker MEDIUMBLOB;
  DECLARE state, said VARBINARY(8);
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  CALL quorlock_enter(p_name, FALSE, NULL, c_session, c_sent_us, c_behind_us, c_ahead_us, c_voter,
    held_token, held_fence, held_ends_us, held_shared, moment, marker, state, timely, said);
  IF NOT (held_token <=> p_token) THEN
    IF p_who = '' THEN
      DELETE FROM quorlock_ticket WHERE name = p_name AND token = p_token;
    END IF;
    COMMIT;
    SELECT 'refused' AS said;
    LEAVE verb;
  END IF;
  IF p_who <> '' AND NOT EXISTS (SELECT 1 FROM quorlock_participant p WHERE p.name = p_name AND p.who = p_who) THEN
    ROLLBACK;
    SELECT 'refused' AS said;
    LEAVE verb;
  END IF;
  IF held_shared THEN
    CALL quorlock_leave_to_others(p_name, p_who, moment, timely AND state = 'votes', to_others);
    IF to_others THEN
      COMMIT;
      SELECT 'left' AS said;
      LEAVE verb;
    END IF;
  END IF;
  CALL quorlock_release_row(p_name, held_fence, held_shared, p_token, p_next, moment, timely AND state = 'votes', c_sent_us, waker);
  COMMIT;
  SELECT 'done' AS said, waker AS listener;
END
//
