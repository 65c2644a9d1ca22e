-- Clears locks away that nobody has used for a day, some names at a time, places in queues that nobody has asked for any
-- more, and messages of clients that are gone. All clients together take one step a second.
--
-- A row goes by a request whose clock is right, if its end and its fence are more than a day old: its holder has long
-- stopped believing in it, and any new fence is higher. A fence that is ahead of the clock stays.
--
-- Answers  marker: what is there, and in `waiters` 1 if there is so much to clear away that the next step should come soon
DROP PROCEDURE IF EXISTS quorlock_tend
//
CREATE PROCEDURE quorlock_tend(
  IN c_session VARBINARY(64), IN c_sent_us BIGINT, IN c_behind_us BIGINT, IN c_ahead_us BIGINT, IN c_voter VARBINARY(255))
SQL SECURITY DEFINER
verb: BEGIN
  DECLARE moment BIGINT;
  DECLARE looked, cleared BIGINT DEFAULT 0;
  DECLARE found MEDIUMBLOB;
  DECLARE after, upto, one_name VARBINARY(512);
  DECLARE one_token VARBINARY(128);
  DECLARE at_end, is_due BOOLEAN DEFAULT FALSE;
  DECLARE old_names CURSOR FOR
    SELECT l.name FROM quorlock_lock l
      WHERE l.name > after AND (upto IS NULL OR l.name <= upto)
        AND l.ends_us < moment - 86400000000 AND l.fence < moment - 86400000000
        AND NOT EXISTS (SELECT 1 FROM quorlock_ticket t WHERE t.name = l.name)
      FOR UPDATE SKIP LOCKED;
  DECLARE old_tickets CURSOR FOR
    SELECT t.name, t.token FROM quorlock_ticket t WHERE t.seen_us + t.keep_us < moment LIMIT 250 FOR UPDATE SKIP LOCKED;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET at_end = TRUE;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  CALL quorlock_check(c_session);
  ROLLBACK;
  START TRANSACTION;
  SELECT m.text INTO found FROM quorlock_marker m WHERE m.one = 1 LOCK IN SHARE MODE;
  SET found = IFNULL(found, '');
  SET moment = TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', SYSDATE(6));
  IF moment >= c_sent_us - c_behind_us AND moment <= c_sent_us + c_ahead_us THEN
    -- A time far ahead was written down by a clock that was wrong. Whoever does it at this moment does it alone.
    SELECT TRUE, s.behind INTO is_due, after FROM quorlock_sweep s
      WHERE s.one = 1 AND (s.due_us <= moment OR s.due_us > moment + 10000000) FOR UPDATE SKIP LOCKED;
  END IF;
  IF NOT is_due THEN
    COMMIT;
    SELECT 'marker' AS said, moment AS number, found AS marker, 0 AS waiters;
    LEAVE verb;
  END IF;
  SELECT l.name INTO upto FROM quorlock_lock l WHERE l.name > after ORDER BY l.name LIMIT 249, 1;
  SELECT COUNT(*) INTO looked FROM quorlock_lock l WHERE l.name > after AND (upto IS NULL OR l.name <= upto);
  SET at_end = FALSE;
  OPEN old_names;
  names: LOOP
    FETCH old_names INTO one_name;
    IF at_end THEN
      LEAVE names;
    END IF;
    DELETE FROM quorlock_participant WHERE name = one_name;
    DELETE FROM quorlock_lock WHERE name = one_name;
    SET cleared = cleared + 1;
  END LOOP;
  CLOSE old_names;
  SET at_end = FALSE;
  OPEN old_tickets;
  tickets: LOOP
    FETCH old_tickets INTO one_name, one_token;
    IF at_end THEN
      LEAVE tickets;
    END IF;
    DELETE FROM quorlock_ticket WHERE name = one_name AND token = one_token;
  END LOOP;
  CLOSE old_tickets;
  DELETE FROM quorlock_message WHERE at_us < moment - 3600000000 LIMIT 250;
  UPDATE quorlock_sweep SET behind = IFNULL(upto, ''), due_us = moment + IF(cleared * 4 > looked, 100000, 1000000) WHERE one = 1;
  COMMIT;
  SELECT 'marker' AS said, moment AS number, found AS marker, cleared * 4 > looked AS waiters;
END
//
