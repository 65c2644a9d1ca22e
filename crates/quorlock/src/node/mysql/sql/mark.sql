-- Writes which set of nodes this database belongs to, or only reads it.
--
-- p_seen      the marker that was seen; empty for none. If another is there, nothing is changed. NULL: only read it
-- p_head      how the marker to be begins, and p_tail how it ends; between them from when on it counts
-- p_after_us  in how long that is; 0 for at once
-- Answers     marker: what is there then, and the time here; or a refusal for the clock
DROP PROCEDURE IF EXISTS quorlock_mark
//
CREATE PROCEDURE quorlock_mark(
  IN p_seen MEDIUMBLOB, IN p_head MEDIUMBLOB, IN p_after_us BIGINT, IN p_tail MEDIUMBLOB,
  IN c_session VARBINARY(64), IN c_sent_us BIGINT, IN c_behind_us BIGINT, IN c_ahead_us BIGINT, IN c_voter VARBINARY(255))
SQL SECURITY DEFINER
verb: BEGIN
  DECLARE moment BIGINT;
  DECLARE found MEDIUMBLOB;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  CALL quorlock_check(c_session);
  ROLLBACK;
  START TRANSACTION;
  IF p_seen IS NOT NULL THEN
    -- Votes that are being cast by the marker that is there come first, and see it to their end.
    INSERT INTO quorlock_marker (one, text) VALUES (1, '') ON DUPLICATE KEY UPDATE one = 1;
    SELECT m.text INTO found FROM quorlock_marker m WHERE m.one = 1 FOR UPDATE;
  ELSE
    SELECT m.text INTO found FROM quorlock_marker m WHERE m.one = 1;
  END IF;
  SET found = IFNULL(found, '');
  SET moment = TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', SYSDATE(6));
  IF moment < c_sent_us - c_behind_us OR moment > c_sent_us + c_ahead_us THEN
    ROLLBACK;
    SELECT 'CLOCK' AS said, moment AS number;
    LEAVE verb;
  END IF;
  IF p_seen = found THEN
    SET found = CONCAT(p_head, LPAD(IF(p_after_us = 0, 0, moment + p_after_us), 16, '0'), p_tail);
    UPDATE quorlock_marker SET text = found WHERE one = 1;
  END IF;
  COMMIT;
  SELECT 'marker' AS said, moment AS number, found AS marker;
END
//
