"""The pipeline of ``bench/realtime.py``: purchases far above the card's mean so far, by a process function."""

from __future__ import annotations

import os
from typing import Any

import windrow as wr


def suspicious(ctx: Any, record: Any) -> None:  # noqa: ANN401 - the public context and record
    """Emit a purchase of more than three times the mean of the card's before it."""
    count, total = ctx.state.count.get(0), ctx.state.total.get(0)
    if count and record["amount"] > 3 * total / count:
        ctx.emit(id=record["id"], sent=record["sent"])
    ctx.state.count.set(count + 1)
    ctx.state.total.set(total + record["amount"])


servers, topic = os.environ["BENCH_SERVERS"], os.environ["BENCH_TOPIC"]
pipeline = (
    wr.kafka(topic, servers=servers)
    .decode(id="string", card="string", t="timestamp_micros", amount="double", sent="long")
    .event_time("t", delay="30s", future="1m")
    .key_by("card")
    .process(
        suspicious,
        state={"count": wr.value_state("long"), "total": wr.value_state("double")},
        returns={"id": "string", "sent": "long"},
        ttl="24h",
    )
    .to(
        wr.kafka_sink(f"{topic}-alerts", servers=servers, commit=os.environ["BENCH_COMMIT"]),
        name=topic,
        mode="realtime",
    )
)
