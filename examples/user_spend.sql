-- What each user spends per five minutes, from an embedded log to SQLite: the pipeline of user_spend.yaml, in SQL.
--
--     windrow generate data/spend
--     windrow run examples/user_spend.sql --until-end
--
-- docs/reference/sql.md has the whole language. Paths are relative to the working directory.
SET 'name' = 'user-spend';

CREATE TABLE spend (
  user_id STRING,
  event_time TIMESTAMP_LTZ(3),
  amount DECIMAL(12, 2),
  WATERMARK FOR event_time AS event_time - INTERVAL '10' MINUTES
) WITH ('connector' = 'log', 'path' = 'data/spend', 'time.future' = '1h');

CREATE TABLE user_spend_5m WITH (
  'connector' = 'sqlite', 'path' = 'spend.db', 'table' = 'user_spend_5m', 'emit.lateness' = '1h'
);

INSERT INTO user_spend_5m
SELECT window_start, window_end, user_id, sum(amount) AS total, count(*) AS events
FROM TUMBLE(TABLE spend, DESCRIPTOR(event_time), INTERVAL '5' MINUTES)
GROUP BY window_start, window_end, user_id;
