-- Who holds a lock with its token: the maker of the lock, and processes that take part in it by the id of its owner, each
-- until an end of its own. They are listed from the first on that takes part; the list is of the token in the row, and goes
-- with it. `p_who` is the id of a participant, or empty for the maker.
--
-- The record lasts until the latest end of all who are listed. That of another who is not there any longer is over only for
-- a request by which a vote could be cast: for the same reason as that of a record.

-- Keeps what is ours for so long at least, never shorter, for one of those who hold it. `o_fence` is the fence; NULL if there
-- is no room for another one; below zero if the fence is one that nobody can have been given.
DROP PROCEDURE IF EXISTS quorlock_keep_for
//
CREATE PROCEDURE quorlock_keep_for(
  IN p_name VARBINARY(512), IN p_was_shared BOOLEAN, IN p_ends_us BIGINT, IN p_fence BIGINT, IN p_who VARBINARY(32),
  IN p_ttl_us BIGINT, IN p_now BIGINT, IN c_sent_us BIGINT, OUT o_fence BIGINT)
SQL SECURITY INVOKER
keep: BEGIN
  IF p_fence > c_sent_us + 86400000000 THEN
    SET o_fence = -p_fence;
    LEAVE keep;
  END IF;
  IF p_was_shared OR p_who <> '' THEN
    IF NOT p_was_shared THEN
      INSERT INTO quorlock_participant (name, who, ends_us) VALUES (p_name, '', p_ends_us);
    END IF;
    DELETE FROM quorlock_participant WHERE name = p_name AND who <> p_who AND ends_us <= p_now;
    IF p_who <> ''
      AND NOT EXISTS (SELECT 1 FROM quorlock_participant WHERE name = p_name AND who = p_who)
      AND (SELECT COUNT(*) FROM quorlock_participant WHERE name = p_name) >= 256
    THEN
      LEAVE keep;
    END IF;
    INSERT INTO quorlock_participant (name, who, ends_us) VALUES (p_name, p_who, p_now + p_ttl_us)
      ON DUPLICATE KEY UPDATE ends_us = GREATEST(ends_us, p_now + p_ttl_us);
    UPDATE quorlock_lock SET ends_us = GREATEST(ends_us, p_now + p_ttl_us), fence = p_fence, shared = TRUE WHERE name = p_name;
  ELSE
    UPDATE quorlock_lock SET ends_us = GREATEST(ends_us, p_now + p_ttl_us), fence = p_fence WHERE name = p_name;
  END IF;
  SET o_fence = p_fence;
END
//
-- Takes one of those who hold it off the list. `o_left` says whether it is left to others. `p_may_judge`: whether this is a
-- request by which a vote could be cast.
DROP PROCEDURE IF EXISTS quorlock_leave_to_others
//
CREATE PROCEDURE quorlock_leave_to_others(
  IN p_name VARBINARY(512), IN p_who VARBINARY(32), IN p_now BIGINT, IN p_may_judge BOOLEAN, OUT o_left BOOLEAN)
SQL SECURITY INVOKER
BEGIN
  DECLARE latest BIGINT;
  SET o_left = FALSE;
  SELECT MAX(p.ends_us) INTO latest FROM quorlock_participant p WHERE p.name = p_name AND p.who <> p_who;
  IF latest IS NOT NULL AND (latest > p_now OR NOT p_may_judge) THEN
    DELETE FROM quorlock_participant WHERE name = p_name AND who = p_who;
    UPDATE quorlock_lock SET ends_us = latest WHERE name = p_name;
    SET o_left = TRUE;
  END IF;
END
//
