-- Who holds a lock with its token: the maker of the lock, and processes that take part in it by the id of its owner, each
-- until an end of its own. They are listed from the first on that takes part; the list is of the token in the row, and goes
-- with it. `p_who` is the id of a participant, or empty for the maker.
--
-- The record lasts until the latest end of all who are listed. That of another who is not there any longer is over only for
-- a request by which a vote could be cast: for the same reason as that of a record.

-- Keeps what is ours for so long at least, never shorter, for one of those who hold it. Returns the fence; NULL if there is
-- no room for another one; below zero if the fence is one that nobody can have been given.
CREATE OR REPLACE FUNCTION @schema@.keep_for(
  p_held @schema@.lock, p_fence bigint, p_who text, p_ttl_us bigint, p_now bigint, c_sent_us bigint)
RETURNS bigint LANGUAGE plpgsql
AS $$
DECLARE
  most CONSTANT bigint := 256;
  mine bigint;
BEGIN
  IF p_fence > highest(c_sent_us) THEN
    RETURN -p_fence;
  END IF;
  IF p_held.shared OR p_who <> '' THEN
    IF NOT p_held.shared THEN
      INSERT INTO participant (name, who, ends_us) VALUES (p_held.name, '', p_held.ends_us);
    END IF;
    SELECT p.ends_us INTO mine FROM participant p WHERE p.name = p_held.name AND p.who = p_who;
    DELETE FROM participant p WHERE p.name = p_held.name AND p.who <> p_who AND p.ends_us <= p_now;
    IF mine IS NULL AND p_who <> ''
      AND (SELECT count(*) FROM participant p WHERE p.name = p_held.name) >= most
    THEN
      RETURN NULL;
    END IF;
    INSERT INTO participant (name, who, ends_us) VALUES (p_held.name, p_who, p_now + p_ttl_us)
      ON CONFLICT (name, who) DO UPDATE SET ends_us = greatest(participant.ends_us, excluded.ends_us);
    UPDATE lock l SET ends_us = greatest(l.ends_us, p_now + p_ttl_us), fence = p_fence, shared = true
      WHERE l.name = p_held.name;
  ELSE
    UPDATE lock l SET ends_us = greatest(l.ends_us, p_now + p_ttl_us), fence = p_fence WHERE l.name = p_held.name;
  END IF;
  RETURN p_fence;
END $$;

-- Whether a process other than its maker holds it. For a request by which a vote could be cast.
CREATE OR REPLACE FUNCTION @schema@.is_shared(p_held @schema@.lock, p_now bigint) RETURNS boolean LANGUAGE plpgsql
AS $$
BEGIN
  RETURN p_held.shared AND EXISTS (
    SELECT FROM participant p WHERE p.name = p_held.name AND p.who <> '' AND p.ends_us > p_now);
END $$;

-- Takes one of those who hold it off the list. Returns whether it is left to others. `p_may_judge`: whether this is a
-- request by which a vote could be cast.
CREATE OR REPLACE FUNCTION @schema@.leave_to_others(
  p_held @schema@.lock, p_who text, p_now bigint, p_may_judge boolean)
RETURNS boolean LANGUAGE plpgsql
AS $$
DECLARE
  latest bigint;
BEGIN
  IF NOT p_held.shared THEN
    RETURN false;
  END IF;
  SELECT max(p.ends_us) INTO latest FROM participant p WHERE p.name = p_held.name AND p.who <> p_who;
  IF latest IS NULL OR latest <= p_now AND p_may_judge THEN
    RETURN false;
  END IF;
  DELETE FROM participant p WHERE p.name = p_held.name AND p.who = p_who;
  UPDATE lock l SET ends_us = latest WHERE l.name = p_held.name;
  RETURN true;
END $$;
