"""Rules about results: delivery guarantee, tables, and records that are late, rejected or lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from windrow import model as m
from windrow.connectors.source import listed, restoring
from windrow.telemetry.health import default_limit
from windrow.telemetry.numbers import duration, percent
from windrow.telemetry.reports import counted
from windrow.tools.doctor.facts import MINUTE, Examined, Finding, TableFacts, Unknown, advice, fine, serious, unknown

_ENOUGH: Final = 1_000
"""Records from which on shares of them are judged."""
_SERIOUS: Final = 0.01
"""Share of records in no result from which on a finding is serious."""
_QUANTILE: Final = 0.99
_GENEROUS: Final = 6
"""A delay that is longer than 99.9 % of the records need, by this factor, delays rows for nothing."""


def warnings(x: Examined) -> Iterator[Finding]:
    """Warnings: the warnings of `windrow check`.

    Advice: each warning.
    """
    others = [warning for warning in x.warnings if warning[0] != "key_groups"]  # the rule of parallelism knows more
    for where, message in others:
        yield advice(f"{where} {message}", "it is a likely mistake in the pipeline", x.command("check"), where=where)
    if not others:
        yield fine("`windrow check` has no warnings")


def guarantee(x: Examined) -> Iterator[Finding]:
    """Delivery guarantee: which outputs are exactly once.

    Advice: the tables are in several databases, which are not committed together.
    """
    sinks = [node.sink for node in x.graph.sinks]
    names = ", ".join(sink.table for sink in sinks)
    if x.is_realtime:
        yield fine(
            f"changes are exactly once in {names} for consumers with isolation.level=read_committed; other consumers "
            "can see a change twice after a crash"
        )
    else:
        yield fine(
            f"exactly once: {names}, {'the changelog, ' if any(sink.changelog for sink in sinks) else ''}"
            "the late output, the dead letters and the clock journal; a step and its epoch are one transaction"
            f"{' (in Delta, one for each table)' if not all(sink.is_one_transaction for sink in sinks) else ''}"
        )
        if (databases := len({sink.database for sink in sinks})) > 1:
            yield advice(
                f"the tables are in {databases} databases, each with its own transaction",
                "a reader can see a step in one database but not yet in another; each database is exactly once",
                "write tables that are read together into one database",
                where="sinks",
            )
    has_ticks = any(map(m.needs_ticks, x.graph.keyed))
    repeats = [
        *(["panes and timers in processing time, whose rows are marked `early`"] if has_ticks else []),
        *(["which partitions were idle"] if any(source.time.idle for source in x.graph.sources) else []),
    ]
    if repeats and not x.is_realtime:
        yield fine(
            f"depends on the wall clock: {' and '.join(repeats)}; a replay takes idleness from the clock journal"
        )


def tables(x: Examined) -> Iterator[Finding]:
    """Tables: their run, epoch, columns and primary key.

    Serious: they belong to another run, are at another epoch than the checkpoint, or do not fit the pipeline.
    """
    for node in x.graph.sinks:
        name = node.sink.table
        match x.tables.get(node.name):
            case None:
                continue
            case Unknown(why):
                yield unknown(f"{name}: {why}")
            case TableFacts() as table:
                yield from _table(x, name, table)


def _table(x: Examined, name: str, table: TableFacts) -> Iterator[Finding]:
    fresh = x.command("run --fresh {c}") + "    # drops the tables and reads the log again"
    if table.misfits:
        yield serious(
            f"{name}: {table.misfits[0]}" + (f" (and {len(table.misfits) - 1} more)" if len(table.misfits) > 1 else ""),
            "the next run is refused, because a repeated step must find the rows that it replaces by their key",
            "alter the table as the error message of the run says", fresh,
        )  # fmt: skip
        return
    known = x.checkpoint
    if not isinstance(known, Unknown) and known.run is None:
        yield unknown(f"{name}: the checkpoint, which identifies its run, cannot be read")
        return
    if isinstance(known, Unknown):
        if table.owner is None:
            yield unknown(f"{name}: no run has written it")
        else:
            yield unknown(
                f"{name} is at epoch {table.epoch} of a run whose checkpoint is not here",
                "give its --checkpoint if it ran on the stream host; a run with --host memory or batch has none",
            )
        return
    stands = "has no step" if table.epoch is None else f"is at epoch {table.epoch}"
    owners = {known.run} if known.follows is None or known.epoch is not None else {known.run, known.follows.run}
    if table.owner is None and known.epoch is None:
        yield unknown(f"{name}: no step was committed yet")
    elif table.owner not in owners:
        whose = "nobody" if table.owner is None else "another run"
        yield serious(
            f"{name} belongs to {whose}, not to the run of the checkpoint, which is at epoch {known.epoch}",
            "the next run with this checkpoint is refused, because rows would be missing or duplicated",
            "give the --checkpoint of the run that owns the table, or restore the table from the same time", fresh,
        )  # fmt: skip
    elif known.epoch is not None and abs((-1 if table.epoch is None else table.epoch) - known.epoch) > _APART:
        yield serious(
            f"{name} {stands}, but the checkpoint is at epoch {known.epoch}",
            "one of them was restored from another time; the next run is refused, because rows would be missing or "
            "duplicated",
            "restore the other from the same time", fresh,
        )  # fmt: skip
    else:
        key = ", ".join(table.key) or "none"
        yield fine(f"{name} belongs to this run, at epoch {table.epoch}; its primary key is {key}")


_APART: Final = 2
"""Epochs by which tables and checkpoint of a run may differ: a step is computed while another is committed."""


def late_policy(x: Examined) -> Iterator[Finding]:
    """Late records: whether they change their row or only go to the late output.

    Advice: the lateness is 0 and the history has expired records.
    """
    expired = 0 if isinstance(x.total, Unknown) else x.total.expired
    for node in x.graph.keyed:
        match node:
            case m.WindowNode(emit=m.Emit(lateness=lateness)) if not isinstance(node.window, m.Global):
                pass
            case m.RulesNode(rules=rules):
                lateness = rules.lateness
            case _:
                continue
        sinks = x.graph.sinks_below(node)
        output = sinks[0].sink.companion("late") if sinks else "the late output"
        path = f"streams.{node.name}.emit.lateness" if node.name else "emit.lateness"
        what = f"{node.name}: " if node.name else ""
        if lateness == 0 and expired:
            yield advice(
                f"{what}the lateness is 0s, and {counted(expired, 'verdict')} in the history are expired",
                f"a record behind the watermark changes no row and goes only to {output}",
                x.setting(path, "1h"), x.command(f"show {output}") + "    # to add them yourself",
                where=path,
            )  # fmt: skip
        elif lateness == 0:
            yield fine(f"{what}late records change no row and go to {output} (lateness 0s)")
        else:
            yield fine(
                f"{what}records up to {m.format_duration(lateness)} late change their row; later records go to {output}"
            )


def delay(x: Examined) -> Iterator[Finding]:
    """Delay: whether it covers the disorder of the records.

    Serious: at least 1 % of the records are farther behind than delay and lateness together. Advice: at least 1 % are
    farther behind than the delay, or it is many times longer than 99.9 % of the records need.
    """
    fitting = [source for source in x.graph.sources if isinstance(source.time.watermark, m.Delay | m.DelayByPartition)]
    if not fitting:
        yield fine("no fixed delay: the watermark is adaptive, or in the log")
        return
    if isinstance(x.disorder, Unknown):
        yield unknown(f"{x.disorder.why}", x.command("tune --log") + "    # reads the log itself")
        return
    from windrow.tools.tune.choose import Goals, tune  # noqa: PLC0415 - it loads Arrow

    tunes = x.command("tune {c}")
    for choice in tune(x.graph, x.disorder, Goals(quantile=0.999)).delays:
        own = x.disorder.of([part.partition for part in choice.partitions])
        if own.records < _ENOUGH:
            yield unknown(f"{choice.path}: {own.records:,} records are too few to judge a delay by")
            continue
        high, most = own.high.quantile(_QUANTILE), own.high.quantile(0.999)
        beyond = own.high.out(choice.now + 1) / own.records
        lateness = choice.source_lateness or max(
            (operator.lateness for operator in own.operators if operator.path), default=0
        )
        found = (
            f"{choice.path} is {m.format_duration(choice.now)}: {percent(beyond)} of {own.records:,} records are "
            f"farther behind the clock; 99 % are at most {duration(high)} behind, 99.9 % at most {duration(most)}"
        )
        if high > choice.now + lateness:
            why = f"with a lateness of {m.format_duration(lateness)}, at least 1 % of the records can be in no row"
            yield serious(found, why, tunes, where=choice.path)
        elif high > choice.now:
            why = "more than 1 % of the records can be late and change rows that someone has already read"
            yield advice(found, why, tunes, where=choice.path)
        elif choice.now >= MINUTE and most * _GENEROUS <= choice.now:
            why = f"each row is written at least {m.format_duration(choice.now)} after its window, mostly needlessly"
            yield advice(found, why, x.command("tune --quantile 99.9 {c}"), where=choice.path)
        else:
            yield fine(found)


def verdicts(x: Examined) -> Iterator[Finding]:
    """Share out of order: the shares of records that are out of order, late and expired.

    Serious: at least 1 % are expired. Advice: at least 0.1 % are expired.
    """
    total = x.total
    if isinstance(total, Unknown):
        yield unknown(total.why)
        return
    if total.records < _ENOUGH:
        yield unknown(f"{counted(total.records, 'record')} are too few to judge shares by")
        return
    behind = sum(sum(histogram.counts[1:]) for histogram in total.lateness.values())
    measured = sum(histogram.total for histogram in total.lateness.values())
    share = total.expired / total.records
    order = f"{percent(behind / measured)} of the records are behind the clock; " if measured else ""
    found = (
        f"{order}verdicts: {total.late:,} late ({percent(total.late / total.records)} of {total.records:,} records), "
        f"{total.expired:,} expired ({percent(share)})"
    )
    why = "expired records are in no row, only in the late output"
    outputs = [node.sink.companion("late") for node in x.graph.sinks]
    to_do = (x.command("tune --expired 0.01% {c}"), *(x.command(f"show {name}") for name in outputs[:1]))
    if share >= _SERIOUS:
        yield serious(found, why, *to_do)
    elif share >= default_limit("expired-share", "share"):
        yield advice(found, why, *to_do)
    else:
        yield fine(found)


def dead_letters(x: Examined) -> Iterator[Finding]:
    """Dead letters: their share of the records, and whether they were redriven.

    Serious: at least 1 % of the records. Advice: any that were not redriven.
    """
    known = [facts for facts in x.tables.values() if isinstance(facts, TableFacts)]
    redriven, table = sum(facts.redriven for facts in known), x.graph.sinks[0].sink.companion("dead")
    can_redrive = x.graph.is_short and not x.graph.rules and not isinstance(x.graph.sources[0].source, m.FollowedSource)
    lists = x.command("redrive --list") if can_redrive else x.command(f"show {table} --limit 20")
    why = f"they are in no row; each is in {table} with its reason, which helps only if somebody reads it"
    total = x.total
    if isinstance(total, Unknown):
        if written := max((facts.dead for facts in known), default=0):
            yield advice(f"{counted(written, 'dead letter')} in {table}, {redriven:,} redriven", why, lists)
        else:
            yield unknown(total.why)
        return
    dead = total.dead + total.rejected
    if not dead:
        yield fine(f"no dead letters among {counted(total.records, 'record')}")
        return
    share = dead / (total.records + total.dead or 1)
    found = f"{counted(dead, 'dead letter')} ({percent(share)} of the records), {redriven:,} redriven"
    if dead <= redriven:
        yield fine(found)
    elif share >= _SERIOUS and total.records + total.dead >= _ENOUGH:
        yield serious(found, why, lists)
    else:
        yield advice(found, why, lists)


def lost_records(x: Examined) -> Iterator[Finding]:
    """Lost records: whether the log has the run's next records, and earlier losses.

    Serious: it does not have them. Advice: the clock journal has losses.
    """
    if isinstance(x.lost, Unknown):
        yield unknown(x.lost.why)
    elif x.lost:
        yield serious(
            f"the log does not have the records that the run reads next: {listed(x.lost)}",
            "the next run stops with an error rather than silently skip records",
            *restoring(x.lost),
            x.command("run --on-data-loss continue {c}") + "    # the journal then lists what is missing",
        )
    past = sum(table.lost for table in x.tables.values() if isinstance(table, TableFacts))
    if past:
        journal = f"{x.graph.sinks[0].sink.table}_clocks"
        yield advice(
            f"records were lost {counted(past, 'time')} before, according to the clock journal",
            "windows of those times lack them, and a replay cannot read them",
            x.command(f"show {journal} --order epoch:desc"),
        )
    if not x.lost and not past:
        yield fine("none: the log has all records that the run reads next, and the clock journal has no losses")
