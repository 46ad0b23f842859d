"""Rules about running: faults, backpressure, watermark, monitoring, log retention, clocks, secrets and versions."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Final
from urllib.parse import parse_qs, urlsplit

from windrow import model as m
from windrow.model.references import MASK, fill_placeholders, is_reference, mask_url
from windrow.telemetry.health import default_limit
from windrow.telemetry.numbers import duration, first_line, percent, short_bytes
from windrow.telemetry.reports import counted
from windrow.telemetry.status import RECENT
from windrow.tools.doctor import facts
from windrow.tools.doctor.facts import DAY, MICROS, Examined, Finding, LogFacts, Unknown, advice, fine, serious, unknown

_LAST: Final = 10
"""Processes that are considered."""
_OFTEN: Final = 3
_SKEW: Final = 1.0
"""Seconds that a log timestamp may be ahead of this machine's clock."""


def run_state(x: Examined) -> Iterator[Finding]:
    """Run and faults: the state of the run, and its earlier faults.

    Serious: the run failed, was killed, makes no progress, or was lost. Advice: it is retrying, had a fault in the last
    day, or at least three of the last ten processes failed or were killed.
    """
    if isinstance(x.run, Unknown):
        yield unknown(x.run.why)
        return
    status, record = x.run.status, x.run.status.record
    if record is None:
        yield unknown("the run used an older version of windrow, which recorded only its steps")
        return
    again = x.command("run {c}")
    shows = x.command("status {c}")
    error, fault = first_line(record.error), first_line(record.fault)
    match status.state:
        case "failed":
            yield serious(f"the run failed: {error}", "nothing is computed until it runs again", again)
        case "killed":
            text = f"the process {record.pid} ended without a report; last seen {duration(x.now - record.seen)} ago"
            yield serious(text, "nothing is computed until it runs again; no step was left half-written", again)
        case "lost":
            text = (
                f"nothing was heard of the process {record.pid} on {record.machine} for {duration(x.now - record.seen)}"
            )
            yield serious(text, "it may have ended, so nothing is computed", shows)
        case "stalled":
            since = duration(x.now - (record.waiting or x.now))
            yield serious(f"records have waited for {since} without a committed step", "results do not change", shows)
        case "retrying":
            yield advice(f"the run is retrying after a fault: {fault}", "it gives up after a while", shows)
        case state:
            yield fine(f"{'it ended' if state == 'ended' else 'it is running'}, and it has recovered from all faults")
    if record.fault is not None and status.state != "retrying" and x.now - (record.fault_at or 0) < DAY:
        ago = duration(x.now - (record.fault_at or x.now))
        text = f"the last fault was {ago} ago: {fault}"
        yield advice(text, "the run recovered from it, but the next such fault can take longer", shows)
    past = x.run.processes[:-1][-_LAST:]
    wrong = [record for record in past if record.error is not None or record.ended is None]
    if len(wrong) >= _OFTEN:
        failed = sum(record.error is not None for record in wrong)
        text = f"of the last {len(past)} processes, {failed} failed and {len(wrong) - failed} were killed"
        last = next((record.error for record in reversed(wrong) if record.error), None)
        text += "" if last is None else f"; the last error: {first_line(last)}"
        yield advice(text, "each start takes time, during which records wait", shows)


def backpressure(x: Examined) -> Iterator[Finding]:
    """Backpressure: whether the lag grows, and the share of the time spent in steps.

    Serious: the lag grows and is more than 5 minutes. Advice: the lag grows, or steps take more than 80 % of the time.
    """
    if isinstance(x.run, Unknown):
        yield unknown(x.run.why)
        return
    status, lag = x.run.status, x.run.status.lag
    if not x.run.is_going:
        if lag is not None and lag.behind:
            text = f"no run is active, and {counted(lag.behind, 'record')} were left when the last one ended"
            yield unknown(text, x.command("run {c}"))
        else:
            yield unknown(
                "no run is active; the last one had read all of the log" if lag is not None else "no run is active"
            )
        return
    recent, busy, trend = status.recent, status.busy, status.lag_trend or 0.0
    if recent is None or busy is None:
        yield unknown("no step was committed in the last minute")
        return
    slow = max(recent.parts.items(), key=lambda part: part[1], default=None)
    most = "" if slow is None or not recent.took else f", most of it in {slow[0]} ({percent(slow[1] / recent.took)})"
    behind = 0 if lag is None else lag.behind
    if recent.only_offsets:
        busy, takes = 0.0, ""  # its tasks do not end
    else:
        takes = f"; steps take {percent(busy)} of the time{most}"
    found = f"{counted(behind, 'record')} behind{takes}"
    to_do = _faster(x, None if slow is None else slow[0])
    if trend > 0 and behind > max(1.0, status.per_second) * 10:
        growing = f"the lag grows by {trend:,.0f} records a second: {found}"
        why = "results come later and later, until the log deletes records before they are read"
        is_long = lag is not None and (lag.longest or 0.0) * MICROS > default_limit("lag", "time")
        yield (serious if is_long else advice)(growing, why, *to_do)
    elif busy > facts.BUSY and behind:
        yield advice(found, "there is little room for more records, or to catch up after an outage", *to_do)
    else:
        yield fine(found)


def _faster(x: Examined, part: str | None) -> tuple[str, ...]:
    match part:
        case "commit" | "wait":
            return ("steps wait for the database: move it closer, or write fewer rows (`late: batch`)",)
        case "plan" | "sync":
            return ("use longer steps: " + x.command("run --every 5s {c}"),)
        case _:
            return (f"more cores (at most {x.graph.key_groups} can work on state), or fewer aggregates",)


def watermark(x: Examined) -> Iterator[Finding]:
    """Watermark: whether it advances, and whether a partition without records could hold it back.

    Serious: it has not moved for 5 minutes while records are read. Advice: there are several partitions and no
    `time.idle`.
    """
    if x.is_realtime:
        yield fine("each partition has its own watermark and does not wait for others")
        return
    for node in x.graph.sources:
        log = x.logs.get(node.name)
        partitions = log.partitions if isinstance(log, LogFacts) else _known_partitions(x, node.name)
        several = partitions > 1 or len(x.graph.sources) > 1
        where = x.path(node.name, "time")
        if several and node.time.idle is None:
            has = f"{partitions} partitions" if partitions > 1 else "several sources"
            yield advice(
                f"{where} has no `idle`, and there are {has}",
                "in a live run, a partition without records holds back the low watermark, so no window fires "
                "(a run with --until-end does not wait)",
                x.setting(f"{where}.idle", "1m"),
                where=where,
            )
        elif not partitions and node.time.idle is None:
            yield unknown(
                f"{where} has no `idle`, and the number of partitions is unknown: in a live run, a partition without "
                "records holds back the low watermark",
                x.setting(f"{where}.idle", "1m"),
            )
        elif node.time.idle is not None:
            yield fine(f"{where}.idle protects the low watermark from a partition without records")
        else:
            yield fine(f"{where}: there is only one partition, so it does not wait for others")
    yield from _standing(x)


def _known_partitions(x: Examined, source: str) -> int:
    if isinstance(x.run, Unknown) or x.run.status.last is None:
        return 0
    names = x.run.status.last.watermarks
    return len(names) if len(x.graph.sources) == 1 else sum(str(name).rpartition("/")[0] == source for name in names)


def _standing(x: Examined) -> Iterator[Finding]:
    if isinstance(x.run, Unknown) or isinstance(x.total, Unknown) or not x.run.is_going:
        return
    status, low = x.run.status, x.total.low_watermark
    held = "; ".join(f"partition {part.partition}: {part.held}" for part in status.partitions if part.held is not None)
    behind = status.watermark_lag
    began = x.now if status.record is None else status.record.began
    stands = x.now - began if low is None else x.run.stands or 0
    if stands >= default_limit("watermark-stuck", "span") and status.per_second > 0:
        what = "there has been no low watermark" if low is None else "the low watermark has not moved"
        yield serious(
            f"{what} for {duration(stands)}, while records are read; {held}",
            "no window fires, and state grows",
            x.command("status --watch {c}"),
        )
    elif low is None:
        yield unknown(f"there is no low watermark yet; {held}")
    elif behind is not None:
        moves = "advances" if stands < RECENT else f"has not moved for {duration(stands)}"
        yield fine(f"the low watermark {moves}, {duration(max(0.0, behind) * MICROS)} behind the clock; {held}")


def watched(x: Examined) -> Iterator[Finding]:
    """Watching: whether alerts or metrics would report that the run makes no progress.

    Advice: a live run sends its alerts nowhere, and serves no metrics.
    """
    goes = [name for name in ("webhook", "command") if getattr(x.graph.alerts, name)]
    options = () if isinstance(x.run, Unknown) else x.run.options
    if goes:
        yield fine(f"alerts go to a {' and a '.join(goes)}")
    elif options is None:
        yield unknown("no run is active here, so it is unknown whether its metrics are scraped")
    elif "--until-end" in options:
        yield fine("the run ends by itself, with an exit code")
    elif any(word.startswith("--listen") for word in options):
        yield fine("the run serves /metrics and /healthz (--listen); whether they are scraped is unknown here")
    elif isinstance(x.run, Unknown):
        yield unknown("no run is active, so it is unknown whether its metrics are scraped")
    else:
        yield advice(
            "the run does not serve /metrics, and its alerts go nowhere",
            "nobody is told when a run stalls: its tables just stop changing",
            x.command("run --listen :9464 {c}") + "    # and scrape it",
        )


def retention(x: Examined) -> Iterator[Finding]:
    """Retention: how long the log keeps records, compared with downtime, lag and replays.

    Serious: the oldest unread record is older than half of the retention. Advice: an outage of a day would lose
    records, the number of bytes is limited, or the topic is compacted.
    """
    for node in x.graph.sources:
        name = node.source.label
        match x.logs.get(node.name):
            case None:
                continue
            case Unknown(why):
                yield unknown(why)
            case LogFacts(partitions, records, None, is_cut):
                held = counted(partitions, "partition") if records is None else counted(records, "record")
                if is_cut:
                    yield fine(f"{name}: {held} in files; records that `windrow log` removed cannot be replayed")
                else:
                    yield fine(f"{name}: {held} in files; nothing is deleted, so all of it can be replayed")
            case LogFacts(_, _, facts.Retention() as kept):
                yield from _retention(x, name, kept)


def _retention(x: Examined, name: str, kept: facts.Retention) -> Iterator[Finding]:
    if kept.is_compacted:
        yield advice(
            f"{name} is compacted",
            "a replay reads only the last record of each key, so sums come out smaller",
            f"kafka-configs --alter --entity-type topics --entity-name {name} --add-config cleanup.policy=delete",
        )
    longer = f"kafka-configs --alter --entity-type topics --entity-name {name} --add-config retention.ms=604800000"
    if kept.bytes is not None:
        yield advice(
            f"{name} keeps {short_bytes(kept.bytes)} of each partition, whatever its age",
            "a peak in traffic shortens the outage that loses no records",
            f"kafka-configs --alter --entity-type topics --entity-name {name} --delete-config retention.bytes",
        )
    if kept.time is None:
        if not kept.is_compacted and kept.bytes is None:
            yield fine(f"{name} keeps all records, so all of it can be replayed")
        return
    away = _away(x)
    text = f"{name} keeps records for {duration(kept.time)}"
    if away is not None and away > kept.time / 2:
        text = f"{text}, and the run has read nothing of the last {duration(away)}"
        yield serious(text, "unread records will be deleted", x.command("run {c}"), longer)
    elif kept.time < DAY:
        why = "a longer outage loses records, and a replay cannot go back farther"
        yield advice(text, why, longer)
    else:
        yield fine(f"{text}: a shorter outage loses no records, and a replay can go back this far")


def _away(x: Examined) -> float | None:
    """Return the age of the oldest unread record in the log in microseconds, or None if unknown."""
    if isinstance(x.run, Unknown) or x.run.status.lag is None:
        return None
    lag = x.run.status.lag
    stopped = 0 if x.run.is_going else x.now - lag.asked
    return stopped + (lag.longest or 0.0) * MICROS


def clocks(x: Examined) -> Iterator[Finding]:
    """Clocks: whether this machine's clock agrees with the timestamps of the log.

    Advice: records were logged later than they were committed here.
    """
    last = x.total
    if isinstance(last, Unknown):
        yield unknown(last.why)
        return
    if last.committed is None or not last.log_times:
        yield unknown("no log timestamps are known, because a run keeps only those of Kafka")
        return
    partition, newest = max(last.log_times.items(), key=lambda pair: pair[1])
    ahead = (newest - last.committed) / MICROS
    if ahead > _SKEW:
        yield advice(
            f"a record of partition {partition} was logged {duration(ahead * MICROS)} after it was committed here",
            f"if this machine's clock is wrong, lag and latency are measured too short; if the wrong clock is "
            f"{_stamps(x)}, `time.future` lets through event times that are ahead",
            "timedatectl status    # on both machines; chrony or NTP keeps them together",
        )
    else:
        yield fine("by this machine's clock, no record was logged later than it was committed here")


def _stamps(x: Examined) -> str:
    """Return whose clock sets the log timestamps of records, as text."""
    kept = [log.retention for log in x.logs.values() if isinstance(log, LogFacts) and log.retention is not None]
    if not kept:
        return "that of the log"
    return "the broker's" if all(retention.is_appended for retention in kept) else "a producer's"


def secrets(x: Examined) -> Iterator[Finding]:
    """Secrets: whether passwords are in the file, in logs or in the history, and who can read or write files.

    Serious: a password is in the file or in a file of the run. Advice: a secret's file is readable by everyone, or the
    checkpoint is writable by everyone.
    """
    found = [setting for setting in facts.secret_settings(x.graph) if setting.has_secret]
    for setting in found:
        where = setting.path
        yield serious(
            f"{where} has {'a password' if setting.name == 'url' else 'a secret'} in plain text",
            "anyone who can read the file, or its history in git, has the secret",
            f"{where}: ${{NAME}} or ${{file:PATH}} in its place    # and change the secret, which is exposed",
            where=where,
        )
    for file in x.leaks:
        text = f"{file} contains a secret of the pipeline"
        yield serious(text, "anyone who can read the file has the secret", f"rm {file}", "change the secret")
    for text in x.readable:
        yield advice(text, "other users of this machine have access", "chmod go-w, or o-r for a secret")
    if not found and not x.leaks and not x.readable:
        yield fine("there is no password in the file or in what the run has written here")


def connections(x: Examined) -> Iterator[Finding]:
    """Connections: whether connections to other machines are encrypted.

    Serious: a password is sent over an unencrypted connection. Advice: records or rows are.
    """
    has_any = False
    for node in x.graph.sources:
        if isinstance(log := node.source.records, m.KafkaSource):
            has_any = True
            yield from _broker(log, x.path(node.name, f"source.{node.source.section}.options"))
    for sink in x.graph.sinks:
        if isinstance(sink.sink, m.PostgresSink):
            has_any = True
            path = "sink.postgres.url" if x.graph.is_short else f"sinks.{sink.name}.sink.postgres.url"
            yield from _server(path, sink.sink.url)
    if not has_any:
        yield fine("none: sources and sinks are files on this machine")


def _broker(source: m.KafkaSource, where: str) -> Iterator[Finding]:
    options = dict(source.options)
    protocol = options.get("security.protocol", "PLAINTEXT").upper()
    text = f"{source.servers}: {protocol}"
    hosts = [server.rpartition(":")[0] for server in source.servers.split(",")]
    if "SSL" in protocol.replace("SASL", "") or all(map(_is_local, hosts)):
        yield fine(text)
    elif protocol == "SASL_PLAINTEXT" and options.get("sasl.mechanism", "").upper() == "PLAIN":
        why = "the password is sent over the network unencrypted"
        yield serious(text, why, f"{where}: {{security.protocol: SASL_SSL, ...}}", where=where)
    else:
        why = "anyone on the network in between can read and change records"
        yield advice(text, why, f"{where}: {{security.protocol: SSL, ...}}", where=where)


def _server(where: str, url: str) -> Iterator[Finding]:
    if is_reference(url):
        yield unknown(f"{where} is a reference, which was not resolved")
        return
    try:
        # a part of a password with an @ or a slash would be taken for the host
        parts = urlsplit(mask_url(fill_placeholders(url)))
        host, mode = parts.hostname or "", parse_qs(parts.query).get("sslmode", ["prefer"])[-1]
    except ValueError:
        host, mode = MASK, ""
    if host == MASK:
        yield unknown(f"{where} is not a valid URL")
        return
    if mode in {"verify-full", "verify-ca"} or _is_local(host):
        yield fine(f"PostgreSQL at {host or 'a socket on this machine'}: {'sslmode ' + mode if host else 'no network'}")
    else:
        why = "the server is not verified, so anyone on the network in between can pose as it and receive the password"
        yield advice(
            f"PostgreSQL at {host}: sslmode {mode}", why, "sslmode=verify-full and sslrootcert in the url", where=where
        )


def _is_local(host: str) -> bool:
    host = host.strip("[]")
    if host in {"", "localhost"} or host.startswith("/"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def versions(x: Examined) -> Iterator[Finding]:
    """Versions: whether windrow and its dependencies are the same as in the last run.

    Serious: the Spark version differs from the one that wrote the checkpoint. Advice: packages are outside the range
    that windrow supports, Java is missing, or the windrow version has changed.
    """
    known = x.machine.versions
    text = ", ".join(f"{name} {version}" for name, version in known.items() if version is not None)
    if x.machine.unmet:
        why = "windrow is tested with the versions that it requires"
        yield advice(f"installed in an unsupported version: {', '.join(x.machine.unmet)}", why, "pip install windrow")
    if known.get("java") is None:
        why = "stream, batch and realtime runs need it (--host memory does not)"
        yield advice("there is no Java on this machine", why, "install Java 17 or newer, or set JAVA_HOME")
    before = None if isinstance(x.run, Unknown) or not x.run.processes else x.run.processes[-1].versions
    if before is None:
        yield fine(text)
        return
    other = {name: version for name, version in before.items() if known.get(name) not in (None, version)}
    if not other:
        yield fine(f"{text}; the last run had the same versions")
        return
    changed = ", ".join(f"{name} was {version} and is now {known[name]}" for name, version in other.items())
    savepoint = x.command("savepoint --to SAVEPOINT {c}") + "    # with the old versions"
    resumes = x.command("run --from-savepoint SAVEPOINT --checkpoint NEW") + "    # with the new versions"
    if "pyspark" in other:
        yield serious(changed, "Spark may not read the state store of another version", savepoint, resumes)
    elif "windrow" in other:
        yield advice(changed, "only resuming from a savepoint is tested across versions", savepoint, resumes)
    else:
        yield fine(f"{text}; the last run had {', '.join(f'{name} {version}' for name, version in other.items())}")
