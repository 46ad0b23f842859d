"""Views of a run as plain JSON, of its history alone: pure functions of what was seen of it.

Times are microseconds since the epoch in UTC and durations seconds, unless a name says otherwise. What a chart draws
and a table lists is here: the page computes nothing but how it looks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from heapq import nsmallest
from itertools import pairwise
from typing import Any, Final

from windrow import model as m
from windrow.authoring.printing import node_text
from windrow.authoring.sections import mask_secrets
from windrow.errors import InputError
from windrow.telemetry.facts import WINDOWS, PartitionName
from windrow.telemetry.health import OVER, STATES, default_limit
from windrow.telemetry.histogram import BOUNDS, Histogram
from windrow.telemetry.numbers import first_line, short_duration
from windrow.telemetry.reports import Lag, StepReport, counted
from windrow.telemetry.samples import VERDICTS
from windrow.telemetry.status import RunStatus, standing_since
from windrow.telemetry.window_counts import WindowCounts
from windrow.tools.dashboard.watch import Query, Seen, first_committed

_MICROS: Final = 1_000_000
_STEPS: Final = 60
"""Steps of the timeline."""
_SAMPLES: Final = 2_000
"""Records that are drawn at most."""
_LINES: Final = 12
"""Partitions that have a line of their own in a chart."""
_BREAK: Final = 10 * _MICROS
"""Microseconds without a run over which no line of a chart goes."""
_SPANS: Final = {"10m": 600.0, "1h": 3_600.0, "all": None}
_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}


def overview(seen: Seen, query: Query) -> dict[str, Any]:
    """Say whether the numbers are right, late or stuck, and the figures behind that."""
    status, total = seen.status, seen.total
    plain = status.plain()
    plain.pop("partitions")
    plain.pop("since_start")
    return plain | {
        "absent": seen.absent,
        "now": status.now,
        "seen_at": seen.now,
        "answers": [_stuck(seen), _late(status), _right(seen)],
        "held": _held(status),
        "totals": _known_counts(seen),
        "since": seen.counts_since,
        "latency_seconds": {} if total is None else _quantiles(total.latency),
        "only_offsets": status.last is not None and status.last.only_offsets,
        "pipeline_file": seen.run.file,
        "alerts": list(seen.alerts),
        "series": _over_time(seen.over(_span(query))),
    }


def _answer(question: str, level: str, headline: str, *reasons: str, summary: str | None = None) -> dict[str, Any]:
    """Answer a question: `level` is good, warn, bad or done, `summary` the headline without numbers."""
    said = {"question": question, "level": level, "headline": headline, "summary": summary or headline}
    return said | {"reasons": list(reasons)}


def _stuck(seen: Seen) -> dict[str, Any]:
    status, last, record = seen.status, seen.status.last, seen.status.record
    question = "Does it run?"
    if seen.absent is not None:
        return _answer(question, "warn", "No step yet", seen.absent)
    level, words = STATES[status.state]
    headline = f"{words[0].upper()}{words[1:]}"
    reasons = [] if record is None or record.error is None else [first_line(record.error)]
    if record is not None and record.error is None and record.fault is not None and record.fault_at is not None:
        ago = short_duration(max(0, status.now - record.fault_at) / _MICROS)
        reasons.append(f"The last fault was {ago} ago: {first_line(record.fault)}")
    still = _standing(seen)
    if level == "good" and still is not None and still * _MICROS >= default_limit("watermark-stuck", "span"):
        level, headline = "warn", "Running, but the low watermark stands still"
        reasons.append(f"It has not moved for {short_duration(still)} although records come; see Watermark.")
    if last is not None:
        reasons.append(f"Epoch {last.epoch:,} is the last that was committed.")
    return _answer(question, level, headline, *reasons)


def _standing(seen: Seen) -> float | None:
    """Return for how long the low watermark has not moved while records came."""
    status, since = seen.status, standing_since(seen.recent)
    if since is None or status.recent is None or status.recent.only_offsets or not status.recent.events:
        return None
    return (status.now - since) / _MICROS


def _late(status: RunStatus) -> dict[str, Any]:
    question = "Is it up to date?"
    lag = status.lag
    if lag is None:
        return _answer(question, "done", "The lag is not known")
    if not lag.behind:
        over = ("done", "All records were read that the log had", "Nothing reads newer ones now.")
        return _answer(question, *(over if status.state in OVER else ("good", "All records of the log are read")))
    headline = f"{counted(lag.behind, 'record')} behind"
    if lag.longest:
        headline += f", {short_duration(lag.longest)}"
    level, reason, summary = _behind(status, lag)
    return _answer(question, level, headline, reason, summary=summary)


def _behind(status: RunStatus, lag: Lag) -> tuple[str, str, str]:
    """Return the level, the reason and the summary of a lag that there is."""
    trend = status.lag_trend
    if status.state in OVER or status.state == "stalled":
        return "done" if status.state == "ended" else "bad", "Nothing reads them now.", "behind"
    if status.is_up_to_date and status.until_clear is not None:
        return "good", f"As many are read in {short_duration(status.until_clear)}.", "up to date"
    if trend is not None and trend >= 1:
        level = "bad" if (lag.longest or 0.0) * _MICROS > default_limit("lag", "time") else "warn"
        return level, f"The lag grows by {trend:,.0f} records/s: the results come later.", "falling behind"
    if status.until_clear is not None and trend is not None:
        clear = f"none is left in {short_duration(status.until_clear)} if that goes on."
        return "warn", f"The lag shrinks by {-trend:,.0f} records/s; {clear}", "catching up"
    return "good", "The lag neither grows nor shrinks.", "behind"


def _right(seen: Seen) -> dict[str, Any]:
    question, last, counts = "Are the numbers right?", seen.status.last, seen.counts
    if last is None or counts is None or last.only_offsets:
        return _answer(question, "done", "Not known yet" if last is None else "A realtime run counts offsets alone")
    events, expired, dead = counts["events"], counts["expired"], counts["dead"] + counts["rejected"]
    missing, revisions = expired + dead, counts["revisions"]
    revised = f"{counted(revisions, 'row')} revised by late records." if revisions else "No row was revised."
    if not missing:
        return _answer(question, "good", f"All {events:,} records are counted", revised, summary="all counted")
    share = missing / max(1, events)
    parts = [f"{expired:,} expired"] if expired else []
    parts += [counted(dead, "dead letter")] if dead else []
    level = "warn" if share > default_limit("expired-share", "share") else "good"
    headline = f"{_percent(1 - share)} of the records are counted"
    missed = f"Not counted: {' and '.join(parts)} of {events:,}."
    return _answer(question, level, headline, missed, revised, summary="some records are not counted")


def _held(status: RunStatus) -> list[dict[str, Any]]:
    """Return what holds the low watermark back, of a run that goes on."""
    if status.state in OVER:
        return []
    return [
        {"partition": partition.partition, "why": partition.held}
        for partition in status.partitions
        if partition.held is not None
    ]


def _known_counts(seen: Seen) -> dict[str, int | None] | None:
    """Return the counts of all steps; of a run that counts offsets alone the others are not known."""
    counts, last = seen.counts, seen.status.last
    if counts is None or last is None or not last.only_offsets:
        return None if counts is None else dict(counts)
    return {name: number if name in {"events", "records"} else None for name, number in counts.items()}


def _totals(total: StepReport) -> dict[str, int]:
    names = ("records", "late", "expired", "dead", "rejected", "duplicates", "inserts", "revisions")
    return {"events": total.events} | {name: getattr(total, name) for name in names}


def _quantiles(histogram: Histogram) -> dict[str, float]:
    if not histogram.total:
        return {}
    return {name: (histogram.quantile(share) or 0.0) / _MICROS for name, share in _QUANTILES.items()}


def _over_time(series: Sequence[StepReport]) -> dict[str, list[Any]]:
    """Return columns, a row a sum of steps, and where the lines break."""
    known = [one for one in series if one.committed is not None]

    def rate(count: float, seconds: float) -> float | None:
        return round(count / seconds, 3) if seconds else None

    return {
        **_times(known),
        "epoch": [one.epoch for one in known],
        "events_per_second": [rate(one.events, one.seconds) for one in known],
        "behind": [one.behind for one in known],
        "watermark_lag": [one.watermark_lag for one in known],
        "latency_p99": [_quantiles(one.latency).get("p99") for one in known],
        "late": [None if one.only_offsets else one.late for one in known],
        "expired": [None if one.only_offsets else one.expired for one in known],
        "dead": [None if one.only_offsets else one.dead + one.rejected for one in known],
        "revisions": [None if one.only_offsets else one.revisions for one in known],
        "inserts": [None if one.only_offsets else one.inserts for one in known],
        "open_windows": [None if one.only_offsets else one.open_windows for one in known],
        "state_bytes": [one.state_bytes for one in known],
    }


def _times(series: Sequence[StepReport]) -> dict[str, list[int]]:
    """Return when steps were committed, and the places of those before which no run ran for a while."""
    times = [(one.committed or 0, (one.committed or 0) - round(one.seconds * _MICROS)) for one in series]
    return {
        "time": [committed for committed, _ in times],
        "breaks": [at for at, (one, other) in enumerate(pairwise(times), 1) if other[1] - one[0] > _BREAK],
    }


def watermark(seen: Seen, query: Query) -> dict[str, Any]:
    """Say why the low watermark stands where it stands: each partition with its watermark, idle mark and lag."""
    del query
    status, last = seen.status, seen.status.last
    low = None if last is None else last.low_watermark
    return {
        "now": status.now,
        "low_watermark": low,
        "watermark_lag": status.watermark_lag,
        "standing_seconds": _standing(seen),
        "idle": [] if last is None else last.idle,
        "held": _held(status),
        "partitions": [
            {
                "partition": partition.partition,
                "watermark": partition.watermark,
                "ahead_seconds": _ahead(partition.watermark, low),
                "idle": partition.is_idle,
                "holds": partition.held is not None,
                "why": partition.held,
                "offset": partition.offset,
                "lag": partition.lag,
                "lag_seconds": partition.lag_seconds,
                "records_per_second": round(partition.per_second, 3),
                "newest_log_time": None if last is None else last.log_times.get(partition.partition),
            }
            for partition in status.partitions
        ],
    }


def _ahead(time: int | None, other: int | None) -> float | None:
    """Return the seconds from another time to a time."""
    return None if time is None or other is None else (time - other) / _MICROS


def event_time(seen: Seen, query: Query) -> dict[str, Any]:
    """Return the watermarks of partitions and the low watermark over processing time, and rows as they were written."""
    series = [one for one in seen.over(_span(query)) if one.committed is not None]
    names, left_out = _lines(seen.status)
    return {
        **_times(series),
        "low_watermark": [one.low_watermark for one in series],
        "partitions": [
            {
                "partition": name,
                "watermark": [one.watermarks.get(name) for one in series],
                "ahead_seconds": [_ahead(one.watermarks.get(name), one.low_watermark) for one in series],
            }
            for name in names
        ],
        "left_out": left_out,
        "samples": _samples(series),
        "inserts": [None if one.only_offsets else one.inserts for one in series],
        "revisions": [None if one.only_offsets else one.revisions for one in series],
    }


def _samples(series: Sequence[StepReport]) -> dict[str, Any]:
    """Return a sample of the records by arrival and event time, and the low watermark over the same arrival.

    Arrival is the log timestamp, or where the log has none the commit of the step. `ahead_seconds` is how far a record
    was ahead of the low watermark when its step began. The sample is uniform.
    """
    before = [None, *(step.low_watermark for step in series)]
    rows = [(step, low, sample) for step, low in zip(series, before, strict=False) for sample in step.samples]
    by_log = bool(rows) and all(one.log_time is not None for _, _, one in rows)

    def arrival(step: StepReport, log_time: int | None) -> int | None:
        return log_time if by_log else step.committed

    points = [
        {
            "arrival": arrival(step, one.log_time),
            "event_time": one.event_time,
            "ahead_seconds": _ahead(one.event_time, low),
            "verdict": max(one.verdicts.values(), key=VERDICTS.index, default=None),
            "partition": one.partition,
            "offset": one.offset,
        }
        for step, low, one in nsmallest(_SAMPLES, rows, key=lambda row: row[2].rank)
    ]
    line = [(arrival(step, max(step.log_times.values(), default=None)), step.low_watermark) for step in series]
    known = sorted((at, low) for at, low in line if at is not None and low is not None)
    return {
        "arrival_is": "log" if by_log else "commit",
        "points": sorted(points, key=lambda one: (one["arrival"], one["offset"])),
        "line": {"arrival": [at for at, _ in known], "low_watermark": [low for _, low in known]},
    }


def _lines(status: RunStatus) -> tuple[list[PartitionName], int]:
    """Return the partitions that get a line: those that are behind most; and how many get none."""
    first = sorted(status.partitions, key=lambda one: (one.held is None, -(one.lag or 0)))[:_LINES]
    kept = {one.partition for one in first}
    return [partition.partition for partition in status.partitions if partition.partition in kept], len(
        status.partitions
    ) - len(kept)


def lateness(seen: Seen, query: Query) -> dict[str, Any]:
    """Return how far records were behind the clock of their partition, and what other settings would do to them.

    `delay` and `lateness` of the query are durations such as 10m; without them the pipeline's own are counted with.
    """
    counts = Histogram() if seen.total is None else Histogram.sum(seen.total.lateness.values())
    return {
        "since": seen.first,
        "records": counts.total,
        "bounds_seconds": [bound / _MICROS for bound in BOUNDS],
        "counts": list(counts.counts),
        "quantiles_seconds": _quantiles(counts),
        "partitions": [
            {"partition": name, "records": one.total, **_quantiles(one)}
            for name, one in ({} if seen.total is None else seen.total.lateness).items()
        ],
        **_what_if(seen, query),
    }


def _what_if(seen: Seen, query: Query) -> dict[str, Any]:
    from windrow.tools.tune.choose import WhatIf, what_if  # noqa: PLC0415 - the same
    from windrow.tools.tune.disorder import read_recorded  # noqa: PLC0415 - the other views need no Arrow

    run = seen.run
    chosen = {name: m.parse_duration(query[name]) for name in ("delay", "lateness") if query.get(name)}
    for name, micros in chosen.items():
        if micros > m.MAX_DURATION:
            msg = f"{name}={query[name]} is longer than a hundred years (36500d)"
            raise InputError(msg)
    if run.pipeline is None or run.graph is None or seen.total is None:
        return {"what_if": None, "why_not": "name the pipeline's file on the command line to try other settings"}
    if not seen.total.lateness:
        return {"what_if": None, "why_not": "no lateness of records is recorded yet"}
    try:
        disorder = read_recorded(run.graph, [seen.total])
        now, then = what_if(run.pipeline, disorder), what_if(run.pipeline, disorder, **chosen)
    except InputError as exc:
        return {"what_if": None, "why_not": exc.message}

    def plain(found: WhatIf) -> dict[str, Any]:
        missed = found.missed
        return {
            "delay_seconds": found.delay / _MICROS,
            "lateness_seconds": None if found.lateness is None else found.lateness / _MICROS,
            "pairs": missed.pairs,
            "not_on_time": [missed.late.least, missed.late.most],
            "expired": [missed.expired.least, missed.expired.most],
        }

    return {
        "what_if": {
            "now": plain(now),
            "then": plain(then),
            "later_seconds": (then.delay - now.delay) / _MICROS,
            "state_ratio": round(then.held, 4),
        },
        "why_not": None,
    }


def throughput(seen: Seen, query: Query) -> dict[str, Any]:
    """Return events a second and lag over time, by partition; those without a line of their own are summed up."""
    series = [one for one in seen.over(_span(query)) if one.committed is not None]
    names, left_out = _lines(seen.status)
    own = set(names)

    def others(counts: Mapping[PartitionName, int]) -> int:
        return sum(count for name, count in counts.items() if name not in own)

    def rates(counts: Iterator[int]) -> list[float | None]:
        return [
            round(count / one.seconds, 3) if one.seconds else None for count, one in zip(counts, series, strict=True)
        ]

    partitions = [
        {
            "partition": name,
            "records_per_second": rates(one.read.get(name, 0) for one in series),
            "lag": [None if one.lag is None else one.lag.get(name) for one in series],
        }
        for name in names
    ]
    if left_out:
        partitions.append(
            {
                "partition": f"{left_out} others",
                "records_per_second": rates(others(one.read) for one in series),
                "lag": [None if one.lag is None else others(one.lag) for one in series],
            }
        )
    return {**_over_time(series), "partitions": partitions, "key_group_load": [one.key_group_load for one in series]}


def windows(seen: Seen, query: Query) -> dict[str, Any]:
    """Return the windows of each node by key group: open now, and fired and closed in the span."""
    series = seen.over(_span(query))
    found: dict[str, WindowCounts] | None = WINDOWS.sum([step.windows for step in series])
    why_not = None
    if seen.total is None:
        why_not = "no step has been committed yet"
    elif seen.total.only_offsets:
        why_not = "a realtime run reports offsets alone"
    elif found is None:
        why_not = "an older version of windrow has reported these steps, without windows by key group"
    elif not found:
        why_not = "the pipeline has no windows"
    return {
        "since": first_committed(series),
        "nodes": [_windows_of_node(seen.run.graph, node, counts) for node, counts in (found or {}).items()],
        "why_not": why_not,
    }


def _windows_of_node(known: m.Graph | None, name: str, counts: WindowCounts) -> dict[str, Any]:
    made: dict[str, Any] = {"node": name, "kind": None, "note": None, **counts.total._asdict()}
    node = None if known is None else next((one for one in known.keyed if (one.name or known.name) == name), None)
    if isinstance(node, m.WindowNode):
        made["kind"] = type(node.window).__name__.lower()
        match node.window:
            case m.Session():
                made["note"] = "each session is a window of one key; one that grows after it fired fires again"
            case m.Global():
                made["note"] = "the global window stays open; early panes are inserts and revisions"
            case _:
                made["note"] = "a window is one for all keys of a key group"
    rows = zip(counts.open, counts.fired, counts.closed, strict=True)
    made["key_groups"] = [
        {"key_group": group, "open": is_open, "fired": fired, "closed": closed}
        for group, (is_open, fired, closed) in enumerate(rows)
    ]
    return made


def steps(seen: Seen, query: Query) -> dict[str, Any]:
    """Return the last steps as they were, with the seconds of their parts."""
    del query
    return {
        "steps": [
            {
                "epoch": one.epoch,
                "committed": one.committed,
                "seconds": round(one.seconds, 4),
                "took": round(one.took, 4),
                "parts": {part: round(seconds, 4) for part, seconds in one.parts.items()},
                "tasks": {part: round(seconds, 4) for part, seconds in one.tasks.items()},
                **_totals(one),
                "low_watermark": one.low_watermark,
                "behind": one.behind,
            }
            for one in list(seen.recent)[-_STEPS:]
        ],
    }


def graph(seen: Seen, query: Query) -> dict[str, Any]:
    """Return the pipeline's nodes in layers from source to sink, with what passes them, and the edges between them."""
    del query
    known = seen.run.graph
    if known is None:
        return {
            "nodes": [],
            "edges": [],
            "work": [],
            "why_not": "name the pipeline's file on the command line to see its graph",
        }
    shown = mask_secrets(known)
    # in a short form the keyed node and the sink have no name
    layers: list[int] = []
    edges = []
    for number, node in enumerate(shown.nodes):
        makers = [shown.producer(name) for name in node.inputs]
        places = [shown.nodes.index(maker) for maker in makers]
        layers.append(max((layers[place] + 1 for place in places), default=0))
        for name, maker, place in zip(node.inputs, makers, places, strict=True):
            output = name.removeprefix(f"{maker.name}.") if name != maker.name else ""
            edges.append({"from": place, "to": number, "output": output})
    shares = _shares(seen.status.recent or seen.status.last)
    of_work = Counter(map(_work, shown.nodes))
    nodes = [
        {
            "id": number,
            "name": node.name or (node.sink.table if isinstance(node, m.SinkNode) else shown.name),
            "kind": _kind(node),
            "text": node_text(shown, node),
            "layer": layers[number],
            # of several nodes with the same work only what they spend together is known
            "share": shares.get(_work(node)) if of_work[_work(node)] == 1 else None,
            "facts": _facts(seen, shown, node),
        }
        for number, node in enumerate(shown.nodes)
    ]
    work = [{"name": name, "nodes": of_work[name], "share": share} for name, share in shares.items()]
    return {"nodes": nodes, "edges": edges, "work": work, "why_not": None}


def _kind(node: m.Node) -> str:
    match node:
        case m.SourceNode():
            return "source"
        case m.SinkNode():
            return "sink"
        case _:
            return type(node).__name__.removesuffix("Node").lower()


def _work(node: m.Node) -> str:
    return {"source": "read and decode", "sink": "commit"}.get(_kind(node), "operate")


def _shares(step: StepReport | None) -> dict[str, float]:
    """Return the share of the time that tasks and the sink spend, by work."""
    if step is None:
        return {}
    spent = {
        "read and decode": step.tasks.get("read", 0.0) + step.tasks.get("decode", 0.0),
        "operate": step.tasks.get("operate", 0.0),
        "commit": step.parts.get("commit", 0.0),
    }
    total = sum(spent.values())
    return {work: round(seconds / total, 4) for work, seconds in spent.items()} if total else {}


def _facts(seen: Seen, shown: m.Graph, node: m.Node) -> list[dict[str, Any]]:
    """Return figures of a node by name; `unit` says how they are written."""
    status, last = seen.status, seen.status.last
    if last is None:
        return []
    match node:
        case m.SourceNode(name=name):
            several = len(shown.sources) > 1
            own = [
                partition
                for partition in status.partitions
                if not several or str(partition.partition).startswith(f"{name}/")
            ]
            marks = [one.watermark for one in own if one.watermark is not None and not one.is_idle]
            found = [
                ("records/s", sum(one.per_second for one in own), "number"),
                ("behind", sum(one.lag or 0 for one in own), "number"),
                ("watermark", min(marks, default=None), "time"),
            ]
        case m.SinkNode():
            if len(shown.sinks) > 1:
                return []
            span = 0.0 if status.recent is None else status.recent.seconds
            rows = 0 if status.recent is None else status.recent.inserts + status.recent.revisions
            found = [("rows/s", rows / span if span else 0.0, "number"), ("up to", last.low_watermark, "time")]
        case _:
            name = node.name or shown.name
            held = next((held for text, held in last.state_by_node.items() if name in text.split(", ")), None)
            found = [] if held is None else [("state rows", held[0], "number"), ("state", held[1], "bytes")]
            if len(shown.keyed) == 1 and node in shown.keyed and not last.only_offsets:
                found.append(("open windows", last.open_windows, "number"))
    return [{"name": name, "value": value, "unit": unit} for name, value, unit in found]


def _span(query: Query) -> float | None:
    """Return the seconds that a view is over; raise InputError for another span than those that there are."""
    span = query.get("span", "all")
    if span not in _SPANS:
        msg = f"span={span!r} is none of {', '.join(_SPANS)}"
        raise InputError(msg)
    return _SPANS[span]


def _percent(share: float) -> str:
    """Write a share rounded down, so that 100 % is all."""
    return f"{int(share * 100_000) / 1000:g} %"


HISTORY_VIEWS: Final = {
    "overview": overview,
    "watermark": watermark,
    "time": event_time,
    "lateness": lateness,
    "throughput": throughput,
    "windows": windows,
    "steps": steps,
    "graph": graph,
}
"""The views by the names that the page and ``/api/`` have for them."""
