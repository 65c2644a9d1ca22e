-- Who may do what: a role that may lock calls the verbs, and can do nothing else here.

-- Lets a role lock: SELECT @schema@.let_lock('app');
CREATE OR REPLACE FUNCTION @schema@.let_lock(p_role regrole) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
  verb text;
BEGIN
  EXECUTE format('GRANT USAGE ON SCHEMA @schema@ TO %s', p_role);
  FOR verb IN
    SELECT p.oid::regprocedure::text FROM pg_catalog.pg_proc p
      WHERE p.pronamespace = '@schema@'::regnamespace AND (p.prosecdef OR p.proname = 'version')
  LOOP
    EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', verb, p_role);
  END LOOP;
END $$;

-- Clients compare this with what they were made for.
CREATE OR REPLACE FUNCTION @schema@.version() RETURNS int LANGUAGE sql IMMUTABLE
AS $$ SELECT @version@ $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA @schema@ FROM PUBLIC;
