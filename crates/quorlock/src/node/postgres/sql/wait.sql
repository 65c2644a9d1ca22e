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
CREATE OR REPLACE FUNCTION @schema@.wait(
  p_name bytea, p_token bytea, p_ttl_us bigint, p_client bigint, p_named text, p_sent_ns text, p_keep_us bigint,
  p_place bigint, p_agreed boolean, p_yielding boolean, p_least bigint, p_block bigint,
  c_session text, c_sent_us bigint, c_behind_us bigint, c_ahead_us bigint, c_voter text)
RETURNS @schema@.reply LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, @schema@, pg_temp
AS $$
DECLARE
  answer reply;
  held lock;
  moment bigint;
  last bigint;
  new_fence bigint;
  turn bytea;
  is_ours boolean;
BEGIN
  PERFORM enter(c_session);
  SELECT * INTO held FROM lock l WHERE l.name = p_name FOR NO KEY UPDATE;
  moment := now_us();
  answer := refusal(moment, true, c_sent_us, c_behind_us, c_ahead_us, c_voter);
  IF answer.said IS NOT NULL THEN
    RETURN answer;
  END IF;
  -- Before a place is taken that could not be served.
  IF p_block > 0 THEN
    last := p_least;
    IF last <= highest(c_sent_us) THEN
      last := last + (p_block - 1);
    END IF;
    last := greatest(last, held.fence);
    IF last > highest(c_sent_us) THEN
      RETURN fence_refusal(last);
    END IF;
  END IF;
  IF held.name IS NULL THEN
    held := new_row(p_name);
    moment := now_us();
    answer := refusal(moment, true, c_sent_us, c_behind_us, c_ahead_us, c_voter);
    IF answer.said IS NOT NULL THEN
      RETURN answer;
    END IF;
  END IF;
  is_ours := held.token = p_token;
  IF is_ours AND (NOT p_yielding OR is_shared(held, moment)) THEN
    -- It may have been stored with a ticket from long ago: fences that were given out since, and forgotten, are below what
    -- we want now.
    new_fence := keep_for(held, greatest(held.fence, last), '', p_ttl_us, moment, c_sent_us);
    IF new_fence < 0 THEN
      RETURN fence_refusal(new_fence);
    END IF;
    answer.said := 'granted';
    answer.number := new_fence;
    RETURN answer;
  END IF;

  answer.number := take_place(p_name, p_token, p_place, p_agreed, p_client, p_named, p_sent_ns, p_ttl_us, p_keep_us, p_least,
    p_block, moment);
  answer.said := 'queued';
  IF held.token <> '' AND NOT is_ours AND held.ends_us > moment THEN
    answer.token := held.token;
    answer.left_us := held.ends_us - moment;
    RETURN answer;
  END IF;
  -- A waiter that gets it instead has no lower fence than we want, for the same reason.
  turn := pass_on(held, p_token, p_least, moment, c_session, c_sent_us);
  IF turn IS DISTINCT FROM p_token THEN
    RETURN answer;
  END IF;
  new_fence := next_fence(held.fence, p_least, p_block, c_sent_us);
  IF new_fence < 0 THEN
    -- A client that yields does not count on it either.
    PERFORM give(held, '', held.fence, 0);
    RETURN fence_refusal(new_fence);
  END IF;
  PERFORM give(held, p_token, new_fence, moment + CASE WHEN is_ours THEN greatest(p_ttl_us, held.ends_us - moment) ELSE p_ttl_us END);
  answer.said := 'granted';
  answer.number := new_fence;
  RETURN answer;
END $$;

-- Takes a place in a queue, or keeps it, with what the latest request says of it. Returns the ticket number.
CREATE OR REPLACE FUNCTION @schema@.take_place(
  p_name bytea, p_token bytea, p_place bigint, p_agreed boolean, p_client bigint, p_named text, p_sent_ns text,
  p_ttl_us bigint, p_keep_us bigint, p_least bigint, p_block bigint, p_now bigint)
RETURNS bigint LANGUAGE plpgsql
AS $$
DECLARE
  place bigint := p_place;
BEGIN
  IF NOT p_agreed THEN
    SELECT t.ticket_no INTO place FROM ticket t WHERE t.name = p_name AND t.token = p_token;
    IF place IS NULL THEN
      -- A client that proposes less, as with a clock that is behind, still overtakes no other.
      SELECT greatest(max(t.ticket_no) + 1, p_place) INTO place FROM ticket t WHERE t.name = p_name;
    END IF;
  END IF;
  INSERT INTO ticket (name, token, ticket_no, client, named, sent_ns, ttl_us, keep_us, least, block, seen_us)
    VALUES (p_name, p_token, place, p_client, p_named, p_sent_ns, p_ttl_us, p_keep_us, p_least, p_block, p_now)
    ON CONFLICT (name, token) DO UPDATE SET ticket_no = excluded.ticket_no, client = excluded.client, named = excluded.named,
      sent_ns = excluded.sent_ns, ttl_us = excluded.ttl_us, keep_us = excluded.keep_us, least = excluded.least,
      block = excluded.block, seen_us = excluded.seen_us;
  RETURN place;
END $$;
