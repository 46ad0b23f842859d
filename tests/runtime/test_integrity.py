"""Notes of Spark's that are damaged are refused with their names, before anything is read."""

from __future__ import annotations

import shutil
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.errors import CheckpointError
from windrow.runtime.stream.integrity import is_whole, refuse_damaged, refuse_damaged_tables, write_checksum

READ = ["metadata", "offsets/7", "offsets/8", "commits/7", "state/0/1/5.zip", "state/0/1/6.changelog"]
UNREAD = ["offsets/6", "commits/6", "state/0/1/4.zip", "state/0/1/5.changelog", "state/0/1/9.changelog"]
CONTENT = bytes(range(256)) * 5


def write(spark: Path) -> None:
    """A checkpoint of which step 7 is done and step 8 is planned; the state's version after step 7 is 8."""
    for name in (*READ, *UNREAD, "state/0/1/7.changelog", "state/0/1/8.changelog"):
        path = spark / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(CONTENT)
        sums = (zlib.crc32(CONTENT[begin : begin + 512]).to_bytes(4, "big") for begin in range(0, len(CONTENT), 512))
        path.with_name(f".{path.name}.crc").write_bytes(b"crc\0\0\0\x02\0" + b"".join(sums))


@given(
    name=st.sampled_from(READ),
    place=st.integers(0, len(CONTENT) - 1),
    kind=st.sampled_from(["cut off", "one bit turned"]),
    bit=st.integers(0, 7),
)
def test_what_is_cut_off_or_turned_is_refused(
    name: str, place: int, kind: str, bit: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    spark = tmp_path_factory.mktemp("spark")
    write(spark)
    refuse_damaged(spark)
    damaged = bytearray(CONTENT)
    damaged[place] ^= 1 << bit
    (spark / name).write_bytes(CONTENT[:place] if kind == "cut off" else damaged)
    with pytest.raises(CheckpointError, match=f"{name} is damaged.*restore the checkpoint.*--fresh"):
        refuse_damaged(spark)


@pytest.mark.parametrize("name", ["metadata", "offsets/7", "offsets/8", "state/0/1/8.changelog"])
def test_what_is_gone_is_refused(name: str, tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / name).unlink()
    if name == "offsets/8":  # the step was not planned, as far as anyone can tell
        refuse_damaged(tmp_path)
        return
    with pytest.raises(CheckpointError, match=f"{name} is gone; restore the checkpoint.*--fresh"):
        refuse_damaged(tmp_path)


@pytest.mark.parametrize("name", UNREAD)
def test_what_is_not_read_does_not_matter(name: str, tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / name).write_bytes(b"")
    refuse_damaged(tmp_path)


def test_the_note_before_the_last_one_is_read_too(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "offsets" / "8").unlink()
    (tmp_path / "offsets" / "6").write_bytes(b"")
    with pytest.raises(CheckpointError, match="offsets/6 is damaged"):
        refuse_damaged(tmp_path)


def test_a_damaged_table_of_rocksdb_is_named(tmp_path: Path) -> None:
    write(tmp_path)
    whole, table = tmp_path / "state/0/1/5.zip", tmp_path / "state/0/1/SSTs/000008-a.sst"
    table.parent.mkdir()
    table.write_bytes(CONTENT)
    table.with_name(f".{table.name}.crc").write_bytes(whole.with_name(".5.zip.crc").read_bytes())
    refuse_damaged_tables(tmp_path)
    table.write_bytes(CONTENT[:700])
    with pytest.raises(CheckpointError, match=r"000008-a\.sst is damaged.*restore the checkpoint.*--fresh"):
        refuse_damaged_tables(tmp_path)


def test_a_new_checkpoint_and_one_that_was_copied_without_its_sums(tmp_path: Path) -> None:
    refuse_damaged(tmp_path / "none")
    write(tmp_path)
    for sums in tmp_path.rglob(".*.crc"):
        sums.unlink()
    refuse_damaged(tmp_path)


def with_stores(spark: Path, stores: int) -> None:
    """Let the last step that is done say how many state stores each level has."""
    note = spark / "offsets" / "7"
    note.write_text(f'v1\n{{"conf": {{"spark.sql.shuffle.partitions": "{stores}"}}}}\n{{}}', encoding="utf-8")
    write_checksum(note)
    for part in ("_metadata/v2/0", "_stateSchema/default/0_a"):
        path = spark / "state/0" / part
        path.parent.mkdir(parents=True)
        path.write_bytes(CONTENT)
        write_checksum(path)


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("state", "state/0/_metadata"),
        ("state/0", "state/0/_metadata"),
        ("state/0/1", "state/0/1/1.changelog"),
        ("state/0/_metadata/v2", "state/0/_metadata"),
        ("state/0/_stateSchema", "state/0/_stateSchema"),
    ],
)
def test_state_that_is_gone_as_a_whole_is_refused(name: str, gone: str, tmp_path: Path) -> None:
    """Of what is not there at all, no file names what is missing: Spark's note on the step says what is to be there."""
    write(tmp_path)
    (tmp_path / "state/0/1").rename(tmp_path / "state/0/0")
    shutil.copytree(tmp_path / "state/0/0", tmp_path / "state/0/1")
    with_stores(tmp_path, 2)
    assert refuse_damaged(tmp_path) == []
    shutil.rmtree(tmp_path / name)
    with pytest.raises(CheckpointError, match=rf"{gone}.* is gone; restore the checkpoint.*--fresh"):
        refuse_damaged(tmp_path)


def test_a_level_that_is_gone_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "state/0/1").rename(tmp_path / "state/0/0")
    with_stores(tmp_path, 1)
    assert refuse_damaged(tmp_path, 1) == []
    with pytest.raises(CheckpointError, match=r"state/1/_metadata/\* is gone"):
        refuse_damaged(tmp_path, 2)


def test_what_cannot_be_verified_is_returned(tmp_path: Path) -> None:
    """A copy without hidden files has no checksums."""
    write(tmp_path)
    assert refuse_damaged(tmp_path) == []
    (tmp_path / "state/0/1/.6.changelog.crc").unlink()
    (tmp_path / "offsets/.6.crc").unlink()
    assert refuse_damaged(tmp_path) == [tmp_path / "state/0/1/6.changelog"]
    for path in list(tmp_path.rglob(".*.crc")):
        path.unlink()
    assert len(refuse_damaged(tmp_path)) == len({*READ, "state/0/1/7.changelog", "state/0/1/8.changelog"})


@given(content=st.binary(max_size=2000))
def test_checksums_are_written_as_hadoop_does(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("file") / "7"
    path.write_bytes(content)
    write_checksum(path)
    assert is_whole(path) == bool(content)
    sums = (zlib.crc32(content[begin : begin + 512]).to_bytes(4, "big") for begin in range(0, len(content), 512))
    assert path.with_name(".7.crc").read_bytes() == b"crc\0\0\0\x02\0" + b"".join(sums)
