"""What each user has spent so far, told anew at every purchase: a running total for each key.

    windrow generate data/spend --events 20000
    windrow run examples/balances.py --until-end
    sqlite3 balances.db 'SELECT * FROM balances ORDER BY total DESC LIMIT 5'

`balances_changes` has the change that each purchase made: a reader who follows it subtracts `update_before` and adds
`update_after`. Running results are for keys that are few, or for logs that end: docs/concepts/global.md.
"""

import windrow as wr

pipeline = (
    wr.log("data/spend")
    .decode(user_id="string", event_time="timestamp_millis", amount="decimal(12,2)")
    .event_time("event_time", delay="10m", future="1h")
    .key_by("user_id")
    .running(
        total=wr.sum("amount"),
        large=wr.sum("amount", where="amount >= 100"),
        greatest=wr.max("amount"),
        purchases=wr.count(),
        latest=wr.last("amount"),
    )
    .to(wr.sqlite("balances.db", table="balances"))
)
