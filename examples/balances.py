"""Running totals: what each user has spent so far, updated at every purchase.

    windrow generate data/spend --events 20000
    windrow run examples/balances.py --until-end
    windrow show examples/balances.py --order total:desc --limit 5

`balances_changes` has the changes of each purchase: a consumer subtracts `update_before` and adds `update_after`. Use
running results if the number of keys is limited, or for bounded logs: docs/concepts/global.md.
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
