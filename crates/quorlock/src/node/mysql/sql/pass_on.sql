-- Passes a lock on to the first in its queue who is still there.
--
-- The grant message is written for the waiter's client as "NAMED SENT_NS OTHERS FENCE", where OTHERS is how many are left in
-- the queue. NAMED has a secret of that very request, by which the client knows that the message is ours. A client is there
-- while its listening connection has the user lock of its id: one whose lock nobody has is gone, and is passed over. So is
-- one that has not asked for longer than any waiter goes without asking again: its machine may have died, and the server not
-- know yet that the connection is dead.
--
-- Why the new holder may count its lease from SENT_NS, which is on its own clock: that request was sent before it arrived
-- here, and it arrived before this runs. The record ends TTL after the later of this moment and of when the request was seen.
--
-- p_me        the token that asks: if it is the first, the record is left to the caller
-- p_next      the least fence for another that gets it
-- o_turn      the token whose turn it is: the record is its own, and a message is written, unless it is p_me;
--             NULL: nobody is there, and the lock is free
-- o_listener  the connection that has to be told that a message is there
DROP PROCEDURE IF EXISTS quorlock_pass_on
//
CREATE PROCEDURE quorlock_pass_on(
  IN p_name VARBINARY(512), IN p_fence BIGINT, IN p_was_shared BOOLEAN, IN p_me VARBINARY(128), IN p_next BIGINT, IN p_now BIGINT,
  IN c_sent_us BIGINT, OUT o_turn VARBINARY(128), OUT o_listener BIGINT)
SQL SECURITY INVOKER
turns: BEGIN
  DECLARE first_token VARBINARY(128);
  DECLARE first_named VARBINARY(64);
  DECLARE first_client, first_sent_ns BIGINT UNSIGNED;
  DECLARE first_ttl_us, first_keep_us, first_least, first_block, first_seen_us, new_fence BIGINT;
  LOOP
    SET first_token = NULL;
    SELECT t.token, t.named, t.client, t.sent_ns, t.ttl_us, t.keep_us, t.least, t.block, t.seen_us
      INTO first_token, first_named, first_client, first_sent_ns, first_ttl_us, first_keep_us, first_least, first_block, first_seen_us
      FROM quorlock_ticket t WHERE t.name = p_name ORDER BY t.ticket_no, t.token LIMIT 1;
    IF first_token IS NULL THEN
      CALL quorlock_give(p_name, '', p_fence, 0, p_was_shared);
      LEAVE turns;
    END IF;
    DELETE FROM quorlock_ticket WHERE name = p_name AND token = first_token;
    IF first_token = p_me THEN
      SET o_turn = p_me;
      LEAVE turns;
    END IF;
    IF p_now <= first_seen_us + first_keep_us THEN
      -- A waiter that wants a fence that no holder can be given is passed over.
      CALL quorlock_next_fence(p_fence, GREATEST(p_next, first_least), first_block, c_sent_us, new_fence);
      IF new_fence >= 0 THEN
        SET o_listener = IS_USED_LOCK(CONCAT('quorlock:', first_client, ':', LEFT(SHA1(DATABASE()), 16)));
        IF o_listener IS NOT NULL THEN
          CALL quorlock_give(p_name, first_token, new_fence, GREATEST(p_now, first_seen_us) + first_ttl_us, p_was_shared);
          INSERT INTO quorlock_message (client, text, at_us)
            SELECT first_client, CONCAT(first_named, ' ', first_sent_ns, ' ', COUNT(*), ' ', new_fence), p_now
              FROM quorlock_ticket t WHERE t.name = p_name;
          SET o_turn = first_token;
          LEAVE turns;
        END IF;
      END IF;
    END IF;
  END LOOP;
END
//
-- Releases a lock, whose row is locked: it is passed on, or free if no waiter is there, or none may have it now.
--
-- p_may_judge  whether this is a request by which a vote could be cast: whom it passes the lock on to gets one
DROP PROCEDURE IF EXISTS quorlock_release_row
//
CREATE PROCEDURE quorlock_release_row(
  IN p_name VARBINARY(512), IN p_fence BIGINT, IN p_was_shared BOOLEAN, IN p_me VARBINARY(128), IN p_next BIGINT, IN p_now BIGINT,
  IN p_may_judge BOOLEAN, IN c_sent_us BIGINT, OUT o_listener BIGINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE turn VARBINARY(128) DEFAULT p_me;
  IF p_may_judge AND GREATEST(p_fence, p_next) <= c_sent_us + 86400000000
    AND EXISTS (SELECT 1 FROM quorlock_ticket t WHERE t.name = p_name)
  THEN
    WHILE turn <=> p_me DO
      CALL quorlock_pass_on(p_name, p_fence, p_was_shared, p_me, p_next, p_now, c_sent_us, turn, o_listener);
    END WHILE;
  ELSE
    CALL quorlock_give(p_name, '', p_fence, 0, p_was_shared);
  END IF;
END
//
