-- Clears locks away that nobody has used for a day, some names at a time, and places in queues that nobody has asked for
-- any more. All clients together take one step a second.
--
-- A row goes by a request whose clock is right, if its end and its fence are more than a day old: its holder has long
-- stopped believing in it, and any new fence is higher. A fence that is ahead of the clock stays.
--
-- Answers  marker: what is there, and in `waiters` 1 if there is so much to clear away that the next step should come soon
CREATE OR REPLACE FUNCTION @schema@.tend(
  c_session text, c_sent_us bigint, c_behind_us bigint, c_ahead_us bigint, c_voter text)
RETURNS @schema@.reply LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, @schema@, pg_temp
AS $$
DECLARE
  names_per_step CONSTANT int := 250;
  step_us CONSTANT bigint := 1000000;
  soon_us CONSTANT bigint := 100000;
  answer reply;
  moment bigint;
  after bytea;
  names bytea[];
  cleared bytea[];
BEGIN
  PERFORM enter(c_session);
  moment := now_us();
  answer.said := 'marker';
  answer.number := moment;
  answer.waiters := 0;
  answer.marker := coalesce((SELECT m.text FROM marker m), '');
  IF NOT is_timely(moment, c_sent_us, c_behind_us, c_ahead_us) THEN
    RETURN answer;
  END IF;
  INSERT INTO sweep (behind, due_us) VALUES ('', 0) ON CONFLICT DO NOTHING;
  -- A time far ahead was written down by a clock that was wrong. Whoever does it at this moment does it alone.
  SELECT s.behind INTO after FROM sweep s WHERE s.due_us <= moment OR s.due_us > moment + 10 * step_us FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN answer;
  END IF;
  SELECT coalesce(array_agg(page.name ORDER BY page.name), '{}') INTO names
    FROM (SELECT l.name FROM lock l WHERE l.name > after ORDER BY l.name LIMIT names_per_step) page;
  WITH old AS (
    SELECT l.name FROM lock l
      WHERE l.name = ANY (names) AND l.ends_us < moment - 86400000000 AND l.fence < moment - 86400000000
        AND NOT EXISTS (SELECT FROM ticket t WHERE t.name = l.name)
      FOR UPDATE SKIP LOCKED
  ), gone AS (
    DELETE FROM lock l USING old WHERE l.name = old.name RETURNING l.name
  )
  SELECT array_agg(gone.name) INTO cleared FROM gone;
  DELETE FROM participant p WHERE p.name = ANY (cleared);
  DELETE FROM ticket t USING (
      SELECT o.name, o.token FROM ticket o WHERE o.seen_us + o.keep_us < moment LIMIT names_per_step FOR UPDATE SKIP LOCKED
    ) old
    WHERE t.name = old.name AND t.token = old.token;
  answer.waiters := CASE WHEN coalesce(cardinality(cleared), 0) * 4 > cardinality(names) THEN 1 ELSE 0 END;
  UPDATE sweep s SET
    behind = CASE WHEN cardinality(names) = names_per_step THEN names[names_per_step] ELSE '' END,
    due_us = moment + CASE WHEN answer.waiters = 1 THEN soon_us ELSE step_us END;
  RETURN answer;
END $$;
