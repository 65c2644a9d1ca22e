-- Ends the connection that has the advisory lock of our client. It is of the same role, so that no right is needed for it.
--
-- $1  the lock
SELECT count(pg_terminate_backend(l.pid)) AS ended
FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted AND l.mode = 'ExclusiveLock'
  AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
  AND l.classid::bigint = ($1 >> 32) & 4294967295 AND l.objid::bigint = $1 & 4294967295
  AND l.pid <> pg_backend_pid() AND a.usename = current_user
