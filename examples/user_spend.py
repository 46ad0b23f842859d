"""The pipeline of user_spend.yaml in the fluent form.

windrow generate data/spend
windrow run examples/user_spend.py --until-end
"""

import windrow as wr

pipeline = (
    wr.log("data/spend")
    .decode(user_id="string", event_time="timestamp_millis", amount="decimal(12,2)")
    .event_time("event_time", delay="10m", future="1h")
    .key_by("user_id")
    .window(wr.tumbling("5m"))
    .aggregate(total=wr.sum("amount"), events=wr.count())
    .emit(lateness="1h", late="each", mode="retract", at_end="fire")
    .to(wr.sqlite("spend.db", table="user_spend_5m"), name="user-spend")
)
