-- Forgets locks that are free, with the last fence of each.
--
-- Answers  how many of them are held or wanted, and were not changed
CREATE OR REPLACE FUNCTION @schema@.forget(p_names bytea[]) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, @schema@, pg_temp
AS $$
BEGIN
  DELETE FROM lock l WHERE l.name = ANY (p_names) AND l.token = '' AND NOT EXISTS (SELECT FROM ticket t WHERE t.name = l.name);
  RETURN (SELECT count(*) FROM lock l WHERE l.name = ANY (p_names));
END $$;

-- Forgets the fence of a lock that no holder can have been given. The holder of the lock here loses it.
--
-- p_highest  the highest fence that a holder can have been given
-- Answers    how many were forgotten
CREATE OR REPLACE FUNCTION @schema@.forget_fence(p_name bytea, p_highest bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, @schema@, pg_temp
AS $$
DECLARE
  forgotten bigint;
BEGIN
  DELETE FROM lock l WHERE l.name = p_name AND l.fence > p_highest;
  GET DIAGNOSTICS forgotten = ROW_COUNT;
  DELETE FROM participant p WHERE p.name = p_name AND NOT EXISTS (SELECT FROM lock l WHERE l.name = p_name);
  RETURN forgotten;
END $$;
