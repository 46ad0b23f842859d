"""Random windows of a fixed size, triggers and modes."""

from __future__ import annotations

from hypothesis import strategies as st

from windrow.model import (
    AllOf,
    AnyOf,
    Cumulate,
    Emit,
    Every,
    EveryEventTime,
    Global,
    Hopping,
    Late,
    Mode,
    PaneSoFar,
    Records,
    Repeat,
    Session,
    Trigger,
    Tumbling,
    When,
    Window,
)

SECOND = 1_000_000


def sizes(tick: int) -> st.SearchStrategy[Tumbling]:
    """Draw a tumbling window of a few ticks."""
    return st.builds(
        lambda size, offset: Tumbling(size * tick, offset % size * tick),
        st.sampled_from([1, 2, 5, 7]),
        st.integers(0, 10),
    )


def hops(tick: int) -> st.SearchStrategy[Hopping]:
    """Draw a hopping window of a few ticks; its size may be less than the slide, and need not be a multiple of it."""
    return st.builds(
        lambda size, slide, offset: Hopping(size * tick, slide * tick, offset % slide * tick),
        st.sampled_from([1, 3, 5, 6, 9]),
        st.integers(1, 6),
        st.integers(0, 4),
    )


def cumulates(tick: int) -> st.SearchStrategy[Cumulate]:
    """Draw a cumulate window of a few ticks."""
    return st.builds(
        lambda step, steps, offset: Cumulate(step * steps * tick, step * tick, offset % (step * steps) * tick),
        st.integers(1, 3),
        st.integers(1, 6),
        st.integers(0, 10),
    )


def odd(pane: PaneSoFar) -> bool:
    """Say so at each record that looks in some way."""
    return (pane.records + pane.panes + pane.event_time // SECOND) % 3 == 0 and pane.since > 0


COUNTS: st.SearchStrategy[Trigger] = st.integers(1, 4).map(Records) | st.just(When(odd))


def triggers(leaves: st.SearchStrategy[Trigger]) -> st.SearchStrategy[Trigger]:
    """Draw a trigger made of such parts."""

    def composed(parts: st.SearchStrategy[Trigger]) -> st.SearchStrategy[Trigger]:
        several = st.lists(parts, min_size=2, max_size=3).map(tuple)
        return several.map(AnyOf) | several.map(AllOf) | st.builds(Repeat, parts, st.integers(1, 3))

    return leaves | st.recursive(leaves, composed, max_leaves=4)


def event_times(tick: int) -> st.SearchStrategy[Trigger]:
    """Draw panes by event time, which do not depend on where a key's records are."""
    return st.integers(1, 8).map(lambda halves: EveryEventTime(halves * max(tick // 2, 1)))


def lates(window: Window) -> st.SearchStrategy[Late]:
    """Draw when late records revise a window."""
    match window:
        case Global():
            return st.just("each")
        case Session():
            return st.sampled_from(["each", "each", "batch"])
        case _:
            words: st.SearchStrategy[Late] = st.sampled_from(["each", "each", "batch"])
            return words | st.integers(1, 4).map(Records)


@st.composite
def emits(draw: st.DrawFn, window: Window, tick: int, *, one: bool, ticking: bool) -> Emit:
    """Draw what is written when; `one` says that every key lives in one partition, `ticking` that there are ticks."""
    timed: st.SearchStrategy[Trigger] = st.integers(1, 4).map(lambda seconds: Every(seconds * SECOND))
    modes: list[Mode] = ["retract", "retract", "accumulate", "discard"]
    match window:
        case Global():
            # what the on-time pane is depends on the early ones, so they must not depend on the steps
            early: Trigger | None = draw(event_times(tick) | (triggers(COUNTS) if one else st.just(Records(1))))
            mode: Mode = draw(st.sampled_from(modes if one else ["retract", "accumulate"]))
        case Session():
            early = draw(st.none() | timed) if ticking else None
            mode = draw(st.sampled_from(["retract", "retract", "accumulate"]))
        case _:
            mode = draw(st.sampled_from(modes))
            leaves = COUNTS | timed if ticking and mode != "discard" else COUNTS
            counted = triggers(leaves) if one or mode != "discard" else st.none()
            early = draw(st.none() | counted | event_times(tick))
    return Emit(
        lateness=0 if isinstance(window, Global) else draw(st.sampled_from([0, 1, 3, 10, 30, 60])) * tick,
        late=draw(lates(window)),
        mode=mode,
        at_end=draw(st.sampled_from(["fire", "fire", "hold"])) if not ticking else "fire",
        early=early,
    )
