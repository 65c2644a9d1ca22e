-- The time of the server, for people to compare with their own.
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
