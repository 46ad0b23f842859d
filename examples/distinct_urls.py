"""The number of distinct URLs that each user visited in the last 24 hours, updated at every click.

windrow's windows start at fixed times or end after a gap; this interval ends at each click. A log of clicks:

    mkdir -p data/clicks
    echo '{"user": "ada", "url": "/start", "at": 1767225600000}' >> data/clicks/partition-0.jsonl
    echo '{"user": "ada", "url": "/offer", "at": 1767229200000}' >> data/clicks/partition-0.jsonl
    windrow run examples/distinct_urls.py --until-end
    windrow show examples/distinct_urls.py
"""

from collections.abc import Mapping
from typing import Any

import windrow as wr


def visited(ctx: wr.Context, click: Mapping[str, Any]) -> None:
    """Store the URL and emit the count; `ttl` has removed the URLs visited 24 hours ago or earlier."""
    ctx.state.urls.set(click["url"], click["at"])
    ctx.emit(urls_24h=len(ctx.state.urls))


pipeline = (
    wr.log("data/clicks")
    .decode(user="string", url="string", at="timestamp_millis")
    .event_time("at", delay="10m", future="1h")
    .key_by("user")
    .process(
        visited,
        state={"urls": wr.map_state("string", "timestamp")},
        ttl="24h",
        returns={"urls_24h": "long"},
        order="event_time",
    )
    .to(wr.sqlite("clicks.db", table="urls_24h"))
)
