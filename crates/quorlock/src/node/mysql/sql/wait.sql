-- Takes a lock if it is our turn, or keeps it if it is ours; otherwise takes or keeps a place in its queue.
--
-- p_token     our token
-- p_ttl_us    how long to keep the record from the moment it becomes ours
-- p_client    our client, for the grant message
-- p_named     our ticket's waiter and the secret of this request, to be repeated there
-- p_sent_ns   when this was sent on our own clock
-- p_keep_us   for how long our place is kept
-- p_place     our ticket number
-- p_agreed    true: exactly that ticket number. false: the place that we have, or one behind everybody, with that number
--             at least
-- p_yielding  if it is ours, and a waiter stands before us, leave it to that one, unless another process takes part in it
-- p_least     the least fence for us, and for another that gets it by this
-- p_block     how many fences we want; 0 for none
-- Answers     granted; queued; or a refusal
--
-- A record that has ended without a release goes to the first in the queue, whichever client asks. What is kept of a ticket
-- is always of one request; an older one that arrives late makes the lease end earlier, never later.
DROP PROCEDURE IF EXISTS quorlock_wait
//
CREATE PROCEDURE quorlock_wait(
  IN p_name VARBINARY(512), IN p_token VARBINARY(128), IN p_ttl_us BIGINT, IN p_client BIGINT UNSIGNED, IN p_named VARBINARY(64),
  IN p_sent_ns BIGINT UNSIGNED, IN p_keep_us BIGINT, IN p_place BIGINT, IN p_agreed BOOLEAN, IN p_yielding BOOLEAN,
  IN p_least BIGINT, IN p_block BIGINT,
  IN c_session VARBINARY(64), IN c_sent_us BIGINT, IN c_behind_us BIGINT, IN c_ahead_us BIGINT, IN c_voter VARBINARY(255))
SQL SECURITY DEFINER
verb: BEGIN
  DECLARE held_token, turn VARBINARY(128);
  DECLARE held_fence, held_ends_us, moment, new_fence, place, waker BIGINT;
  DECLARE held_shared, timely, is_ours BOOLEAN;
  DECLARE last BIGINT DEFAULT 0;
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
  -- Before a place is taken that could not be served.
  IF p_block > 0 THEN
    SET last = p_least;
    IF last <= c_sent_us + 86400000000 THEN
      SET last = last + (p_block - 1);
    END IF;
    SET last = GREATEST(last, held_fence);
    IF last > c_sent_us + 86400000000 THEN
      ROLLBACK;
      SELECT 'FENCE' AS said, last AS number;
      LEAVE verb;
    END IF;
  END IF;
  SET is_ours = held_token = p_token;
  IF is_ours AND (NOT p_yielding OR held_shared AND EXISTS (
    SELECT 1 FROM quorlock_participant p WHERE p.name = p_name AND p.who <> '' AND p.ends_us > moment))
  THEN
    -- It may have been stored with a ticket from long ago: fences that were given out since, and forgotten, are below what
    -- we want now.
    CALL quorlock_keep_for(p_name, held_shared, held_ends_us, GREATEST(held_fence, last), '', p_ttl_us, moment, c_sent_us, new_fence);
    IF new_fence < 0 THEN
      ROLLBACK;
      SELECT 'FENCE' AS said, -new_fence AS number;
    ELSE
      COMMIT;
      SELECT 'granted' AS said, new_fence AS number;
    END IF;
    LEAVE verb;
  END IF;

  SET place = p_place;
  IF NOT p_agreed THEN
    SET place = NULL;
    SELECT t.ticket_no INTO place FROM quorlock_ticket t WHERE t.name = p_name AND t.token = p_token;
    IF place IS NULL THEN
      -- A client that proposes less, as with a clock that is behind, still overtakes no other.
      SELECT GREATEST(IFNULL(MAX(t.ticket_no) + 1, p_place), p_place) INTO place FROM quorlock_ticket t WHERE t.name = p_name;
    END IF;
  END IF;
  INSERT INTO quorlock_ticket (name, token, ticket_no, client, named, sent_ns, ttl_us, keep_us, least, block, seen_us)
    VALUES (p_name, p_token, place, p_client, p_named, p_sent_ns, p_ttl_us, p_keep_us, p_least, p_block, moment)
    ON DUPLICATE KEY UPDATE ticket_no = place, client = p_client, named = p_named, sent_ns = p_sent_ns, ttl_us = p_ttl_us,
      keep_us = p_keep_us, least = p_least, block = p_block, seen_us = moment;
  IF held_token <> '' AND NOT is_ours AND held_ends_us > moment THEN
    COMMIT;
    SELECT 'queued' AS said, place AS number, held_token AS token, held_ends_us - moment AS left_us;
    LEAVE verb;
  END IF;
  -- A waiter that gets it instead has no lower fence than we want, for the same reason.
  CALL quorlock_pass_on(p_name, held_fence, held_shared, p_token, p_least, moment, c_sent_us, turn, waker);
  IF NOT (turn <=> p_token) THEN
    COMMIT;
    SELECT 'queued' AS said, place AS number, waker AS listener;
    LEAVE verb;
  END IF;
  CALL quorlock_next_fence(held_fence, p_least, p_block, c_sent_us, new_fence);
  IF new_fence < 0 THEN
    -- A client that yields does not count on it either.
    CALL quorlock_give(p_name, '', held_fence, 0, held_shared);
    COMMIT;
    SELECT 'FENCE' AS said, -new_fence AS number;
    LEAVE verb;
  END IF;
  CALL quorlock_give(p_name, p_token, new_fence,
    moment + IF(is_ours, GREATEST(p_ttl_us, held_ends_us - moment), p_ttl_us), held_shared);
  COMMIT;
  SELECT 'granted' AS said, new_fence AS number;
END
//
