"""Views of a run as plain JSON, computed from its history alone: pure functions of `Seen`.

Times are microseconds since the epoch in UTC and durations are seconds, unless a name says otherwise. The data of all
charts and tables is computed here, and the page only draws it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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
from windrow.telemetry.reports import COUNTS, Lag, StepReport, counted
from windrow.telemetry.samples import VERDICTS
from windrow.telemetry.status import RunStatus, standing_since
from windrow.telemetry.window_counts import WindowCounts
from windrow.tools.dashboard.watch import Query, Seen, first_commit

_MICROS: Final = 1_000_000
_STEPS: Final = 60
"""Steps in the timeline."""
_SAMPLES: Final = 2_000
"""Greatest number of records in a drawing."""
_LINES: Final = 12
"""Partitions with a line of their own in a chart."""
_BREAK: Final = 10 * _MICROS
"""Microseconds without a run that break the lines of a chart."""
_SPANS: Final = {"10m": 600.0, "1h": 3_600.0, "all": None}
_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}


def overview(seen: Seen, query: Query) -> dict[str, Any]:
    """Return whether the run is stuck, behind or incomplete, with the figures."""
    status, total = seen.status, seen.total
    plain = status.plain()
    plain.pop("partitions")
    plain.pop("since_start")
    return plain | {
        "absent": seen.absent,
        "now": status.now,
        "seen_at": seen.now,
        "answers": [_stuck(seen), _late(status), _right(seen)],
        "held": _holders(status),
        "totals": _known_counts(seen),
        "since": seen.counts_since,
        "latency_seconds": {} if total is None else _quantiles(total.latency),
        "only_offsets": status.last is not None and status.last.only_offsets,
        "pipeline_file": seen.run.file,
        "alerts": list(seen.alerts),
        "series": _over_time(seen.over(_span(query))),
    }


def _answer(question: str, level: str, headline: str, *reasons: str, summary: str | None = None) -> dict[str, Any]:
    """Return an answer to show; `level` is good, warn, bad or done, and `summary` is the headline without numbers."""
    answer = {"question": question, "level": level, "headline": headline, "summary": summary or headline}
    return answer | {"reasons": list(reasons)}


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
        level, headline = "warn", "Running, but the low watermark does not advance"
        reasons.append(f"It has not moved for {short_duration(still)} although records arrive; see Watermark.")
    if last is not None:
        reasons.append(f"The last committed epoch is {last.epoch:,}.")
    return _answer(question, level, headline, *reasons)


def _standing(seen: Seen) -> float | None:
    """Return the seconds for which the low watermark has not moved although records arrived, or None."""
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
        over = ("done", "All records that the log had were read", "No run is reading newer records.")
        return _answer(question, *(over if status.state in OVER else ("good", "All records of the log have been read")))
    headline = f"{counted(lag.behind, 'record')} behind"
    if lag.longest:
        headline += f", {short_duration(lag.longest)}"
    level, reason, summary = _behind(status, lag)
    return _answer(question, level, headline, reason, summary=summary)


def _behind(status: RunStatus, lag: Lag) -> tuple[str, str, str]:
    """Return the level, the reason and the summary for a lag above 0."""
    trend = status.lag_trend
    if status.state in OVER or status.state == "stalled":
        return "done" if status.state == "ended" else "bad", "No run is reading them.", "behind"
    if status.is_up_to_date and status.until_clear is not None:
        return "good", f"That many are read in {short_duration(status.until_clear)}.", "up to date"
    if trend is not None and trend >= 1:
        level = "bad" if (lag.longest or 0.0) * _MICROS > default_limit("lag", "time") else "warn"
        return level, f"The lag grows by {trend:,.0f} records/s: the results come later.", "falling behind"
    if status.until_clear is not None and trend is not None:
        clear = f"at this rate it is 0 in {short_duration(status.until_clear)}."
        return "warn", f"The lag shrinks by {-trend:,.0f} records/s; {clear}", "catching up"
    return "good", "The lag neither grows nor shrinks.", "behind"


def _right(seen: Seen) -> dict[str, Any]:
    question, last, counts = "Are the numbers right?", seen.status.last, seen.counts
    if last is None or counts is None or last.only_offsets:
        return _answer(question, "done", "Not known yet" if last is None else "A realtime run counts only offsets")
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


def _holders(status: RunStatus) -> list[dict[str, Any]]:
    """Return the partitions that hold back the low watermark of an active run."""
    if status.state in OVER:
        return []
    return [
        {"partition": partition.partition, "why": partition.held}
        for partition in status.partitions
        if partition.held is not None
    ]


def _known_counts(seen: Seen) -> dict[str, int | None] | None:
    """Return the counts of all steps, with None for counts that a run that counts only offsets does not have."""
    counts, last = seen.counts, seen.status.last
    if counts is None or last is None or not last.only_offsets:
        return None if counts is None else dict(counts)
    return {name: number if name in {"events", "records"} else None for name, number in counts.items()}


def _quantiles(histogram: Histogram) -> dict[str, float]:
    if not histogram.total:
        return {}
    return {name: (histogram.quantile(share) or 0.0) / _MICROS for name, share in _QUANTILES.items()}


def _over_time(series: Sequence[StepReport]) -> dict[str, list[Any]]:
    """Return columns for charts, with an entry for each sum of steps, and the points where lines break."""
    known = [step for step in series if step.committed is not None]

    def counts(*names: str) -> dict[str, list[Any]]:
        return {name: [None if step.only_offsets else getattr(step, name) for step in known] for name in names}

    return {
        **_times(known),
        "epoch": [step.epoch for step in known],
        "events_per_second": [_rate(step.events, step) for step in known],
        "behind": [step.behind for step in known],
        "watermark_lag": [step.watermark_lag for step in known],
        "latency_p99": [_quantiles(step.latency).get("p99") for step in known],
        **counts("late", "expired"),
        "dead": [None if step.only_offsets else step.dead + step.rejected for step in known],
        **counts("revisions", "inserts", "open_windows"),
        "state_bytes": [step.state_bytes for step in known],
    }


def _rate(count: float, step: StepReport) -> float | None:
    return round(count / step.seconds, 3) if step.seconds else None


def _times(series: Sequence[StepReport]) -> dict[str, list[int]]:
    """Return the commit times, and the indexes of steps that follow a period in which nothing ran."""
    times = [(step.committed or 0, (step.committed or 0) - round(step.seconds * _MICROS)) for step in series]
    return {
        "time": [committed for committed, _ in times],
        "breaks": [number for number, ((end, _), (_, begin)) in enumerate(pairwise(times), 1) if begin - end > _BREAK],
    }


def watermark(seen: Seen, query: Query) -> dict[str, Any]:
    """Return the low watermark, and the watermark, idleness and lag of each partition."""
    del query
    status, last = seen.status, seen.status.last
    low = None if last is None else last.low_watermark
    return {
        "now": status.now,
        "low_watermark": low,
        "watermark_lag": status.watermark_lag,
        "standing_seconds": _standing(seen),
        "idle": [] if last is None else last.idle,
        "held": _holders(status),
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
    """Return how many seconds `time` is after `other`, or None if either is unknown."""
    return None if time is None or other is None else (time - other) / _MICROS


def event_time(seen: Seen, query: Query) -> dict[str, Any]:
    """Return partition watermarks and the low watermark over processing time, and the rows written by each step."""
    series = [step for step in seen.over(_span(query)) if step.committed is not None]
    names, left_out = _lines(seen.status)
    return {
        **_times(series),
        "low_watermark": [step.low_watermark for step in series],
        "partitions": [
            {
                "partition": name,
                "watermark": [step.watermarks.get(name) for step in series],
                "ahead_seconds": [_ahead(step.watermarks.get(name), step.low_watermark) for step in series],
            }
            for name in names
        ],
        "left_out": left_out,
        "samples": _samples(series),
        "inserts": [None if step.only_offsets else step.inserts for step in series],
        "revisions": [None if step.only_offsets else step.revisions for step in series],
    }


def _samples(series: Sequence[StepReport]) -> dict[str, Any]:
    """Return a uniform sample of records with their arrival and event time, and the low watermark at each arrival time.

    The arrival of a record is its log timestamp, or the commit time of its step if the log has no timestamps.
    `ahead_seconds` is how far a record was ahead of the low watermark when its step began.
    """
    before = [None, *(step.low_watermark for step in series)]
    rows = [(step, low, sample) for step, low in zip(series, before, strict=False) for sample in step.samples]
    by_log = bool(rows) and all(sample.log_time is not None for _, _, sample in rows)

    def arrival(step: StepReport, log_time: int | None) -> int | None:
        return log_time if by_log else step.committed

    points = [
        {
            "arrival": arrival(step, sample.log_time),
            "event_time": sample.event_time,
            "ahead_seconds": _ahead(sample.event_time, low),
            "verdict": max(sample.verdicts.values(), key=VERDICTS.index, default=None),
            "partition": sample.partition,
            "offset": sample.offset,
        }
        for step, low, sample in nsmallest(_SAMPLES, rows, key=lambda row: row[2].rank)
    ]
    line = [(arrival(step, max(step.log_times.values(), default=None)), step.low_watermark) for step in series]
    known = sorted((at, low) for at, low in line if at is not None and low is not None)
    return {
        "arrival_is": "log" if by_log else "commit",
        "points": sorted(points, key=lambda point: (point["arrival"], point["offset"])),
        "line": {"arrival": [at for at, _ in known], "low_watermark": [low for _, low in known]},
    }


def _lines(status: RunStatus) -> tuple[list[PartitionName], int]:
    """Return the partitions that get their own line in a chart, and the number of remaining partitions.

    Partitions that hold back the low watermark come first, then those with the most lag.
    """
    first = sorted(status.partitions, key=lambda partition: (partition.held is None, -(partition.lag or 0)))[:_LINES]
    names = [partition.partition for partition in status.partitions if partition in first]
    return names, len(status.partitions) - len(names)


def lateness(seen: Seen, query: Query) -> dict[str, Any]:
    """Return how far records were behind the clock of their partition, and what other settings would change.

    `delay` and `lateness` in the query are durations such as 10m and default to the pipeline's own.
    """
    counts = Histogram() if seen.total is None else Histogram.sum(seen.total.lateness.values())
    return {
        "since": seen.first,
        "records": counts.total,
        "bounds_seconds": [bound / _MICROS for bound in BOUNDS],
        "counts": list(counts.counts),
        "quantiles_seconds": _quantiles(counts),
        "partitions": [
            {"partition": name, "records": histogram.total, **_quantiles(histogram)}
            for name, histogram in ({} if seen.total is None else seen.total.lateness).items()
        ],
        **_what_if(seen, query),
    }


def _what_if(seen: Seen, query: Query) -> dict[str, Any]:
    from windrow.tools.tune.choose import WhatIf, what_if  # noqa: PLC0415 - the other views need no Arrow
    from windrow.tools.tune.disorder import read_recorded  # noqa: PLC0415 - the same

    run = seen.run
    chosen = {name: m.parse_duration(query[name]) for name in ("delay", "lateness") if query.get(name)}
    for name, micros in chosen.items():
        if micros > m.MAX_DURATION:
            msg = f"{name}={query[name]} is longer than a hundred years (36500d)"
            raise InputError(msg)
    if run.pipeline is None or seen.total is None:
        return {"what_if": None, "why_not": "give the pipeline's file on the command line to try other settings"}
    if not seen.total.lateness:
        return {"what_if": None, "why_not": "the lateness of records has not been recorded yet"}
    try:
        disorder = read_recorded(run.pipeline, [seen.total])
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
    """Return events per second and lag over time for each partition.

    Partitions without their own line are summed.
    """
    series = [step for step in seen.over(_span(query)) if step.committed is not None]
    names, left_out = _lines(seen.status)

    def line(name: PartitionName, count: Callable[[Mapping[PartitionName, int]], int | None]) -> dict[str, Any]:
        return {
            "partition": name,
            "records_per_second": [_rate(count(step.read) or 0, step) for step in series],
            "lag": [None if step.lag is None else count(step.lag) for step in series],
        }

    def others(counts: Mapping[PartitionName, int]) -> int:
        return sum(count for name, count in counts.items() if name not in names)

    partitions = [line(name, lambda counts, name=name: counts.get(name)) for name in names]  # type: ignore[misc]
    partitions += [line(f"{left_out} others", others)] if left_out else []
    return {**_over_time(series), "partitions": partitions, "key_group_load": [step.key_group_load for step in series]}


def windows(seen: Seen, query: Query) -> dict[str, Any]:
    """Return the number of windows of each node and key group: open now, and fired and closed within the span."""
    series = seen.over(_span(query))
    found: dict[str, WindowCounts] | None = WINDOWS.sum([step.windows for step in series])
    why_not = None
    if seen.total is None:
        why_not = "no step has been committed yet"
    elif seen.total.only_offsets:
        why_not = "a realtime run reports only offsets"
    elif found is None:
        why_not = "an older version of windrow reported these steps without the windows of each key group"
    elif not found:
        why_not = "the pipeline has no windows"
    return {
        "since": first_commit(series),
        "nodes": [_windows_of_node(seen.run.pipeline, node, counts) for node, counts in (found or {}).items()],
        "why_not": why_not,
    }


def _windows_of_node(known: m.Graph | None, name: str, counts: WindowCounts) -> dict[str, Any]:
    view: dict[str, Any] = {"node": name, "kind": None, "note": None, **counts.total._asdict()}
    node = None if known is None else next((keyed for keyed in known.keyed if (keyed.name or known.name) == name), None)
    if isinstance(node, m.WindowNode):
        view["kind"] = type(node.window).__name__.lower()
        match node.window:
            case m.Session():
                view["note"] = "each session is a window of one key; if it grows after it has fired, it fires again"
            case m.Global():
                view["note"] = "the global window stays open; early panes are inserts and revisions"
            case _:
                view["note"] = "all keys of a key group share a window"
    rows = zip(counts.open, counts.fired, counts.closed, strict=True)
    view["key_groups"] = [
        {"key_group": group, "open": is_open, "fired": fired, "closed": closed}
        for group, (is_open, fired, closed) in enumerate(rows)
    ]
    return view


def steps(seen: Seen, query: Query) -> dict[str, Any]:
    """Return the last steps with the seconds that each part took."""
    del query
    return {
        "steps": [
            {
                "epoch": step.epoch,
                "committed": step.committed,
                "seconds": round(step.seconds, 4),
                "took": round(step.took, 4),
                "parts": {part: round(seconds, 4) for part, seconds in step.parts.items()},
                "tasks": {part: round(seconds, 4) for part, seconds in step.tasks.items()},
                **{name: getattr(step, name) for name in ("events", *COUNTS)},
                "low_watermark": step.low_watermark,
                "behind": step.behind,
            }
            for step in list(seen.recent)[-_STEPS:]
        ],
    }


def graph(seen: Seen, query: Query) -> dict[str, Any]:
    """Return the pipeline's nodes in layers from source to sink, with their figures, and the edges between them."""
    del query
    known = seen.run.pipeline
    if known is None:
        why_not = "give the pipeline's file on the command line to see its graph"
        return {"nodes": [], "edges": [], "work": [], "why_not": why_not}
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
            # only the sum of several nodes with the same work is known
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
    """Return the fraction of the tasks' and the sink's time that each kind of work took."""
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
    """Return the figures of a node, each with its name, value and format (`unit`)."""
    status, last = seen.status, seen.status.last
    if last is None:
        return []
    match node:
        case m.SourceNode(name=name):
            several = len(shown.sources) > 1
            own = [row for row in status.partitions if not several or str(row.partition).startswith(f"{name}/")]
            marks = [row.watermark for row in own if row.watermark is not None and not row.is_idle]
            found = [
                ("records/s", sum(row.per_second for row in own), "number"),
                ("behind", sum(row.lag or 0 for row in own), "number"),
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
            size = next((size for text, size in last.state_by_node.items() if name in text.split(", ")), None)
            found = [] if size is None else [("state rows", size[0], "number"), ("state", size[1], "bytes")]
            if len(shown.keyed) == 1 and node in shown.keyed and not last.only_offsets:
                found.append(("open windows", last.open_windows, "number"))
    return [{"name": name, "value": value, "unit": unit} for name, value, unit in found]


def _span(query: Query) -> float | None:
    """Return the time span of a view in seconds, or None for all; raise InputError for an unknown span."""
    span = query.get("span", "all")
    if span not in _SPANS:
        msg = f"unknown span={span!r}; choose one of {', '.join(_SPANS)}"
        raise InputError(msg)
    return _SPANS[span]


def _percent(share: float) -> str:
    """Format a fraction as a percentage, rounded down so that 100 % means all."""
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
"""The views by their names on the page and in ``/api/``."""
