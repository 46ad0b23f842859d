"""Recognizes files that are not text by their first bytes, before their lines would become dead letters."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Final

HEAD: Final = 512
"""Number of bytes by which the kind of a file is recognized."""
PREFIX: Final = 16
"""Number of bytes by which the kind of a file that grows is recognized."""
_DECOMPRESS: Final = "windrow reads only text and gzip (*.gz): decompress it"
_LEAVE_OUT: Final = "move it elsewhere, or choose a pattern that does not match it"
_TO_UTF_8: Final = "convert it to UTF-8, such as with iconv"
_MAGIC: Final = (
    (b"BZh", 4, b"1AY&SY", "compressed with bzip2", _DECOMPRESS),
    (b"\xfd7zXZ\0", 0, b"", "compressed with xz", _DECOMPRESS),
    (b"\x28\xb5\x2f\xfd", 0, b"", "compressed with Zstandard", _DECOMPRESS),
    (b"", 1, b"\x2a\x4d\x18", "compressed with Zstandard", _DECOMPRESS),
    (b"\x04\x22\x4d\x18", 0, b"", "compressed with LZ4", _DECOMPRESS),
    (b"\xff\x06\0\0sNaPpY", 0, b"", "compressed with Snappy", _DECOMPRESS),
    (b"\x1f\x9d\x90", 0, b"", "compressed with compress", _DECOMPRESS),
    (b"\x1f\x8b\x08", 0, b"", "compressed with gzip", "its name must end in .gz"),
    (b"PK\x03\x04", 0, b"", "a ZIP archive", "unpack it"),
    (b"PK\x05\x06", 0, b"", "an empty ZIP archive", _LEAVE_OUT),
    (b"7z\xbc\xaf\x27\x1c", 0, b"", "a 7z archive", "unpack it"),
    (b"Rar!\x1a\x07", 0, b"", "a RAR archive", "unpack it"),
    (b"", 257, b"ustar", "a tar archive", "unpack it"),
    (b"PAR1", 0, b"", "a Parquet file", "the source `files` reads it if its name ends in .parquet"),
    (b"ORC\x08", 0, b"", "an ORC file", "convert it to Parquet or to JSON lines"),
    (b"Obj\x01", 0, b"", "an Avro file", "convert it to Parquet or to JSON lines"),
    (b"ARROW1\0\0", 0, b"", "an Arrow file", "convert it to Parquet or to JSON lines"),
    (b"FEA1", 0, b"", "a Feather file", "convert it to Parquet or to JSON lines"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", 0, b"", "an old Microsoft Office file", "export it as CSV"),
    (b"SQLite format 3\0", 0, b"", "an SQLite database", _LEAVE_OUT),
    (b"", 8, b"DUCK", "a DuckDB database", _LEAVE_OUT),
    (b"\x89HDF\r\n\x1a\n", 0, b"", "an HDF5 file", _LEAVE_OUT),
    (b"\x89PNG\r\n\x1a\n", 0, b"", "a PNG image", _LEAVE_OUT),
    (b"\xff\xd8\xff", 0, b"", "a JPEG image", _LEAVE_OUT),
    (b"GIF87a", 0, b"", "a GIF image", _LEAVE_OUT),
    (b"GIF89a", 0, b"", "a GIF image", _LEAVE_OUT),
    (b"%PDF-", 0, b"", "a PDF document", _LEAVE_OUT),
    (b"\x7fELF", 0, b"", "a program", _LEAVE_OUT),
    (b"\xff\xfe\0\0", 0, b"", "UTF-32 text", _TO_UTF_8),
    (b"\0\0\xfe\xff", 0, b"", "UTF-32 text", _TO_UTF_8),
)
"""For each kind: the first bytes, other bytes at a position, what the file is, and what to do."""
_UTF_16: Final = 8
"""Number of bytes that are alternately NUL in UTF-16 text without a byte order mark, which begins with ASCII."""
_CONTROLS: Final = bytes({*range(32), 127} - set(b"\b\t\n\v\f\r\x1b"))
_FEWEST_CONTROLS: Final = 16
_SHARE_OF_CONTROLS: Final = 0.05


def refusal(path: Path, head: bytes) -> str | None:
    """Return the error message for a file that begins with these bytes, or None if it may be text.

    A text with some bad bytes may be text: the lines that have them become dead letters.
    """
    for first, at, then, what, remedy in _MAGIC:
        if head.startswith(first) and head[at : at + len(then)] == then:
            return _message(path, what, remedy)
    if _is_utf_16(head):
        return _message(path, "UTF-16 text", _TO_UTF_8)
    return _message(path, "binary data", _LEAVE_OUT) if _is_binary(head) else None


def refusal_of(path: Path) -> str | None:
    """Return the error message for an existing file, also for what a file compressed with gzip contains.

    Return None for a file that cannot be read.
    """
    try:
        with gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb") as file:
            return refusal(path, file.read(HEAD))
    except (OSError, EOFError, zlib.error):
        return None


def _message(path: Path, what: str, remedy: str) -> str:
    return f"{path} is {what}, not UTF-8 text: {remedy}"


def _is_utf_16(head: bytes) -> bool:
    if head[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        return b"\0" in head[2:PREFIX]
    start = head[:_UTF_16]
    return len(start) == _UTF_16 and any(not any(start[at::2]) and all(start[1 - at :: 2]) for at in range(2))


def _is_binary(head: bytes) -> bool:
    """Return True if many of the bytes are control characters that no text has, in at least half of the lines.

    The prefix of a file that grows does not tell: its first record may be bad.
    """
    lines = [len(line) - len(line.translate(None, _CONTROLS)) for line in head.split(b"\n") if line]
    is_many = sum(lines) >= max(_FEWEST_CONTROLS, _SHARE_OF_CONTROLS * len(head))
    return len(head) > PREFIX and is_many and 2 * sum(map(bool, lines)) >= len(lines)
