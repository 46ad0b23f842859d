"""Where a checkpoint's source stands, as Spark has noted it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.hosts.spend import spend

from windrow.hosts.stream.checkpoint import Checkpoint
from windrow.hosts.stream.standing import Standing
from windrow.model import LogSource, SqliteSink


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """A checkpoint whose first two steps are done, and whose third was planned and got as far as the state."""
    made = Checkpoint.new(tmp_path, spend(LogSource("spend"), SqliteSink("spend.db", "spend")), [0])
    made.write()
    for name in (
        *(f"offsets/{batch}" for batch in range(3)),
        *(f"commits/{batch}" for batch in range(2)),
        *(f"state/0/{part}/{version}.changelog" for part in range(2) for version in range(1, 4)),
        "state/0/0/1.zip",
        "state/0/1/3.zip",
        "state/0/0/_metadata/schema",
    ):
        path = made.spark / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'v1\n{{}}\n{{"0": {{"line": {len(name)}}}}}\n')
        path.with_name(f".{path.name}.crc").write_text("")
    return made


def there(checkpoint: Checkpoint) -> set[str]:
    """The files of the checkpoint, without those that say what is in others."""
    files = {path for path in checkpoint.spark.rglob("*") if path.is_file()}
    notes = {path for path in files if path.suffix == ".crc"}
    whole = {path.relative_to(checkpoint.spark).as_posix() for path in files - notes}
    assert all(path.with_name(path.name[1 : -len(".crc")]) in files for path in notes)
    return whole


def test_a_step_that_is_taken_with_other_records_leaves_nothing_of_the_one_before(checkpoint: Checkpoint) -> None:
    before = there(checkpoint)
    Standing(checkpoint).move({"0": {"line": 7}})
    assert before - there(checkpoint) == {
        "offsets/2",
        "state/0/0/3.changelog",
        "state/0/1/3.changelog",
        "state/0/1/3.zip",
    }
    assert there(checkpoint) <= before
    assert Standing(checkpoint).read() == {"0": {"line": 7}}
    lines = (checkpoint.spark / "offsets" / "1").read_text().splitlines()
    assert [json.loads(line) for line in lines[1:]] == [{}, {"0": {"line": 7}}]
