-- What lies in the database of a node. Run by whoever may make tables and procedures there, once and with each newer
-- version: tables that are there already are left as they are.
--
--   quorlock_lock         one row for each name that was used of late
--   quorlock_participant  who holds a lock beside its maker
--   quorlock_ticket       the places in the queues
--   quorlock_message      grant messages that their client has not read yet
--   quorlock_marker       one text: which set of nodes this database belongs to, and by which server, or start of it, it votes
--   quorlock_start        which start of the server this is: in memory, so that every start finds it empty
--   quorlock_sweep        one row: where the walk goes on that clears old locks away
--
-- All moments are microseconds since 1970 by SYSDATE(6), in UTC. All texts are bytes: no collation has a part in them.
-- Each statement ends with a line of two slashes.
SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'
//
CREATE TABLE IF NOT EXISTS quorlock_lock (
  name VARBINARY(512) NOT NULL PRIMARY KEY,
  -- The holder; empty if the lock is free. A row outlives its holder, for the sake of its fence.
  token VARBINARY(128) NOT NULL DEFAULT '',
  -- The last fence that was given out.
  fence BIGINT NOT NULL DEFAULT 0,
  -- When the record of the holder ends.
  ends_us BIGINT NOT NULL DEFAULT 0,
  -- Whether participants may be listed.
  shared BOOLEAN NOT NULL DEFAULT FALSE,
  note VARBINARY(4096),
  note_until_us BIGINT
) ENGINE = InnoDB
//
CREATE TABLE IF NOT EXISTS quorlock_participant (
  name VARBINARY(512) NOT NULL,
  -- Its id; empty for the maker.
  who VARBINARY(32) NOT NULL,
  ends_us BIGINT NOT NULL,
  PRIMARY KEY (name, who)
) ENGINE = InnoDB
//
CREATE TABLE IF NOT EXISTS quorlock_ticket (
  name VARBINARY(512) NOT NULL,
  token VARBINARY(128) NOT NULL,
  ticket_no BIGINT NOT NULL,
  client BIGINT UNSIGNED NOT NULL,
  -- What the grant message has to repeat: the waiter and the secret of the latest request, and when that was sent by
  -- the client's own clock.
  named VARBINARY(64) NOT NULL,
  sent_ns BIGINT UNSIGNED NOT NULL,
  ttl_us BIGINT NOT NULL,
  -- For how long the place is kept after that request.
  keep_us BIGINT NOT NULL,
  least BIGINT NOT NULL,
  block BIGINT NOT NULL,
  -- When that request was seen, by the clock of this server.
  seen_us BIGINT NOT NULL,
  PRIMARY KEY (name, token),
  KEY turn (name, ticket_no, token)
) ENGINE = InnoDB
//
CREATE TABLE IF NOT EXISTS quorlock_message (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  client BIGINT UNSIGNED NOT NULL,
  text VARBINARY(255) NOT NULL,
  at_us BIGINT NOT NULL,
  KEY client (client),
  KEY at_us (at_us)
) ENGINE = InnoDB
//
CREATE TABLE IF NOT EXISTS quorlock_marker (
  one TINYINT NOT NULL PRIMARY KEY,
  text MEDIUMBLOB NOT NULL
) ENGINE = InnoDB
//
INSERT IGNORE INTO quorlock_marker (one, text) VALUES (1, '')
//
CREATE TABLE IF NOT EXISTS quorlock_start (
  one TINYINT NOT NULL PRIMARY KEY,
  id VARBINARY(36) NOT NULL
) ENGINE = MEMORY
//
CREATE TABLE IF NOT EXISTS quorlock_sweep (
  one TINYINT NOT NULL PRIMARY KEY,
  behind VARBINARY(512) NOT NULL,
  due_us BIGINT NOT NULL
) ENGINE = InnoDB
//
INSERT IGNORE INTO quorlock_sweep (one, behind, due_us) VALUES (1, '', 0)
//
