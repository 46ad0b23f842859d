-- Nexmark's queries in batch SQL over whole logs, in DuckDB's dialect, over the views persons, auctions and bids.
-- Columns have the names that they have in the tables of examples/nexmark.

-- q0: bids as they are
SELECT auction, bidder, price, dateTime, extra FROM bids;

-- q1: prices in euros
SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS euros, dateTime, extra FROM bids;

-- q2: bids on some auctions
SELECT auction, price FROM bids WHERE auction % 123 = 0;

-- q3: who sells in category 10 in some states
SELECT name, city, state, auctions.id FROM auctions JOIN persons ON seller = persons.id
WHERE category = 10 AND state IN ('OR', 'ID', 'CA');

-- q4: the average final price of each category
WITH finals AS (
  SELECT id, category, max(price) AS final
  FROM auctions JOIN bids ON id = auction AND bids.dateTime BETWEEN auctions.dateTime AND expires
  GROUP BY id, category
)
SELECT category, avg(final) AS average FROM finals GROUP BY category;

-- q5: the auctions with the most bids of the last 10 seconds, every 2 seconds
WITH counts AS (
  SELECT auction, count(*) AS num, window_start, window_start + INTERVAL 10 SECONDS AS window_end
  FROM (
    SELECT auction, time_bucket(INTERVAL 2 SECONDS, dateTime) - hop * INTERVAL 2 SECONDS AS window_start
    FROM bids, range(5) AS hops(hop)
  )
  GROUP BY auction, window_start
)
SELECT window_end, auction, num FROM counts
QUALIFY num = max(num) OVER (PARTITION BY window_start);

-- q6: the average final price of each seller's last ten auctions
WITH finals AS (
  SELECT seller, price, bids.dateTime AS closed
  FROM auctions JOIN bids ON id = auction AND bids.dateTime BETWEEN auctions.dateTime AND expires
  QUALIFY row_number() OVER (PARTITION BY id ORDER BY price DESC, bids.dateTime) = 1
), newest AS (
  SELECT * FROM finals QUALIFY row_number() OVER (PARTITION BY seller ORDER BY closed DESC) <= 10
)
SELECT seller, avg(price) AS average FROM newest GROUP BY seller;

-- q7: the bids with the greatest price of 10 seconds
WITH windows AS (SELECT *, time_bucket(INTERVAL 10 SECONDS, dateTime) AS window_start FROM bids)
SELECT auction, price, bidder, dateTime, extra FROM windows
QUALIFY price = max(price) OVER (PARTITION BY window_start);

-- q8: who began to sell in the 10 seconds in which they came
WITH people AS (
  SELECT DISTINCT id, name, time_bucket(INTERVAL 10 SECONDS, dateTime) AS window_start FROM persons
), sellers AS (
  SELECT DISTINCT seller, time_bucket(INTERVAL 10 SECONDS, dateTime) AS window_start FROM auctions
)
SELECT id, name, people.window_start
FROM people JOIN sellers ON id = seller AND people.window_start = sellers.window_start;

-- q9: the winning bid of each auction
SELECT
  id, itemName, description, initialBid, reserve, auctions.dateTime, expires, seller, category, auctions.extra,
  bidder, price, bids.dateTime AS bid_dateTime, bids.extra AS bid_extra
FROM auctions JOIN bids ON id = auction AND bids.dateTime BETWEEN auctions.dateTime AND expires
QUALIFY row_number() OVER (PARTITION BY id ORDER BY price DESC, bids.dateTime) = 1;

-- q10: bids by day and minute
SELECT
  auction, bidder, price, dateTime, extra,
  strftime(dateTime, '%Y-%m-%d') AS dt, strftime(dateTime, '%H:%M') AS hm
FROM bids;

-- q11: how often each bidder bids in a session
WITH starts AS (
  SELECT
    bidder, dateTime,
    coalesce(dateTime - lag(dateTime) OVER past >= INTERVAL 10 SECONDS, true) AS starts
  FROM bids
  WINDOW past AS (PARTITION BY bidder ORDER BY dateTime)
), sessions AS (
  SELECT bidder, dateTime, count(*) FILTER (starts) OVER (PARTITION BY bidder ORDER BY dateTime) AS session FROM starts
)
SELECT
  bidder, count(*) AS bid_count,
  min(dateTime) AS window_start, max(dateTime) + INTERVAL 10 SECONDS AS window_end
FROM sessions GROUP BY bidder, session;

-- q12: how often each bidder bids in 10 seconds
SELECT bidder, count(*) AS bid_count, time_bucket(INTERVAL 10 SECONDS, dateTime) AS window_start
FROM bids GROUP BY ALL;

-- q13: bids with what a side input says of their auction
SELECT auction, bidder, price, dateTime, value FROM bids JOIN side_input ON auction % 10000 = key;

-- q14: large bids, by the time of day
SELECT
  auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS euros,
  CASE
    WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
    WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime'
    ELSE 'otherTime'
  END AS bidTimeType,
  dateTime, extra, len(regexp_extract_all(extra, 'c')) AS c_counts
FROM bids WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;

-- q15: how many bids, bidders and auctions a day has, by price
SELECT
  time_bucket(INTERVAL 1 DAY, dateTime) AS window_start,
  count(*) AS total_bids,
  count(*) FILTER (price < 10000) AS rank1_bids,
  count(*) FILTER (price >= 10000 AND price < 1000000) AS rank2_bids,
  count(*) FILTER (price >= 1000000) AS rank3_bids,
  count(DISTINCT bidder) AS total_bidders,
  count(DISTINCT bidder) FILTER (price < 10000) AS rank1_bidders,
  count(DISTINCT bidder) FILTER (price >= 10000 AND price < 1000000) AS rank2_bidders,
  count(DISTINCT bidder) FILTER (price >= 1000000) AS rank3_bidders,
  count(DISTINCT auction) AS total_auctions,
  count(DISTINCT auction) FILTER (price < 10000) AS rank1_auctions,
  count(DISTINCT auction) FILTER (price >= 10000 AND price < 1000000) AS rank2_auctions,
  count(DISTINCT auction) FILTER (price >= 1000000) AS rank3_auctions
FROM bids GROUP BY window_start;

-- q16: the same of each channel
SELECT
  channel, time_bucket(INTERVAL 1 DAY, dateTime) AS window_start, max(strftime(dateTime, '%H:%M')) AS minute,
  count(*) AS total_bids,
  count(*) FILTER (price < 10000) AS rank1_bids,
  count(*) FILTER (price >= 10000 AND price < 1000000) AS rank2_bids,
  count(*) FILTER (price >= 1000000) AS rank3_bids,
  count(DISTINCT bidder) AS total_bidders,
  count(DISTINCT bidder) FILTER (price < 10000) AS rank1_bidders,
  count(DISTINCT bidder) FILTER (price >= 10000 AND price < 1000000) AS rank2_bidders,
  count(DISTINCT bidder) FILTER (price >= 1000000) AS rank3_bidders,
  count(DISTINCT auction) AS total_auctions,
  count(DISTINCT auction) FILTER (price < 10000) AS rank1_auctions,
  count(DISTINCT auction) FILTER (price >= 10000 AND price < 1000000) AS rank2_auctions,
  count(DISTINCT auction) FILTER (price >= 1000000) AS rank3_auctions
FROM bids GROUP BY channel, window_start;

-- q17: the bids of each auction and day
SELECT
  auction, time_bucket(INTERVAL 1 DAY, dateTime) AS window_start,
  count(*) AS total_bids,
  count(*) FILTER (price < 10000) AS rank1_bids,
  count(*) FILTER (price >= 10000 AND price < 1000000) AS rank2_bids,
  count(*) FILTER (price >= 1000000) AS rank3_bids,
  min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price
FROM bids GROUP BY auction, window_start;

-- q18: the last bid of each bidder on each auction
SELECT auction, bidder, price, channel, url, dateTime, extra FROM bids
QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC) = 1;

-- q19: the ten largest bids of each auction
SELECT
  auction, bidder, price, channel, url, dateTime, extra,
  row_number() OVER (PARTITION BY auction ORDER BY price DESC, dateTime) AS rank_number
FROM bids QUALIFY rank_number <= 10;

-- q20: bids with their auction, in category 10
SELECT
  auction, bidder, price, channel, url, bids.dateTime, bids.extra,
  itemName, description, initialBid, reserve, auctions.dateTime AS auction_dateTime, expires, seller, category,
  auctions.extra AS auction_extra
FROM bids JOIN auctions ON auction = id WHERE category = 10;

-- q21: the number of each bid's channel
SELECT * FROM (
  SELECT
    auction, bidder, price, channel,
    CASE lower(channel)
      WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
      ELSE nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '')
    END AS channel_id
  FROM bids
) WHERE channel_id IS NOT NULL;

-- q22: the folders of each bid's url
SELECT
  auction, bidder, price, channel,
  string_split(url, '/')[4] AS dir1, string_split(url, '/')[5] AS dir2, string_split(url, '/')[6] AS dir3
FROM bids;
