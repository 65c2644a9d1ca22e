-- What only looks, and the note beside a record.

-- Says who holds a lock. Changes nothing, and waits for nobody.
--
-- c_quiet_us  how long at the most a database casts no vote, once it belongs to the set
-- Answers     free, or held, with for how long the database casts no vote
DROP PROCEDURE IF EXISTS quorlock_inspect
//
CREATE PROCEDURE quorlock_inspect(
  IN p_name VARBINARY(512), IN c_quiet_us BIGINT,
  IN c_session VARBINARY(64), IN c_sent_us BIGINT, IN c_behind_us BIGINT, IN c_ahead_us BIGINT, IN c_voter VARBINARY(255))
SQL SECURITY DEFINER
verb: BEGIN
  DECLARE held_token VARBINARY(128);
  DECLARE held_note VARBINARY(4096);
  DECLARE from_us VARBINARY(16);
  DECLARE held_fence, held_ends_us, held_note_until_us, moment, waiting BIGINT;
  DECLARE quarantine BIGINT DEFAULT 0;
  DECLARE marker MEDIUMBLOB;
  DECLARE state VARBINARY(8);
  CALL quorlock_check(c_session);
  SELECT l.token, l.fence, l.ends_us, l.note, l.note_until_us
    INTO held_token, held_fence, held_ends_us, held_note, held_note_until_us
    FROM quorlock_lock l WHERE l.name = p_name;
  SET moment = TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', SYSDATE(6));
  SELECT COUNT(*) INTO waiting FROM quorlock_ticket t WHERE t.name = p_name;
  SELECT m.text INTO marker FROM quorlock_marker m WHERE m.one = 1;
  SET marker = IFNULL(marker, '');
  CALL quorlock_standing(marker, moment, c_voter, state);
  IF state <> 'votes' THEN
    -- The marker of a set that forms has another state before the rest. One that is due waits for other nodes.
    IF LEFT(marker, 8) = 'forming ' THEN
      SET marker = CONCAT('formed ', SUBSTRING(marker, 9));
    END IF;
    SET quarantine = c_quiet_us;
    IF LEFT(marker, LENGTH(c_voter)) = c_voter THEN
      SET from_us = SUBSTRING(marker, LENGTH(c_voter) + 1, 16);
      IF LENGTH(from_us) = 16 AND from_us >= '0000000000000000' AND from_us <= '9999999999999999' THEN
        SET quarantine = CAST(from_us AS SIGNED) - moment;
      END IF;
    END IF;
    SET quarantine = GREATEST(quarantine, 1);
  END IF;
  IF held_token IS NULL OR held_token = '' OR held_ends_us <= moment THEN
    SELECT 'free' AS said, waiting AS waiters, quarantine AS quarantine_us;
    LEAVE verb;
  END IF;
  SELECT 'held' AS said, held_fence AS number, held_token AS token, held_ends_us - moment AS left_us,
    IF(held_note_until_us > moment, held_note, NULL) AS note, waiting AS waiters, quarantine AS quarantine_us;
END
//
-- Names some of the locks, in their order.
--
-- p_behind  where to go on: behind this name
-- Answers   the names, and whether each is held. It looks at so many at the most that no answer is long in coming
DROP PROCEDURE IF EXISTS quorlock_list
//
CREATE PROCEDURE quorlock_list(IN p_behind VARBINARY(512))
SQL SECURITY DEFINER
BEGIN
  DECLARE moment BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', SYSDATE(6));
  SELECT l.name, l.token <> '' AND l.ends_us > moment AS held
    FROM quorlock_lock l WHERE l.name > p_behind ORDER BY l.name LIMIT 256;
END
//
-- Keeps a note about the holder of a lock beside it, if the lock is ours. It begins with a digest of the holder.
--
-- p_token    our token
-- p_note     what to keep; empty to remove it
-- p_keep_us  how long to keep it
-- Answers    done, or refused: nothing was changed
DROP PROCEDURE IF EXISTS quorlock_set_note
//
CREATE PROCEDURE quorlock_set_note(
  IN p_name VARBINARY(512), IN p_token VARBINARY(128), IN p_note VARBINARY(4096), IN p_keep_us BIGINT,
  IN c_session VARBINARY(64), IN c_sent_us BIGINT, IN c_behind_us BIGINT, IN c_ahead_us BIGINT, IN c_voter VARBINARY(255))
SQL SECURITY DEFINER
verb: BEGIN
  DECLARE held_token VARBINARY(128);
  DECLARE held_fence, held_ends_us, moment BIGINT;
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
  UPDATE quorlock_lock SET note = NULLIF(p_note, ''), note_until_us = IF(p_note <> '', moment + p_keep_us, NULL)
    WHERE name = p_name;
  COMMIT;
  SELECT 'done' AS said;
END
//
