-- Forgets a lock that is free, with its last fence.
--
-- Answers  1 if it is held or wanted, and was not changed
DROP PROCEDURE IF EXISTS quorlock_forget
//
CREATE PROCEDURE quorlock_forget(IN p_name VARBINARY(512))
SQL SECURITY DEFINER
BEGIN
  DECLARE held_token VARBINARY(128);
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  START TRANSACTION;
  SELECT l.token INTO held_token FROM quorlock_lock l WHERE l.name = p_name FOR UPDATE;
  IF held_token = '' AND NOT EXISTS (SELECT 1 FROM quorlock_ticket t WHERE t.name = p_name) THEN
    DELETE FROM quorlock_lock WHERE name = p_name;
    SET held_token = NULL;
  END IF;
  COMMIT;
  SELECT held_token IS NOT NULL AS kept;
END
//
-- Forgets the fence of a lock that no holder can have been given. The holder of the lock here loses it.
--
-- p_highest  the highest fence that a holder can have been given
-- Answers    how many were forgotten
DROP PROCEDURE IF EXISTS quorlock_forget_fence
//
CREATE PROCEDURE quorlock_forget_fence(IN p_name VARBINARY(512), IN p_highest BIGINT)
SQL SECURITY DEFINER
BEGIN
  DECLARE forgotten BIGINT DEFAULT 0;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  START TRANSACTION;
  SELECT COUNT(*) INTO forgotten FROM quorlock_lock l WHERE l.name = p_name AND l.fence > p_highest FOR UPDATE;
  IF forgotten > 0 THEN
    DELETE FROM quorlock_lock WHERE name = p_name;
    DELETE FROM quorlock_participant WHERE name = p_name;
  END IF;
  COMMIT;
  SELECT forgotten AS kept;
END
//
