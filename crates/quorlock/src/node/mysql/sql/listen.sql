-- What a client has to know of this database before its first verb: the version of its procedures, the marker, which start of
-- the server this is, whether that loses nothing in a crash, and the user lock that says that the client lives.
DROP PROCEDURE IF EXISTS quorlock_greet
//
CREATE PROCEDURE quorlock_greet(IN p_client BIGINT UNSIGNED)
SQL SECURITY DEFINER
BEGIN
  DECLARE marker MEDIUMBLOB;
  DECLARE start_id VARBINARY(36);
  SELECT s.id INTO start_id FROM quorlock_start s WHERE s.one = 1;
  IF start_id IS NULL THEN
    -- It is empty after each start. One of several clients gives this one its name.
    INSERT IGNORE INTO quorlock_start (one, id) VALUES (1, REPLACE(UUID(), '-', ''));
    SELECT s.id INTO start_id FROM quorlock_start s WHERE s.one = 1;
  END IF;
  SELECT m.text INTO marker FROM quorlock_marker m WHERE m.one = 1;
  SELECT @version@ AS version, IFNULL(marker, '') AS marker, start_id AS start,
    @@GLOBAL.innodb_flush_log_at_trx_commit IN (1, 3) AND (@@GLOBAL.log_bin = 0 OR @@GLOBAL.sync_binlog = 1) AS durable,
    CONCAT('quorlock:', p_client, ':', LEFT(SHA1(DATABASE()), 16)) AS sign_of_life;
END
//
-- Waits for grant messages, for so long at the most. Whoever writes one commits it first and ends this call after that: it is
-- seen here at once, or with the next call.
--
-- p_handled  the ids of messages that have arrived, with commas between them: they are not needed any more
-- Answers    the messages that are there
DROP PROCEDURE IF EXISTS quorlock_listen
//
CREATE PROCEDURE quorlock_listen(IN p_client BIGINT UNSIGNED, IN p_handled BLOB, IN p_seconds DECIMAL(6, 3))
SQL SECURITY DEFINER
BEGIN
  IF NOT (IS_USED_LOCK(CONCAT('quorlock:', p_client, ':', LEFT(SHA1(DATABASE()), 16))) <=> CONNECTION_ID()) THEN
    SIGNAL SQLSTATE 'QL001' SET MESSAGE_TEXT = 'this is another connection than the one that listens';
  END IF;
  IF p_handled <> '' THEN
    DELETE FROM quorlock_message WHERE client = p_client AND FIND_IN_SET(id, p_handled);
  END IF;
  DO IF(EXISTS (SELECT 1 FROM quorlock_message m WHERE m.client = p_client), 0, SLEEP(p_seconds));
  SELECT m.id, m.text FROM quorlock_message m WHERE m.client = p_client ORDER BY m.id;
END
//
