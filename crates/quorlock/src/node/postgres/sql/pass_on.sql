-- Passes a lock on to the first in its queue who is still there.
--
-- The grant message goes to the channel of the waiter's client as "NAMED SENT_NS OTHERS FENCE", where OTHERS is how many are
-- left in the queue. NAMED has a secret of that very request, by which the client knows that the message is ours. A client
-- is there while its connection holds the advisory lock of its id: if we get that one, it is gone, and is passed over. So is
-- one that has not asked for longer than any waiter goes without asking again: its machine may have died, and the server not
-- know yet that the connection is dead.
--
-- Why the new holder may count its lease from SENT_NS, which is on its own clock: that request was sent before it arrived
-- here, and it arrived before this runs. The record ends TTL after the later of this moment and of when the request was seen.
--
-- p_held   the row, which is locked
-- p_me     the token that asks: if it is the first, the record is left to the caller
-- p_next   the least fence for another that gets it
-- Returns  the token whose turn it is: the record is its own, and it has been notified, unless it is p_me;
--          NULL: nobody is there, and the lock is free
CREATE OR REPLACE FUNCTION @schema@.pass_on(
  p_held @schema@.lock, p_me bytea, p_next bigint, p_now bigint, c_session text, c_sent_us bigint)
RETURNS bytea LANGUAGE plpgsql
AS $$
DECLARE
  first ticket;
  new_fence bigint;
  others bigint;
BEGIN
  LOOP
    SELECT * INTO first FROM ticket t WHERE t.name = p_held.name ORDER BY t.ticket_no, t.token LIMIT 1;
    IF NOT FOUND THEN
      PERFORM give(p_held, '', p_held.fence, 0);
      RETURN NULL;
    END IF;
    DELETE FROM ticket t WHERE t.name = first.name AND t.token = first.token;
    IF first.token = p_me THEN
      RETURN p_me;
    END IF;
    CONTINUE WHEN p_now > first.seen_us + first.keep_us;
    -- A waiter that wants a fence that no holder can be given is passed over.
    new_fence := next_fence(p_held.fence, greatest(p_next, first.least), first.block, c_sent_us);
    CONTINUE WHEN new_fence < 0;
    -- Our own session would get its lock a second time.
    CONTINUE WHEN first.client <> client_of(c_session) AND pg_try_advisory_xact_lock_shared(sign_of_life(first.client));
    PERFORM give(p_held, first.token, new_fence, greatest(p_now, first.seen_us) + first.ttl_us);
    SELECT count(*) INTO others FROM ticket t WHERE t.name = p_held.name;
    PERFORM pg_notify(channel_of(first.client), format('%s %s %s %s', first.named, first.sent_ns, others, new_fence));
    RETURN first.token;
  END LOOP;
END $$;

-- The client of a session: what stands before its colon, in hexadecimal digits.
CREATE OR REPLACE FUNCTION @schema@.client_of(c_session text) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$ SELECT ('x' || split_part(c_session, ':', 1))::bit(64)::bigint $$;

-- The advisory lock that a client holds for as long as its connection lasts: another one for each schema.
CREATE OR REPLACE FUNCTION @schema@.sign_of_life(p_client bigint) RETURNS bigint LANGUAGE sql STABLE
AS $$ SELECT p_client # '@schema@'::regnamespace::oid::bigint $$;

-- Where a client is notified of grants by the locks in this schema.
CREATE OR REPLACE FUNCTION @schema@.channel_of(p_client bigint) RETURNS text LANGUAGE sql STABLE
AS $$ SELECT format('quorlock:%s:%s', lpad(to_hex(p_client), 16, '0'), '@schema@'::regnamespace::oid) $$;

-- Releases a lock, whose row is locked: it is passed on, or free if no waiter is there, or none may have it now.
CREATE OR REPLACE FUNCTION @schema@.release_row(
  p_held @schema@.lock, p_me bytea, p_next bigint,
  c_session text, c_sent_us bigint, c_behind_us bigint, c_ahead_us bigint, c_voter text)
RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
  moment bigint;
  turn bytea := p_me;
BEGIN
  IF EXISTS (SELECT FROM ticket t WHERE t.name = p_held.name) THEN
    moment := now_us();
    IF may_pass_on(moment, c_sent_us, c_behind_us, c_ahead_us, c_voter)
      AND greatest(p_held.fence, p_next) <= highest(c_sent_us)
    THEN
      WHILE turn = p_me LOOP
        turn := pass_on(p_held, p_me, p_next, moment, c_session, c_sent_us);
      END LOOP;
      RETURN;
    END IF;
  END IF;
  PERFORM give(p_held, '', p_held.fence, 0);
END $$;
