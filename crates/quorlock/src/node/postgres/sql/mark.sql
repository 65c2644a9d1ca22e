-- Writes which set of nodes this database belongs to, or only reads it.
--
-- p_seen      the marker that was seen; empty for none. If another is there, nothing is changed. NULL: only read it
-- p_head      how the marker to be begins, and p_tail how it ends; between them from when on it counts
-- p_after_us  in how long that is; 0 for at once
-- Answers     marker: what is there then, and the time here; or a refusal for the clock
CREATE OR REPLACE FUNCTION @schema@.mark(
  p_seen text, p_head text, p_after_us bigint, p_tail text,
  c_session text, c_sent_us bigint, c_behind_us bigint, c_ahead_us bigint, c_voter text)
RETURNS @schema@.reply LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, @schema@, pg_temp
AS $$
DECLARE
  answer reply;
  moment bigint;
BEGIN
  PERFORM enter(c_session);
  IF p_seen IS NOT NULL THEN
    -- Votes that are being cast by the marker that is there come first, and see it to their end.
    LOCK TABLE marker IN EXCLUSIVE MODE;
  END IF;
  moment := now_us();
  IF NOT is_timely(moment, c_sent_us, c_behind_us, c_ahead_us) THEN
    answer.said := 'CLOCK';
    answer.number := moment;
    RETURN answer;
  END IF;
  answer.said := 'marker';
  answer.number := moment;
  answer.marker := coalesce((SELECT m.text FROM marker m), '');
  IF p_seen = answer.marker THEN
    answer.marker :=
      p_head || lpad((CASE WHEN p_after_us = 0 THEN 0 ELSE moment + p_after_us END)::text, 16, '0') || p_tail;
    INSERT INTO marker (text) VALUES (answer.marker) ON CONFLICT (one) DO UPDATE SET text = excluded.text;
  END IF;
  RETURN answer;
END $$;
