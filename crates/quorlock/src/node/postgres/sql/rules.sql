-- The rules that the verbs share. Nobody but their owner may call these.
--
-- Each verb is one function, and one transaction. It ends its arguments with those of the connection:
--   c_session    what the greeting has set on this very connection. A pooler that hands requests to any of its
--                connections loses their order: then nothing is done at all
--   c_sent_us    the client's time of day when this was sent
--   c_behind_us  how far the clock of this server may be behind that, for a request to be looked at
--   c_ahead_us   how far it may be ahead
--   c_voter      "formed START DIGEST ", as the marker of a database begins that votes: with the start of the server
--                that the greeting has met, and the digest of what all clients have to agree on
--
-- Why no two hold a lock: a record of A's last request, sent at p by A's clock, ends at p - behind + TTL or later by this
-- server's. A client that replaces it asked at q, and q + ahead is later than that. So q is later than p + TTL - behind -
-- ahead, whatever this server's clock has done in between; and that is when A's holder stops believing in it. The clock is
-- read while the row of the lock is locked, and so after every write before it.

-- The time. Never now(), which stands still in a transaction, and is old after a wait for a row.
CREATE OR REPLACE FUNCTION @schema@.now_us() RETURNS bigint LANGUAGE sql VOLATILE
AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

-- Which server this is, and which start of it: another one may have forgotten what this one granted.
CREATE OR REPLACE FUNCTION @schema@.identity() RETURNS text LANGUAGE sql VOLATILE
AS $$
  SELECT format('%s/%s/%s', (pg_control_system()).system_identifier, substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8),
    (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint)
$$;

-- What a client has to know of this server before its first verb: which start of it this is, the marker, where grant
-- messages to the client go, and the lock that says that it lives.
CREATE OR REPLACE FUNCTION @schema@.greet(
  p_client bigint, OUT identity text, OUT marker text, OUT channel text, OUT sign_of_life bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, @schema@, pg_temp
AS $$
BEGIN
  identity := identity();
  marker := coalesce((SELECT m.text FROM marker m), '');
  channel := channel_of(p_client);
  sign_of_life := sign_of_life(p_client);
END $$;

-- Begins a verb. From here to its end nobody changes the marker, so that a vote counts for the set that it was cast for.
-- Reading alone would not keep others from that; and the mode is one that does not keep a dump from reading the table.
CREATE OR REPLACE FUNCTION @schema@.enter(c_session text) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
  IF current_setting('quorlock.session', true) IS DISTINCT FROM c_session THEN
    RAISE EXCEPTION USING ERRCODE = 'QL001', MESSAGE = 'this is another connection than the one that was greeted';
  END IF;
  LOCK TABLE marker IN ROW SHARE MODE;
END $$;

-- How this database stands to the client's set of nodes, and its marker:
--   votes
--   quiet  it carries no set, or has not carried ours for long enough: what it was granted and forgotten may count yet
--   other  it belongs to another set, or ours was replaced
CREATE OR REPLACE FUNCTION @schema@.standing(p_now bigint, c_voter text, OUT state text, OUT marker text)
LANGUAGE plpgsql
AS $$
DECLARE
  from_us text;
  parts text[];
BEGIN
  SELECT m.text INTO marker FROM marker m;
  IF starts_with(marker, c_voter) THEN
    from_us := substr(marker, length(c_voter) + 1, 16);
    IF from_us ~ '^[0-9]{16}$' AND from_us::bigint <= p_now THEN
      state := 'votes';
      RETURN;
    END IF;
  END IF;
  marker := coalesce(marker, '');
  parts := regexp_match(marker, '^([a-z]+) [^ ]+ ([^ ]+) ');
  IF marker = '' OR parts[1] = 'blank' OR parts[1] <> 'closed' AND parts[2] = split_part(c_voter, ' ', 3) THEN
    state := 'quiet';
  ELSE
    state := 'other';
  END IF;
END $$;

-- Whether a request is one that this clock may look at.
CREATE OR REPLACE FUNCTION @schema@.is_timely(p_now bigint, c_sent_us bigint, c_behind_us bigint, c_ahead_us bigint)
RETURNS boolean LANGUAGE sql IMMUTABLE
AS $$ SELECT p_now >= c_sent_us - c_behind_us AND p_now <= c_sent_us + c_ahead_us $$;

-- Why a request is not looked at for the time it was sent at, or for the set that it is of. What is 'other' is refused to
-- all; what is 'quiet' to those that ask for a vote. `said` is NULL if it is looked at.
CREATE OR REPLACE FUNCTION @schema@.refusal(
  p_now bigint, p_vote boolean, c_sent_us bigint, c_behind_us bigint, c_ahead_us bigint, c_voter text)
RETURNS @schema@.reply LANGUAGE plpgsql
AS $$
DECLARE
  answer reply;
  stands record;
BEGIN
  IF NOT is_timely(p_now, c_sent_us, c_behind_us, c_ahead_us) THEN
    answer.said := 'CLOCK';
    answer.number := p_now;
    RETURN answer;
  END IF;
  stands := standing(p_now, c_voter);
  IF stands.state = 'other' OR p_vote AND stands.state <> 'votes' THEN
    answer.said := 'MARKER';
    answer.marker := stands.marker;
    answer.number := p_now;
  END IF;
  RETURN answer;
END $$;

-- A release has no vote of its own to cast. But whom it passes the lock on to gets one, and none is cast by a clock
-- that cannot be relied upon.
CREATE OR REPLACE FUNCTION @schema@.may_pass_on(
  p_now bigint, c_sent_us bigint, c_behind_us bigint, c_ahead_us bigint, c_voter text)
RETURNS boolean LANGUAGE plpgsql
AS $$
BEGIN
  RETURN is_timely(p_now, c_sent_us, c_behind_us, c_ahead_us) AND (standing(p_now, c_voter)).state = 'votes';
END $$;

-- The highest fence that a holder can have been given: a day ahead of the client's time of day. Nothing is granted with a
-- higher one, nor above it: it would spread to other servers.
CREATE OR REPLACE FUNCTION @schema@.highest(c_sent_us bigint) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$ SELECT c_sent_us + 86400000000 $$;

-- A block of fences above `p_fence`, and none below `p_least`: the last of it; or, below zero, one that is too high.
CREATE OR REPLACE FUNCTION @schema@.next_fence(p_fence bigint, p_least bigint, p_block bigint, c_sent_us bigint)
RETURNS bigint LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
  last bigint := greatest(p_fence, p_least);
BEGIN
  -- Before anything is added to it, which might be more than there are numbers.
  IF last <= highest(c_sent_us) THEN
    last := greatest(p_fence + 1, p_least) + (greatest(p_block, 1) - 1);
  END IF;
  RETURN CASE WHEN last > highest(c_sent_us) THEN -last ELSE last END;
END $$;

CREATE OR REPLACE FUNCTION @schema@.fence_refusal(p_fence bigint) RETURNS @schema@.reply LANGUAGE plpgsql
AS $$
DECLARE
  answer reply;
BEGIN
  answer.said := 'FENCE';
  answer.number := abs(p_fence);
  RETURN answer;
END $$;

-- The row of a lock that has none, locked until this transaction ends.
CREATE OR REPLACE FUNCTION @schema@.new_row(p_name bytea) RETURNS @schema@.lock LANGUAGE plpgsql
AS $$
DECLARE
  held lock;
BEGIN
  LOOP
    INSERT INTO lock (name) VALUES (p_name) ON CONFLICT DO NOTHING RETURNING * INTO held;
    EXIT WHEN FOUND;
    -- Somebody else has made it this moment. It may be cleared away in the next one.
    SELECT * INTO held FROM lock l WHERE l.name = p_name FOR NO KEY UPDATE;
    EXIT WHEN FOUND;
  END LOOP;
  RETURN held;
END $$;

-- Makes a lock a token's until then, whether or not it is held; nobody's, if the token is empty.
--
-- The row is locked already, by FOR NO KEY UPDATE, which keeps all other verbs out. Who is to get the lock waits for
-- transactions that have checked in with it (check_in.sql), and nobody else does.
CREATE OR REPLACE FUNCTION @schema@.give(p_held @schema@.lock, p_token bytea, p_fence bigint, p_ends_us bigint)
RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
  IF p_token <> '' THEN
    PERFORM FROM lock l WHERE l.name = p_held.name FOR UPDATE;
  END IF;
  IF p_held.shared THEN
    DELETE FROM participant p WHERE p.name = p_held.name;
  END IF;
  UPDATE lock l SET token = p_token, fence = p_fence, ends_us = p_ends_us, shared = false, note = NULL, note_until_us = NULL
    WHERE l.name = p_held.name;
END $$;
