-- What only looks, and the note beside a record.

-- Says who holds a lock. Changes nothing, and waits for nobody.
--
-- c_quiet_us  how long at the most a database casts no vote, once it belongs to the set
-- Answers     free, or held, with for how long the database casts no vote
CREATE OR REPLACE FUNCTION @schema@.inspect(
  p_name bytea, c_quiet_us bigint,
  c_session text, c_sent_us bigint, c_behind_us bigint, c_ahead_us bigint, c_voter text)
RETURNS @schema@.reply LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, @schema@, pg_temp
AS $$
DECLARE
  answer reply;
  held lock;
  moment bigint;
  stands record;
  from_us text;
BEGIN
  SELECT * INTO held FROM lock l WHERE l.name = p_name;
  moment := now_us();
  SELECT count(*) INTO answer.waiters FROM ticket t WHERE t.name = p_name;
  stands := standing(moment, c_voter);
  answer.quarantine_us := 0;
  IF stands.state <> 'votes' THEN
    -- The marker of a set that forms has another state before the rest. One that is due waits for other nodes.
    stands.marker := regexp_replace(stands.marker, '^forming ', 'formed ');
    from_us := CASE WHEN starts_with(stands.marker, c_voter) THEN substr(stands.marker, length(c_voter) + 1, 16) END;
    answer.quarantine_us :=
      greatest(CASE WHEN from_us ~ '^[0-9]{16}$' THEN from_us::bigint - moment ELSE c_quiet_us END, 1);
  END IF;
  IF held.token IS NULL OR held.token = '' OR held.ends_us <= moment THEN
    answer.said := 'free';
    RETURN answer;
  END IF;
  answer.said := 'held';
  answer.number := held.fence;
  answer.token := held.token;
  answer.left_us := held.ends_us - moment;
  answer.note := CASE WHEN held.note_until_us > moment THEN held.note END;
  RETURN answer;
END $$;

-- Names some of the locks that are held, in their order.
--
-- p_behind  where to go on: behind this name
-- Answers   the names, and the last that was looked at; NULL at the end. It looks at so many at the most that no answer is
--           long in coming
CREATE OR REPLACE FUNCTION @schema@.list(p_behind bytea, OUT names bytea[], OUT next bytea)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, @schema@, pg_temp
AS $$
DECLARE
  most CONSTANT bigint := 256;
  looked bigint;
BEGIN
  SELECT coalesce(array_agg(page.name ORDER BY page.name) FILTER (WHERE page.token <> '' AND page.ends_us > now_us()), '{}'),
      count(*)
    INTO names, looked
    FROM (SELECT l.name, l.token, l.ends_us FROM lock l WHERE l.name > p_behind ORDER BY l.name LIMIT most) page;
  IF looked = most THEN
    SELECT l.name INTO next FROM lock l WHERE l.name > p_behind ORDER BY l.name LIMIT 1 OFFSET most - 1;
  END IF;
END $$;

-- Keeps a note about the holder of a lock beside it, if the lock is ours. It begins with a digest of the holder.
--
-- p_token    our token
-- p_note     what to keep; empty to remove it
-- p_keep_us  how long to keep it
-- Answers    done, or refused: nothing was changed
CREATE OR REPLACE FUNCTION @schema@.set_note(
  p_name bytea, p_token bytea, p_note bytea, p_keep_us bigint,
  c_session text, c_sent_us bigint, c_behind_us bigint, c_ahead_us bigint, c_voter text)
RETURNS @schema@.reply LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, @schema@, pg_temp
AS $$
DECLARE
  answer reply;
  held lock;
BEGIN
  PERFORM enter(c_session);
  SELECT * INTO held FROM lock l WHERE l.name = p_name FOR NO KEY UPDATE;
  IF held.token IS DISTINCT FROM p_token OR held.ends_us <= now_us() THEN
    answer.said := 'refused';
    RETURN answer;
  END IF;
  UPDATE lock l SET note = nullif(p_note, ''), note_until_us = CASE WHEN p_note <> '' THEN now_us() + p_keep_us END
    WHERE l.name = p_name;
  answer.said := 'done';
  RETURN answer;
END $$;
