"""Rules about state: its size, whether it can be restored, its place, and its distribution."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from windrow import model as m
from windrow.telemetry.health import default_limit
from windrow.telemetry.numbers import duration, percent, short_bytes
from windrow.telemetry.reports import counted
from windrow.tools.doctor import facts
from windrow.tools.doctor.facts import Damaged, Examined, Finding, Unknown, advice, fine, serious, unknown

_MANY: Final = 1_000
"""Windows that a key holds at once."""
_SHARE: Final = 0.25
"""Share of the memory that the state should not exceed."""
_GROWN, _SMALL = 2.0, 64_000_000
_CLOCKS: Final = 1_000_000
"""Partitions times key groups from which on the clocks take most of a step (docs/performance.md)."""


def window_state(x: Examined) -> Iterator[Finding]:
    """State: its size, compared with the memory and the disk.

    Serious: it is larger than the free space on its disk. Advice: it is larger than a quarter of the memory, it
    has doubled in the second half of the run, or a key holds at least 1,000 windows at once.
    """
    longest = max(map(_delay, x.graph.sources), default=0)
    found = [*_windows(x, longest)]
    yield from (finding for finding in found if finding.severity == "advice")
    designed = "; ".join(finding.found for finding in found if finding.severity == "fine")
    if isinstance(x.run, Unknown) or x.run.status.last is None or x.run.status.last.state_bytes is None:
        if designed:
            yield fine(designed)
        return
    last, held, memory = x.run.status.last, x.run.status.last.state_bytes, x.machine.memory
    size = f"{short_bytes(held)} in {counted(last.state_rows or 0, 'row')}, {counted(last.open_windows, 'open window')}"
    if x.place is not None and held > x.place.free:
        why = "a snapshot of the state does not fit, so the run ends when the disk is full"
        yield serious(f"{size}; {short_bytes(x.place.free)} are free on the disk of the checkpoint", why, "make room")
    elif memory is not None and held > memory * _SHARE:
        why = "each step reads and writes whole blobs of state, which takes longer than a step should"
        yield advice(f"{size}, of {short_bytes(memory)} of memory", why, *_less(x))
    elif _has_grown(x.run.state_bytes):
        first = x.run.state_bytes[len(x.run.state_bytes) // 2]
        why = "state that grows with time and not with the load never stops growing"
        yield advice(
            f"{size}; it was {short_bytes(first)} halfway through the run", why, x.command("state {c}"), *_less(x)
        )
    else:
        yield fine("; ".join([size, *([designed] if designed else [])]))


def _delay(source: m.SourceNode) -> int:
    match source.time.watermark:
        case m.Delay(micros):
            return micros
        case m.DelayByPartition() as delays:
            return delays.longest
        case m.Adaptive(most=most):
            return most
        case _:
            return 0


def _windows(x: Examined, longest: int) -> Iterator[Finding]:
    from windrow.tools.tune.disorder import fed_operators  # noqa: PLC0415 - it loads Arrow

    for node in x.graph.keyed:
        what = f"{node.name}: " if node.name else ""
        if isinstance(node, m.ProcessNode) and node.process.ttl is None:
            yield fine(f"{what}the state of a key is kept forever, because the process has no ttl")
        if isinstance(node, m.WindowNode) and isinstance(node.window, m.Global):
            yield fine(f"{what}a key is kept forever, because its window is global")
    for fed in fed_operators(x.graph):
        window = fed.node
        if not isinstance(window, m.WindowNode) or fed.farthest is None or isinstance(window.window, m.Session):
            continue
        held = math.ceil(fed.held(longest, fed.lateness))
        spans = {"size": fed.farthest, "delay": longest, "lateness": fed.lateness}
        by = ", ".join(f"{name} {m.format_duration(span)}" for name, span in spans.items())
        text = f"{window.name}: " if window.name else ""
        text += f"a key holds up to {counted(held, 'window')} at once ({by})"
        if held >= _MANY:
            where = f"streams.{window.name}.window" if window.name else "window"
            why = "each window that has fired but can still be revised keeps a row of state for each of its keys"
            yield advice(text, why, "use a longer slide or step, or a shorter lateness", where=where)
        else:
            yield fine(text)


def _less(x: Examined) -> tuple[str, ...]:
    return (x.command("tune {c}") + "    # what a shorter delay or lateness would save",)


def _has_grown(sizes: tuple[int, ...]) -> bool:
    if len(sizes) < 4 or sizes[-1] < _SMALL:  # noqa: PLR2004 - halves of halves
        return False
    return sizes[-1] > _GROWN * max(sizes[: len(sizes) // 2 + 1])


def checkpoint(x: Examined) -> Iterator[Finding]:
    """Checkpoint: its age, and whether a copy of it and the savepoints beside it can be restored.

    Serious: it is damaged, belongs to another pipeline, or cannot be restored. Advice: a savepoint is damaged.
    """
    if x.is_realtime:
        yield unknown("a realtime run keeps its state in Kafka, in transactions; there is no checkpoint to restore")
        return
    yield from _resumable(x)
    for name, savepoint in x.savepoints.items():
        if isinstance(savepoint, Damaged):
            text = f"the savepoint {name} cannot be restored: {savepoint.why}"
            yield advice(text, "no run can resume from it", f"rm -r {name}")
        else:
            yield fine(f"the savepoint {name} is complete: epoch {savepoint.epoch}, {short_bytes(savepoint.bytes)}")


def _resumable(x: Examined) -> Iterator[Finding]:
    known, fresh = x.checkpoint, x.command("run --fresh {c}") + "    # reads the log again"
    restore = "restore the checkpoint, and the tables from the same time"
    if isinstance(known, Unknown):
        yield unknown(known.why)
        return
    if known.damage is not None:
        yield serious(known.damage, "the next run cannot resume from it", restore, fresh)
        return
    if known.differs is not None:
        yield serious(
            f"the pipeline is not the one that wrote the checkpoint: {known.differs}",
            "the next run with this checkpoint is refused",
            x.command("savepoint --to SAVEPOINT {c}") + "    # with the pipeline as it was",
            x.command("run --from-savepoint SAVEPOINT --checkpoint NEW"),
        )
        return
    text = f"epoch {known.epoch}{_age(x)}, {short_bytes(known.size)}"
    match x.restored:
        case facts.Restored(epoch, held, keys, windows, seconds):
            yield fine(
                f"{text}; a copy was restored in {seconds:.1f} s: epoch {epoch}, {short_bytes(held)}, "
                f"{counted(keys, 'key')}, {counted(windows, 'open window')}"
            )
        case Damaged(why):
            text = f"a copy of the checkpoint ({text}) cannot be restored: {why}"
            yield serious(text, "the next run cannot resume from it", restore, fresh)
        case Unknown(why):
            yield unknown(f"{text}; its files have the right checksums, but it was not restored: {why}")


def _age(x: Examined) -> str:
    if isinstance(x.run, Unknown) or x.run.status.last is None or x.run.status.last.committed is None:
        return ""
    return f", committed {duration(max(0, x.now - x.run.status.last.committed))} ago"


def place(x: Examined) -> Iterator[Finding]:
    """Place of the state: whether the checkpoint survives a restart of the machine, and the free space on its disk.

    Serious: a run's checkpoint is in a temporary folder, or the disk is nearly full. Advice: a checkpoint would be in a
    temporary folder, or space is low on its disk or on the disk for temporary files.
    """
    if x.is_realtime:
        return
    disk, known = x.place, x.checkpoint
    if disk is None:
        yield fine("the checkpoint is in an object store, which has no locks: the tables decide which run may write")
    elif disk.is_temporary or disk.kind == "overlay":
        kept = f"on {disk.kind}" if disk.kind in {"tmpfs", "ramfs", "overlay"} else "in a folder for temporary files"
        find = advice if isinstance(known, Unknown) or not disk.is_temporary else serious
        yield find(
            f"the checkpoint {disk.path} is {kept}, which a restart of the machine or container can empty",
            "without it no run can resume, and the tables must be rebuilt from the log",
            x.command("run --checkpoint DIR") + "    # on a persistent disk, or s3a://BUCKET/PATH",
        )
    needed = 0 if isinstance(known, Unknown) else known.size
    others = [x.machine.temporary] if disk is None or x.machine.temporary.device != disk.device else []
    for other in [*([] if disk is None else [disk]), *others]:
        what = "the checkpoint" if other is disk else "temporary files"
        found = (
            f"{short_bytes(other.free)} of {short_bytes(other.total)} are free on the disk for {what} ({other.path})"
        )
        to_do = "make room" if other is disk else "make room, or set TMPDIR to a folder on another disk"
        if other.free < max(needed, facts.LEAST_FREE // 10):
            yield serious(found, "a run ends when its disk is full", to_do)
        elif other.free < max(3 * needed, facts.LEAST_FREE):
            yield advice(found, "a run ends when its disk is full; new snapshots need space beside the old ones", to_do)
        else:
            yield fine(found)


def hot_keys(x: Examined) -> Iterator[Finding]:
    """Hot keys: the share of the most frequent key.

    Advice: a key has at least a quarter of the records, and far more than others, while steps are busy.
    """
    total = x.total
    if isinstance(total, Unknown) or not any(keys.shares for keys in total.hot_keys.values()):
        if any(node.key for node in x.graph.keyed):
            yield unknown(total.why if isinstance(total, Unknown) else "the run has not sampled any keys yet")
        return
    for node in x.graph.keyed:
        name = node.name or x.graph.name
        keys = total.hot_keys.get(node.name) or total.hot_keys.get(name)
        if keys is None or not keys.shares:
            continue
        key, share = max(keys.shares.items(), key=lambda pair: pair[1])
        found = f"{', '.join(node.key)} {key} has {percent(share)} of the sampled records of {name}"
        if share < default_limit("hot-key", "share") or key not in keys.hot:
            yield fine(found)
            continue
        busy = None if isinstance(x.run, Unknown) else x.run.status.busy
        can_salt = (
            isinstance(node, m.WindowNode)
            and not isinstance(node.window, m.Session | m.Global)
            and node.emit.early is None
            and node.salt == 1
        )
        path = f"streams.{node.name}.salt" if node.name else "salt"
        if busy is None or busy < facts.BUSY:
            yield fine(f"{found}; steps have time to spare, so nothing waits for this key")
        else:
            salt = x.setting(path, str(min(4, x.graph.key_groups)))
            to_do = salt if can_salt else "use a key with more fields, or add a window before it that sums the records"
            why = f"one core processes all records of a key, and steps are busy {percent(busy)} of the time"
            yield advice(found, why, to_do, where=path if can_salt else "")


def parallelism(x: Examined) -> Iterator[Finding]:
    """Parallelism: whether partitions and key groups suit the cores of this machine.

    Advice: there are fewer key groups than cores, or the clocks of partitions and key groups take most of a step.
    """
    counts = [log.partitions for log in x.logs.values() if isinstance(log, facts.LogFacts)]
    if not counts and not isinstance(x.run, Unknown) and x.run.status.last is not None:
        counts = [len(x.run.status.last.offsets)]
    partitions, groups, cores = sum(counts), x.graph.key_groups, x.machine.cores
    text = f"{counted(partitions, 'partition') if counts else 'partitions unknown'}, {groups} key groups, {cores} cores"
    if x.is_realtime:
        yield fine(f"{text}; each partition has a long-running task")
    elif partitions * groups >= _CLOCKS:
        why = f"each step writes {short_bytes(40 * partitions * groups)} of clocks, whatever it reads"
        yield advice(text, why, "use fewer key_groups (with a savepoint), or longer steps: --every", where="key_groups")
    elif groups < cores:
        why = f"{counted(cores - groups, 'core')} can only read and decode"
        yield advice(text, why, x.setting("key_groups", str(cores)), where="key_groups")
    elif counts and partitions < cores:
        yield fine(f"{text}; one core reads and decodes a partition, so only {counted(partitions, 'core')} can do that")
    else:
        yield fine(text)
