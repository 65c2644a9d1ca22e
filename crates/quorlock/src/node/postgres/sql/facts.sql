-- What a client has to know of a server before it looks into its schema. No function of ours is asked: it may not be there.
--
-- $1  the schema
SELECT
  current_setting('server_version_num')::int AS version,
  current_setting('server_version') AS version_text,
  pg_is_in_recovery() AS in_recovery,
  current_setting('transaction_read_only') = 'on' AS read_only,
  n.oid IS NOT NULL AS has_schema,
  n.oid IS NOT NULL AND has_schema_privilege(n.oid, 'USAGE') AS may_use,
  EXISTS (
    SELECT FROM pg_catalog.pg_proc p
      WHERE p.pronamespace = n.oid AND p.proname = 'version' AND p.pronargs = 0 AND has_function_privilege(p.oid, 'EXECUTE')
  ) AS has_version,
  NOT EXISTS (
    SELECT FROM pg_catalog.pg_class c WHERE c.relnamespace = n.oid AND c.relkind = 'r' AND c.relpersistence = 'u'
  ) AS is_durable,
  current_user::text AS role,
  current_database()::text AS database,
  pg_backend_pid() AS backend,
  coalesce((
    SELECT (extract(epoch FROM clock_timestamp() - a.backend_start) * 1000000)::bigint
      FROM pg_catalog.pg_stat_activity a WHERE a.pid = pg_backend_pid()
  ), 0) AS backend_age_us
FROM (SELECT) one LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = $1
