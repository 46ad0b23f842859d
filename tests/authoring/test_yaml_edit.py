"""Edits of a YAML file change the values that are meant, and nothing else."""

from __future__ import annotations

import pytest

from windrow.authoring.yaml_edit import set_values
from windrow.errors import PipelineError

FLOW = "time: {field: t, delay: 10m}  # as agreed\nemit: {lateness: 1h, late: each}\n"
BLOCK = "time:\n  field: t\n  delay: '10m'   # as agreed\n\n# how late\nemit:\n  late: each # all\n\nsink: x\n"


def test_a_value_is_replaced_in_its_place() -> None:
    edited = set_values(FLOW, "f", {"time.delay": "1m", "emit.lateness": "2h"})
    assert edited == FLOW.replace("10m", "1m").replace("1h", "2h")


def test_a_quoted_value_is_replaced_with_its_quotes() -> None:
    assert set_values(BLOCK, "f", {"time.delay": "1m"}) == BLOCK.replace("'10m'", "1m")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("emit: {late: each}\n", "emit: {late: each, lateness: 1h}\n"),
        ("emit: {late: each,}\n", "emit: {late: each, lateness: 1h,}\n"),
        (BLOCK, BLOCK.replace("each # all\n", "each # all\n  lateness: 1h\n")),
        ("a: 1 # last", "a: 1 # last\nemit: {lateness: 1h}"),
        ("a:\n  b:\n  - c\n# end\n", "a:\n  b:\n  - c\nemit: {lateness: 1h}\n# end\n"),
        ("a: 1\r\nb: [2,\r\n  3] # x\r\n", "a: 1\r\nb: [2,\r\n  3] # x\r\nemit: {lateness: 1h}\r\n"),
        ("\ufeffemit: {lateness: 2m}\n", "\ufeffemit: {lateness: 1h}\n"),
    ],
)
def test_a_missing_key_is_added_at_the_end_of_its_mapping(text: str, expected: str) -> None:
    assert set_values(text, "f", {"emit.lateness": "1h"}) == expected


def test_a_key_of_a_stream_is_found() -> None:
    text = "streams:\n  a: {emit: {lateness: 1h}}\n  b:\n    key: k\n"
    edited = set_values(text, "f", {"streams.b.emit.lateness": "5m", "streams.a.emit.lateness": "2h"})
    assert edited == "streams:\n  a: {emit: {lateness: 2h}}\n  b:\n    key: k\n    emit: {lateness: 5m}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &one 1h\nemit: {lateness: *one}\n", "f:1: emit.lateness is shared with another key by an alias"),
        ("emit:\n  lateness: [1h]\n", "f:2: emit.lateness is not a single value here"),
        ("emit: 1h\n", "f:1: emit.lateness is not a single value here"),
        ("emit: {}\n", "f:1: lateness: 1h cannot be added to this mapping"),
        ("a: &all {late: each}\nemit: *all\n", "f:1: lateness: 1h cannot be added to this mapping"),
    ],
)
def test_what_cannot_be_edited_alone_is_refused(text: str, message: str) -> None:
    with pytest.raises(PipelineError, match="by hand") as caught:
        set_values(text, "f", {"emit.lateness": "1h"})
    assert str(caught.value).startswith(message)
