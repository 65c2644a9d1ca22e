-- Drops a lock of any holder, or passes it on to the first in its queue, if its holder is the one that was seen.
--
-- p_holder  the first four bytes of the SHA-1 of its token
-- Answers   done: it was that holder's, and is free or another's now; refused: it was not changed
CREATE OR REPLACE FUNCTION @schema@.force_release(
  p_name bytea, p_holder bytea,
  c_session text, c_sent_us bigint, c_behind_us bigint, c_ahead_us bigint, c_voter text)
RETURNS @schema@.reply LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, @schema@, pg_temp
AS $$
DECLARE
  answer reply;
  held lock;
BEGIN
  PERFORM enter(c_session);
  SELECT * INTO held FROM lock l WHERE l.name = p_name FOR NO KEY UPDATE;
  IF held.name IS NULL OR held.token = '' OR substr(sha1(held.token), 1, 4) <> p_holder THEN
    answer.said := 'refused';
    RETURN answer;
  END IF;
  PERFORM release_row(held, '', c_sent_us, c_session, c_sent_us, c_behind_us, c_ahead_us, c_voter);
  answer.said := 'done';
  RETURN answer;
END $$;

-- SHA-1, which PostgreSQL has in no function of its own. Others know a holder by it: it has nothing to protect.
CREATE OR REPLACE FUNCTION @schema@.sha1(p_text bytea) RETURNS bytea LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
  mask CONSTANT bigint := 4294967295;
  len bigint := length(p_text);
  padded bytea := p_text || '\x80' || decode(repeat('00', ((119 - len % 64) % 64)::int), 'hex') || int8send(len * 8);
  h bigint[] := ARRAY[1732584193, 4023233417, 2562383102, 271733878, 3285377520];
  v bigint[];
  w bigint[];
  f bigint;
  x bigint;
BEGIN
  FOR start IN 0 .. length(padded) / 64 - 1 LOOP
    w := ARRAY[]::bigint[];
    FOR i IN 0 .. 79 LOOP
      IF i < 16 THEN
        x := ('x' || encode(substr(padded, start * 64 + i * 4 + 1, 4), 'hex'))::bit(32)::bigint;
      ELSE
        x := w[i - 2] # w[i - 7] # w[i - 13] # w[i - 15];
        x := ((x << 1) & mask) | (x >> 31);
      END IF;
      w := w || x;
    END LOOP;
    v := h;
    FOR i IN 0 .. 79 LOOP
      f := CASE
        WHEN i < 20 THEN ((v[2] & v[3]) | (~v[2] & mask & v[4])) + 1518500249
        WHEN i < 40 THEN (v[2] # v[3] # v[4]) + 1859775393
        WHEN i < 60 THEN ((v[2] & v[3]) | (v[2] & v[4]) | (v[3] & v[4])) + 2400959708
        ELSE (v[2] # v[3] # v[4]) + 3395469782
      END;
      x := (((v[1] << 5) & mask) | (v[1] >> 27)) + f + v[5] + w[i + 1];
      v := ARRAY[x & mask, v[1], ((v[2] << 30) & mask) | (v[2] >> 2), v[3], v[4]];
    END LOOP;
    FOR i IN 1 .. 5 LOOP
      h[i] := (h[i] + v[i]) & mask;
    END LOOP;
  END LOOP;
  RETURN decode((SELECT string_agg(lpad(to_hex(part), 8, '0'), '' ORDER BY at) FROM unnest(h) WITH ORDINALITY AS parts(part, at)),
    'hex');
END $$;
