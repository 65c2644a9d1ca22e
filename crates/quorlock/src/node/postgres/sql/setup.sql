-- How a server is set up, for people.
SELECT
  (SELECT c.system_identifier::text FROM pg_catalog.pg_control_system() c) AS system,
  current_setting('fsync') AS fsync,
  current_setting('synchronous_commit') AS synchronous_commit,
  coalesce((SELECT s.ssl FROM pg_catalog.pg_stat_ssl s WHERE s.pid = pg_backend_pid()), false) AS tls,
  (SELECT count(*) FROM pg_catalog.pg_stat_activity a WHERE a.backend_type = 'client backend') AS connections,
  current_setting('max_connections')::bigint AS max_connections
