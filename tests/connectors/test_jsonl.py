"""What JSON lines files have that is theirs alone."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest
from tests.contracts.steps import DAY, RUN, change, step
from tests.contracts.stores import JsonlStore
from tests.short_forms import Pipeline

from windrow.engine.changelog import StepOutput
from windrow.errors import SinkError


def whole_step(model: Pipeline) -> StepOutput:
    return step(
        model,
        [change("insert", 0, "A", Decimal("1.50"), 1)],
        late=[["spend", 0, 1, DAY, DAY, DAY, 5, "expired", '{"user": "A"}']],
        dead=[["spend", 0, 2, None, "malformed", b'{"a"'], ["spend", 0, 3, None, "malformed", b"\xff"]],
        clocks=[["spend", 0, 4, DAY, None, "idle"]],
    )


def test_a_step_that_was_cut_short_is_written_again_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "whole").mkdir()
    store, whole = JsonlStore(tmp_path), JsonlStore(tmp_path / "whole")
    model = store.model()
    rename = Path.rename

    def cut_short(self: Path, target: Path) -> Path:
        if self.name.startswith("step-"):
            raise OSError(self.name)
        return rename(self, target)

    sink = store.sink(model)
    sink.open(RUN)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", cut_short)
        with pytest.raises(SinkError, match="what was committed before stays"):
            sink.commit(0, whole_step(model))
    assert store.epochs() == []
    assert store.sink(model).journal().num_rows == 0
    sink = store.sink(model)
    assert sink.open(RUN) is None
    sink.commit(0, whole_step(model))
    assert store.sink(model).journal().num_rows == 1

    other = whole.sink(whole.model())
    other.open(RUN)
    other.commit(0, whole_step(whole.model()))
    for name in ("step", "late", "dead", "clocks"):
        files = [one.path / "spend" / f"{name}-000000000000.jsonl" for one in (store, whole)]
        assert files[0].read_bytes() == files[1].read_bytes()


def test_bytes_are_text_or_base64(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    sink = store.sink(store.model())
    sink.open(RUN)
    sink.commit(0, whole_step(store.model()))
    lines = (store.path / "spend" / "dead-000000000000.jsonl").read_text().splitlines()
    assert [(row["raw"], row["raw_base64"]) for row in map(json.loads, lines)] == [('{"a"', None), (None, "/w==")]
