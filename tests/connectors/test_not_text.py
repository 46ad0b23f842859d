"""Files that are not text are refused by name, by whatever reads them; text with some bad bytes is not."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from windrow.connectors.file.source import FollowedFile
from windrow.connectors.not_text import HEAD, PREFIX, refusal
from windrow.connectors.open_sources import open_source
from windrow.connectors.registry import source_connector
from windrow.errors import InputError, SourceError
from windrow.model import Decode, Field, FileSource, FilesSource, LogSource, StringType
from windrow.tools.scaffold.sample import read_sample

LINE = b'{"user_id": "A", "event_time": "2026-01-01T10:00:00Z", "amount": "5.00"}\n'


def archive(name: str) -> bytes:
    written = io.BytesIO()
    if name == "zip":
        with zipfile.ZipFile(written, "w") as file:
            file.writestr("1.jsonl", LINE)
    else:
        with tarfile.open(fileobj=written, mode="w") as tar:
            member = tarfile.TarInfo("1.jsonl")
            member.size = len(LINE)
            tar.addfile(member, io.BytesIO(LINE))
    return written.getvalue()


def database(folder: Path) -> bytes:
    with closing(sqlite3.connect(folder / "database")) as db:
        db.execute("CREATE TABLE t (a)")
        db.commit()
    content = (folder / "database").read_bytes()
    (folder / "database").unlink()
    return content


def parquet() -> bytes:
    written = io.BytesIO()
    pq.write_table(pa.table({"user_id": ["A"]}), written)
    return written.getvalue()


BINARY: dict[str, Callable[[Path], bytes]] = {
    "compressed with bzip2": lambda _: bz2.compress(LINE),
    "compressed with xz": lambda _: lzma.compress(LINE),
    "compressed with Zstandard": lambda _: b"\x28\xb5\x2f\xfd\x24\x0b" + LINE,
    "compressed with LZ4": lambda _: b"\x04\x22\x4d\x18\x64\x40" + LINE,
    "compressed with gzip": lambda _: gzip.compress(LINE),
    "a ZIP archive": lambda _: archive("zip"),
    "a Parquet file": lambda _: parquet(),
    "an SQLite database": database,
    "a PNG image": lambda _: b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + LINE,
    "a PDF document": lambda _: b"%PDF-1.7\n" + LINE,
    "UTF-16 text": lambda _: LINE.decode().encode("utf-16"),
    "UTF-32 text": lambda _: LINE.decode().encode("utf-32"),
}
BARE = {
    "UTF-16 text": LINE.decode().encode("utf-16-le"),
    "UTF-16 text, the higher byte first": LINE.decode().encode("utf-16-be"),
    "a tar archive": archive("tar"),
    "binary data": Random(1).randbytes(4 * HEAD),
    "binary data of zeros": bytes(HEAD),
}
TEXT = {
    "nothing": b"",
    "lines": LINE * 9,
    "a byte order mark": b"\xef\xbb\xbf" + LINE,
    "a line with bad bytes": b'{"a": "\0\1\2\xff\xfe"}\n' + LINE,
    "only a line with bad bytes": b"\xff\xfe\0\0\1\xff\n"[2:],
    "a line of zeros": LINE + bytes(200) + b"\n" + LINE * 2,
    "Latin-1": "äöü\n".encode("latin-1") * 90,
    "escapes of a terminal": b"\x1b[1mbold\x1b[0m\n" * 30,
}


@pytest.mark.parametrize("what", BARE)
def test_bytes_that_are_not_text_are_recognized(what: str) -> None:
    message = refusal(Path("x"), BARE[what][:HEAD])
    assert message is not None
    assert message.startswith(f"x is {what.partition(',')[0].removesuffix(' of zeros')}, not UTF-8 text: ")


@pytest.mark.parametrize("what", TEXT)
def test_text_with_bad_bytes_is_text(what: str, tmp_path: Path) -> None:
    assert refusal(Path("x"), TEXT[what][:HEAD]) is None
    path = tmp_path / "1.jsonl"
    path.write_bytes(TEXT[what])
    count = len(TEXT[what].removesuffix(b"\n").split(b"\n")) if TEXT[what] else 0
    assert open_source(FilesSource((str(path),))).ends() == {0: (0, count)}


@pytest.mark.parametrize("what", BINARY)
def test_a_file_that_is_not_text_is_refused_by_all_that_read_it(what: str, tmp_path: Path) -> None:
    content = BINARY[what](tmp_path)
    says = f"is {what}, not UTF-8 text: "
    for name in ("1.jsonl", "2.jsonl.gz", "partition-0.jsonl", "t.csv"):
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        files = FilesSource((str(tmp_path / name),))
        with pytest.raises(SourceError, match=f"{name} {says}"):
            open_source(files).ends()
        with pytest.raises(SourceError, match=f"{name} {says}"):
            list(open_source(files).read_from(0, 0))
        (finding,) = source_connector(files).findings(files)
        assert f"{name} {says}" in finding.message
    log = LogSource(str(tmp_path))
    with pytest.raises(SourceError, match=f"partition-0.jsonl {says}"):
        open_source(log).ends()
    with pytest.raises(SourceError, match=f"partition-0.jsonl {says}"):
        list(open_source(log).read_all())
    table = FileSource(str(tmp_path / "t.csv"), ("user_id",), str(tmp_path / "log"))
    with pytest.raises(InputError, match=f"t.csv {says}"):
        FollowedFile(table, Decode((Field("user_id", StringType()),))).preflight()
    (finding,) = source_connector(table).findings(table)
    assert f"t.csv {says}" in finding.message
    for name in ("1.jsonl", "2.jsonl.gz"):
        with pytest.raises(InputError, match=f"{name} {says}"):
            read_sample(str(tmp_path / name), 10)


def test_a_log_is_recognized_by_bytes_that_do_not_change_while_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "partition-0.jsonl"
    path.write_bytes(bytes(2 * PREFIX) + b"\n" + bytes(HEAD) + b"\n")
    assert open_source(LogSource(str(tmp_path))).ends() == {0: (0, 2)}
