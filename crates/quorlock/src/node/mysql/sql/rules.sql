-- The rules that the verbs share. A user who may only execute procedures gets nowhere with these: they have the rights of
-- whoever calls them.
--
-- Each verb is one procedure, and one transaction. It ends its arguments with those of the connection:
--   c_session    what the greeting has set on this very connection. A proxy that hands requests to any of its connections
--                loses their order: then nothing is done at all
--   c_sent_us    the client's time of day when this was sent
--   c_behind_us  how far the clock of this server may be behind that, for a request to be looked at
--   c_ahead_us   how far it may be ahead
--   c_voter      "formed SERVER DIGEST ", as the marker of a database begins that votes: with the server, or the start of
--                it, that the greeting has met, and the digest of what all clients have to agree on
-- and answers with one row. Its first column, `said`, is one of
--   granted   it is ours, and our last fence is `number`
--   refused   another has it, or it is not ours
--   done      left: others that hold it with the same token keep the record
--   queued    our place is `number`; `token` holds the lock for another `left_us`, or it was passed to another this moment
--   held      `token` holds it for another `left_us`, with the last fence `number`; `note`, `waiters`
--   free      `waiters`
--   marker    the marker is `marker`, and the time here is `number`
-- and the refusals: CLOCK, with the time here; MARKER, with the marker and the time; FENCE, with one that no holder can have
-- been given. Then nothing was changed. `listener` is the connection of a client that has got a message.
--
-- Why no two hold a lock: a record of A's last request, sent at p by A's clock, ends at p - behind + TTL or later by this
-- server's. A client that replaces it asked at q, and q + ahead is later than that. So q is later than p + TTL - behind -
-- ahead, whatever this server's clock has done in between; and that is when A's holder stops believing in it. The clock is
-- read while the row of the lock is locked, and so after every write before it: SYSDATE, never NOW, which is as old as the
-- procedure.

-- Refuses what does not come over the connection that was greeted, or to a server whose settings are others by now.
DROP PROCEDURE IF EXISTS quorlock_check
//
CREATE PROCEDURE quorlock_check(IN c_session VARBINARY(64))
SQL SECURITY INVOKER
BEGIN
  IF NOT (@quorlock_session <=> c_session) OR @@SESSION.time_zone <> '+00:00' THEN
    SIGNAL SQLSTATE 'QL001' SET MESSAGE_TEXT = 'this is another connection than the one that was greeted';
  END IF;
  IF NOT (@quorlock_durable <=> (@@GLOBAL.innodb_flush_log_at_trx_commit IN (1, 3)
    AND (@@GLOBAL.log_bin = 0 OR @@GLOBAL.sync_binlog = 1)))
  THEN
    SIGNAL SQLSTATE 'QL002' SET MESSAGE_TEXT = 'the server keeps its transactions in another way since the greeting';
  END IF;
END
//
-- How a database stands to the client's set of nodes:
--   votes
--   quiet  it carries no set, or has not carried ours for long enough: what it was granted and forgotten may count yet
--   other  it belongs to another set, or ours was replaced
DROP PROCEDURE IF EXISTS quorlock_standing
//
CREATE PROCEDURE quorlock_standing(
  IN p_marker MEDIUMBLOB, IN p_now BIGINT, IN c_voter VARBINARY(255), OUT o_state VARBINARY(8))
SQL SECURITY INVOKER
BEGIN
  DECLARE from_us, state VARBINARY(16);
  SET o_state = 'other';
  IF LEFT(p_marker, LENGTH(c_voter)) = c_voter THEN
    SET from_us = SUBSTRING(p_marker, LENGTH(c_voter) + 1, 16);
    IF LENGTH(from_us) = 16 AND from_us >= '0000000000000000' AND from_us <= LPAD(p_now, 16, '0') THEN
      SET o_state = 'votes';
    END IF;
  END IF;
  IF o_state <> 'votes' THEN
    SET state = LEFT(SUBSTRING_INDEX(p_marker, ' ', 1), 16);
    IF p_marker = '' OR state = 'blank' OR state <> 'closed'
      AND SUBSTRING_INDEX(SUBSTRING_INDEX(p_marker, ' ', 3), ' ', -1) = SUBSTRING_INDEX(SUBSTRING_INDEX(c_voter, ' ', 3), ' ', -1)
    THEN
      SET o_state = 'quiet';
    END IF;
  END IF;
END
//
-- Begins a verb: locks the row of a lock, reads the clock, and judges the request. From here to the end of the transaction
-- nobody changes the marker, so that a vote counts for the set that it was cast for.
--
-- p_make    whether to make the row if there is none
-- p_vote    TRUE: it asks for a vote. FALSE: it is refused for its time, and by a database of another set. NULL: it is looked
--           at in any case
-- o_token   NULL if there is no row
-- o_timely  whether it is a request that this clock may look at
-- o_said    why it is not looked at, or NULL
DROP PROCEDURE IF EXISTS quorlock_enter
//
CREATE PROCEDURE quorlock_enter(
  IN p_name VARBINARY(512), IN p_make BOOLEAN, IN p_vote BOOLEAN,
  IN c_session VARBINARY(64), IN c_sent_us BIGINT, IN c_behind_us BIGINT, IN c_ahead_us BIGINT, IN c_voter VARBINARY(255),
  OUT o_token VARBINARY(128), OUT o_fence BIGINT, OUT o_ends_us BIGINT, OUT o_shared BOOLEAN,
  OUT o_now BIGINT, OUT o_marker MEDIUMBLOB, OUT o_state VARBINARY(8), OUT o_timely BOOLEAN, OUT o_said VARBINARY(8))
SQL SECURITY INVOKER
BEGIN
  CALL quorlock_check(c_session);
  -- What a call has left that was ended in its midst.
  ROLLBACK;
  START TRANSACTION;
  SELECT m.text INTO o_marker FROM quorlock_marker m WHERE m.one = 1 LOCK IN SHARE MODE;
  SET o_marker = IFNULL(o_marker, '');
  SELECT l.token, l.fence, l.ends_us, l.shared INTO o_token, o_fence, o_ends_us, o_shared
    FROM quorlock_lock l WHERE l.name = p_name FOR UPDATE;
  IF o_token IS NULL AND p_make THEN
    -- Another may be making it at this moment.
    INSERT INTO quorlock_lock (name) VALUES (p_name) ON DUPLICATE KEY UPDATE fence = fence;
    SELECT l.token, l.fence, l.ends_us, l.shared INTO o_token, o_fence, o_ends_us, o_shared
      FROM quorlock_lock l WHERE l.name = p_name FOR UPDATE;
  END IF;
  SET o_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', SYSDATE(6));
  SET o_timely = o_now >= c_sent_us - c_behind_us AND o_now <= c_sent_us + c_ahead_us;
  CALL quorlock_standing(o_marker, o_now, c_voter, o_state);
  IF p_vote IS NOT NULL THEN
    IF NOT o_timely THEN
      SET o_said = 'CLOCK';
    ELSEIF o_state = 'other' OR p_vote AND o_state <> 'votes' THEN
      SET o_said = 'MARKER';
    END IF;
  END IF;
END
//
-- A block of fences above `p_fence`, and none below `p_least`: the last of it; or, below zero, one that is too high. The
-- highest that a holder can have been given is a day ahead of the client's time of day. Nothing is granted with a higher one,
-- nor above it: it would spread to other servers.
DROP PROCEDURE IF EXISTS quorlock_next_fence
//
CREATE PROCEDURE quorlock_next_fence(
  IN p_fence BIGINT, IN p_least BIGINT, IN p_block BIGINT, IN c_sent_us BIGINT, OUT o_fence BIGINT)
SQL SECURITY INVOKER
BEGIN
  SET o_fence = GREATEST(p_fence, p_least);
  -- Before anything is added to it, which might be more than there are numbers.
  IF o_fence <= c_sent_us + 86400000000 THEN
    SET o_fence = GREATEST(p_fence + 1, p_least) + (GREATEST(p_block, 1) - 1);
  END IF;
  IF o_fence > c_sent_us + 86400000000 THEN
    SET o_fence = -o_fence;
  END IF;
END
//
-- Makes a lock a token's until then, whether or not it is held.
DROP PROCEDURE IF EXISTS quorlock_give
//
CREATE PROCEDURE quorlock_give(
  IN p_name VARBINARY(512), IN p_token VARBINARY(128), IN p_fence BIGINT, IN p_ends_us BIGINT, IN p_was_shared BOOLEAN)
SQL SECURITY INVOKER
BEGIN
  IF p_was_shared THEN
    DELETE FROM quorlock_participant WHERE name = p_name;
  END IF;
  UPDATE quorlock_lock SET token = p_token, fence = p_fence, ends_us = p_ends_us, shared = FALSE, note = NULL, note_until_us = NULL
    WHERE name = p_name;
END
//
