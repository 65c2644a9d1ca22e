-- Raises the last fence of a lock, if the lock is ours.
--
-- p_token   our token
-- p_fence   the fence
-- Answers   granted, refused, or the refusal of a fence that no holder can have been given
--
-- Without the look at the owner it would prove nothing: the fence of the present holder was given out before, and may be
-- lower.
DROP PROCEDURE IF EXISTS quorlock_confirm
//
CREATE PROCEDURE quorlock_confirm(
  IN p_name VARBINARY(512), IN p_token VARBINARY(128), IN p_fence BIGINT,
  IN c_session VARBINARY(64), IN c_sent_us BIGINT, IN c_behind_us BIGINT, IN c_ahead_us BIGINT, IN c_voter VARBINARY(255))
SQL SECURITY DEFINER
verb: BEGIN
  DECLARE held_token VARBINARY(128);
  DECLARE held_fence, held_ends_us, moment, new_fence BIGINT;
  DECLARE held_shared, timely BOOLEAN;
  DECLARE marker MEDIUMBLOB;
  DECLARE state, said VARBINARY(8);
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  CALL quorlock_enter(p_name, FALSE, NULL, c_session, c_sent_us, c_behind_us, c_ahead_us, c_voter,
    held_token, held_fence, held_ends_us, held_shared, moment, marker, state, timely, said);
  IF NOT (held_token <=> p_token) OR held_ends_us <= moment THEN
    ROLLBACK;
    SELECT 'refused' AS said;
    LEAVE verb;
  END IF;
  SET new_fence = GREATEST(held_fence, p_fence);
  IF new_fence > c_sent_us + 86400000000 THEN
    ROLLBACK;
    SELECT 'FENCE' AS said, new_fence AS number;
    LEAVE verb;
  END IF;
  IF new_fence > held_fence THEN
    UPDATE quorlock_lock SET fence = new_fence WHERE name = p_name;
  END IF;
  COMMIT;
  SELECT 'granted' AS said, new_fence AS number;
END
//
