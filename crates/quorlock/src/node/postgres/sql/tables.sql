-- What lies in the schema of a node. Run by an owner of the schema, once and with each newer version: what is there
-- already is left as it is.
--
--   lock         one row for each name that was used of late
--   participant  who holds a lock beside its maker
--   ticket       the places in the queues
--   marker       one text: which set of nodes this database belongs to, and by which start of the server it votes
--   sweep        one row: where the walk goes on that clears old locks away
--
-- They are unlogged, unless @unlogged@ is replaced by nothing: no write of theirs waits for a disk, and PostgreSQL itself
-- empties all of them together whenever it may have lost something: after a crash of any of its processes, on a standby
-- that is promoted, and in a restored backup. Then the marker is gone as well, and the node casts no vote for a while.
--
-- All moments are microseconds since 1970 by clock_timestamp().
CREATE SCHEMA IF NOT EXISTS @schema@;

CREATE @unlogged@ TABLE IF NOT EXISTS @schema@.lock (
  name bytea PRIMARY KEY,
  -- The holder; empty if the lock is free. A row outlives its holder, for the sake of its fence.
  token bytea NOT NULL DEFAULT '',
  -- The last fence that was given out.
  fence bigint NOT NULL DEFAULT 0,
  -- When the record of the holder ends.
  ends_us bigint NOT NULL DEFAULT 0,
  -- Whether participants may be listed.
  shared boolean NOT NULL DEFAULT false,
  note bytea,
  note_until_us bigint
  -- Half of each page is for the next versions of its rows: no index has to be written for them, and the next
  -- transaction that comes by clears the old ones away.
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

CREATE @unlogged@ TABLE IF NOT EXISTS @schema@.participant (
  name bytea NOT NULL,
  -- Its id; empty for the maker.
  who text NOT NULL,
  ends_us bigint NOT NULL,
  PRIMARY KEY (name, who)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

CREATE @unlogged@ TABLE IF NOT EXISTS @schema@.ticket (
  name bytea NOT NULL,
  token bytea NOT NULL,
  ticket_no bigint NOT NULL,
  client bigint NOT NULL,
  -- What the grant message has to repeat: the waiter and the secret of the latest request, and when that was sent by
  -- the client's own clock, which no bigint can hold.
  named text NOT NULL,
  sent_ns text NOT NULL,
  ttl_us bigint NOT NULL,
  -- For how long the place is kept after that request.
  keep_us bigint NOT NULL,
  least bigint NOT NULL,
  block bigint NOT NULL,
  -- When that request was seen, by the clock of this server.
  seen_us bigint NOT NULL,
  PRIMARY KEY (name, token)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX IF NOT EXISTS ticket_turn ON @schema@.ticket (name, ticket_no, token);

CREATE @unlogged@ TABLE IF NOT EXISTS @schema@.marker (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  text text NOT NULL
);

CREATE @unlogged@ TABLE IF NOT EXISTS @schema@.sweep (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  behind bytea NOT NULL,
  due_us bigint NOT NULL
);

-- What a verb answers. `said` is one of
--   granted   it is ours, and our last fence is `number`
--   refused   another has it, or it is not ours
--   done      left: others that hold it with the same token keep the record
--   queued    our place is `number`; `token` holds the lock for another `left_us`, or it was passed to another this moment
--   held      `token` holds it for another `left_us`, with the last fence `number`; `note`, `waiters`
--   free      `waiters`
--   marker    the marker is `marker`, and the time here is `number`
--   and the refusals: CLOCK, with the time here; MARKER, with the marker and the time; FENCE, with one that no
--   holder can have been given. Then nothing was changed
DO $$ BEGIN
  IF to_regtype('@schema@.reply') IS NULL THEN
    CREATE TYPE @schema@.reply AS (
      said text, number bigint, token bytea, left_us bigint, note bytea, waiters bigint, quarantine_us bigint,
      marker text);
  END IF;
END $$;

REVOKE ALL ON SCHEMA @schema@ FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA @schema@ FROM PUBLIC;

-- The functions find each other by this while they are made. Each that others may call sets a path of its own.
SET LOCAL search_path = pg_catalog, @schema@, pg_temp;
