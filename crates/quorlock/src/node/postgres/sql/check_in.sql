-- Has a transaction end before anybody else gets a lock, if the lock is ours. It is called in that transaction, and not over the
-- connection of a locker.
--
-- p_token  our token
-- p_fence  our fence
-- Returns  whether it is ours still. If it is not, the transaction has to be rolled back
--
-- Whether the record has ended does not matter, as long as nobody else has got the lock since: from here to the end of this
-- transaction nobody does. It keeps the holder neither from extending the lock nor from releasing it.
CREATE OR REPLACE FUNCTION @schema@.check_in(p_name bytea, p_token bytea, p_fence bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, @schema@, pg_temp
AS $$
BEGIN
  PERFORM FROM lock l WHERE l.name = p_name AND l.token = p_token AND l.fence >= p_fence FOR KEY SHARE;
  RETURN FOUND;
END $$;
