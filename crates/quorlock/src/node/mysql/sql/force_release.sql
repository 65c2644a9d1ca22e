-- Drops a lock of any holder, or passes it on to the first in its queue, if its holder is the one that was seen.
--
-- p_holder  the first eight digits of the SHA-1 of its token
-- Answers   done: it was that holder's, and is free or another's now; refused: it was not changed
DROP PROCEDURE IF EXISTS quorlock_force_release
//
CREATE PROCEDURE quorlock_force_release(
  IN p_name VARBINARY(512), IN p_holder VARBINARY(8),
  IN c_session VARBINARY(64), IN c_sent_us BIGINT, IN c_behind_us BIGINT, IN c_ahead_us BIGINT, IN c_voter VARBINARY(255))
SQL SECURITY DEFINER
verb: BEGIN
  DECLARE held_token VARBINARY(128);
  DECLARE held_fence, held_ends_us, moment, waker BIGINT;
  DECLARE held_shared, timely BOOLEAN;
  DECLARE marker MEDIUMBLOB;
  DECLARE state, said VARBINARY(8);
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  CALL quorlock_enter(p_name, FALSE, NULL, c_session, c_sent_us, c_behind_us, c_ahead_us, c_voter,
    held_token, held_fence, held_ends_us, held_shared, moment, marker, state, timely, said);
  IF held_token IS NULL OR held_token = '' OR LOWER(LEFT(SHA1(held_token), 8)) <> p_holder THEN
    ROLLBACK;
    SELECT 'refused' AS said;
    LEAVE verb;
  END IF;
  CALL quorlock_release_row(p_name, held_fence, held_shared, '', c_sent_us, moment, timely AND state = 'votes', c_sent_us, waker);
  COMMIT;
  SELECT 'done' AS said, waker AS listener;
END
//
