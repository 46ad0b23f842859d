"""Incremental checkpoints, held to a dictionary: whatever was written, the last complete one is restored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.engine.state.store import MemoryState
from windrow.runtime.realtime import checkpoints
from windrow.runtime.realtime.checkpoints import Checkpoints, Record

BLOBS = st.dictionaries(st.tuples(st.sampled_from(["keys", "node/runs"]), st.integers(-2, 2)), st.binary(max_size=9))
STEPS = st.lists(
    st.tuples(BLOBS, st.integers(0, 60), st.booleans()),
    max_size=12,
)
"""Of each step: the state after it, how many bytes of a checkpoint it writes, and whether the run dies behind it."""


class Topic:
    """A compacted topic: the last value of each key."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}

    def write(self, records: list[Record]) -> None:
        """Append records."""
        for key, value in records:
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value


def content(state: MemoryState) -> tuple[bytes | None, dict[tuple[str, int], bytes]]:
    """Return what a state holds."""
    return state.summary(), dict(state.items())


@given(STEPS)
def test_the_last_complete_checkpoint_is_restored(steps: list[tuple[dict[tuple[str, int], bytes], int, bool]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        # a blob is in up to three parts
        patch.setattr(checkpoints, "MAX_VALUE", 4)
        topic, current = Topic(), Checkpoints()
        complete: tuple[int, object] | None = None
        begun: tuple[int, object] | None = None
        state = MemoryState()
        for position, (blobs, size, dies) in enumerate(steps):
            for id_ in [one for one, blob in state.items() if blobs.get(one) != blob]:
                state.drop(*id_)
            known = dict(state.items())
            for id_, blob in blobs.items():
                if id_ not in known:
                    state.set(*id_, blob)
            state.set_summary(str(position).encode())
            if not current.is_writing:
                current.begin(state, position, {})
                begun = position, content(state)
            topic.write(current.take(size))
            if b"manifest" in topic.values and begun is not None:
                found = Checkpoints(topic.values.items()).manifest
                complete = begun if found is not None and found.position == begun[0] else complete
            restored = Checkpoints(topic.values.items())
            assert complete == (
                None if restored.manifest is None else (restored.manifest.position, content(restored.state))
            )
            if dies:
                current, state = restored, restored.state


def test_what_was_dropped_stays_so_while_it_leaves_the_topic() -> None:
    topic, current, state = Topic(), Checkpoints(), MemoryState()
    for position, blob in enumerate([b"a", b"b", None]):
        if blob is None:
            state.drop("keys", 0)
        else:
            state.set("keys", 0, blob)
        current.begin(state, position, {})
        topic.write(current.take(1 << 20))
    current.begin(state, 3, {})
    while current.is_writing:
        topic.write(current.take(1))
        assert content(Checkpoints(topic.values.items()).state) == (None, {})


def test_what_was_dropped_leaves_the_topic() -> None:
    topic, current, state = Topic(), Checkpoints(), MemoryState()
    for bucket in range(5):
        state.set("keys", bucket, b"blob")
    for position in range(4):
        current.begin(state, position, {})
        topic.write(current.take(1 << 20))
        assert not current.is_writing
        for bucket in range(5):
            state.drop("keys", bucket)
    assert list(topic.values) == [b"manifest"]
