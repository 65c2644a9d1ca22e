-- Takes a lock if it is free.
--
-- p_token   our token
-- p_ttl_us  how long to keep the record
-- p_least   the least that the first of our fences may be
-- p_block   how many fences we want
-- Answers   granted, refused, or a refusal
DROP PROCEDURE IF EXISTS quorlock_acquire
//
CREATE PROCEDURE quorlock_acquire(
  IN p_name VARBINARY(512), IN p_token VARBINARY(128), IN p_ttl_us BIGINT, IN p_least BIGINT, IN p_block BIGINT,
  IN c_session VARBINARY(64), IN c_sent_us BIGINT, IN c_behind_us BIGINT, IN c_ahead_us BIGINT, IN c_voter VARBINARY(255))
SQL SECURITY DEFINER
verb: BEGIN
  DECLARE held_token VARBINARY(128);
  DECLARE held_fence, held_ends_us, moment, new_fence BIGINT;
  DECLARE held_shared, timely BOOLEAN;
  DECLARE marker MEDIUMBLOB;
  DECLARE state, said VARBINARY(8);
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  CALL quorlock_enter(p_name, TRUE, TRUE, c_session, c_sent_us, c_behind_us, c_ahead_us, c_voter,
    held_token, held_fence, held_ends_us, held_shared, moment, marker, state, timely, said);
  IF said IS NOT NULL THEN
    ROLLBACK;
    SELECT said, moment AS number, marker;
    LEAVE verb;
  END IF;
  IF held_token <> '' AND held_ends_us > moment THEN
    ROLLBACK;
    SELECT 'refused' AS said;
    LEAVE verb;
  END IF;
  CALL quorlock_next_fence(held_fence, p_least, p_block, c_sent_us, new_fence);
  IF new_fence < 0 THEN
    ROLLBACK;
    SELECT 'FENCE' AS said, -new_fence AS number;
    LEAVE verb;
  END IF;
  CALL quorlock_give(p_name, p_token, new_fence, moment + p_ttl_us, held_shared);
  COMMIT;
  SELECT 'granted' AS said, new_fence AS number;
END
//
