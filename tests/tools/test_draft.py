"""What `windrow init --from` makes of records."""

from __future__ import annotations

import gzip
import json
import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.examples import examples
from tests.graphs import graph_of
from tests.short_forms import Pipeline

from windrow.errors import InputError
from windrow.model import Delay
from windrow.tools.scaffold.pipeline import Scaffold, scaffold_pipeline
from windrow.tools.scaffold.sample import read_sample

T0 = 1_767_225_600
"""2026-01-01 in seconds."""


def drafted(folder: Path, records: Sequence[Mapping[str, Any] | str]) -> Scaffold:
    file = folder / "sample.jsonl"
    lines = [one if isinstance(one, str) else json.dumps(one) for one in records]
    file.write_text("".join(f"{line}\n" for line in lines))
    return scaffold_pipeline(read_sample(str(file), 100_000), "{log: {path: data/sample}}")


def types(draft: Scaffold) -> dict[str, str]:
    return {field.name: field.type_text for field in draft.pipeline.sources[0].decode.fields}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, -5, 2**62], "long"),
        ([1, 2**63], "decimal(21,0)"),
        ([1, 2.5, 100.25], "decimal(12,2)"),
        ([1.123456789, 2], "double"),
        (["1.25e-1", 2], "double"),
        ([5, "6"], "long"),
        (["12.50", "3.25"], "decimal(12,2)"),
        (["12.50", "3.10"], "decimal(12,2)"),
        (["20.00", "5.00"], "decimal(12,2)"),
        ([5.0, 6.0], "long"),
        (["00042", "17"], "string"),
        (["v1.2", "3.4"], "string"),
        ([True, False], "boolean"),
        (["2026-01-01T10:00:00Z", "2026-01-01 10:00:00.5+01:00"], "timestamp"),
        (["2026-01-01", "2026-01-02"], "string"),
        ([T0, T0 + 5], "timestamp_seconds"),
        ([T0 * 1_000, T0 * 1_000 + 5], "timestamp_millis"),
        ([T0 * 1_000_000], "timestamp_micros"),
        ([1, None], "long?"),
    ],
)
def test_a_type_by_its_values(tmp_path: Path, values: list[Any], expected: str) -> None:
    # the name says that numbers can be times; json.dumps writes no exponent where it need not
    texts = [value if value == "1.25e-1" else json.dumps(value) for value in values]
    records = [f'{{"t": {T0}, "at": {text}}}' for text in texts]
    draft = drafted(tmp_path, records)
    assert types(draft)["at"] == expected
    assert draft.dead == {}


def test_a_file_can_be_compressed(tmp_path: Path) -> None:
    file = tmp_path / "orders.jsonl.gz"
    packed = gzip.compress(b'{"t": "2026-01-01T10:00:00Z"}\n')
    file.write_bytes(packed)
    sample = read_sample(str(file), 10)
    assert (sample.name, sample.lines) == ("orders", b'{"t": "2026-01-01T10:00:00Z"}\n')
    for wrong in (b"{}", packed[:-9]):
        file.write_bytes(wrong)
        with pytest.raises(InputError, match=r"the sample .*orders.jsonl.gz cannot be read: "):
            read_sample(str(file), 10)


def test_a_byte_order_mark_is_no_part_of_the_first_record(tmp_path: Path) -> None:
    file = tmp_path / "orders.jsonl"
    file.write_text('{"t": "2026-01-01T10:00:00Z"}\n', encoding="utf-8-sig")
    assert read_sample(str(file), 10).lines == b'{"t": "2026-01-01T10:00:00Z"}\n'


def test_whole_numbers_are_times_by_their_name_or_if_they_are_near_each_other(tmp_path: Path) -> None:
    numbers = random.Random(1)
    rows = [
        {
            "phone": numbers.randrange(1_000_000_000, 2_000_000_000),
            "card": numbers.randrange(1_000_000_000_000_000, 2_800_000_000_000_000),
            "t": T0 + n,
            "seen": (T0 + n) * 1_000_000,
        }
        for n in range(50)
    ]
    assert types(drafted(tmp_path, rows)) == {
        "phone": "long",
        "card": "long",
        "t": "timestamp_seconds",
        "seen": "timestamp_micros",
    }


def test_nested_fields_have_paths_and_what_has_no_type_is_left_out(tmp_path: Path) -> None:
    record = {
        "t": "2026-01-01T10:00:00Z",
        "user": {"id": "a", "home": {"city": "Oslo"}},
        "user_id": 5,
        "tags": ["x"],
        "lines": [{"sku": "pen", "qty": 1}, {"sku": "ink"}],
        "nothing": None,
        "__own": 1,
        "mixed": 1,
        "odd": {"in": 1},
    }
    draft = drafted(tmp_path, [record, record | {"mixed": "x", "odd": 2}])
    fields = {field.name: (field.type_text, field.path) for field in draft.pipeline.sources[0].decode.fields}
    assert fields == {
        "t": ("timestamp", ()),
        "user_id": ("string", ("user", "id")),
        "user_home_city": ("string", ("user", "home", "city")),
    }
    assert draft.dead == {}
    for said in (
        "user_id (in SQL its name is the same as that of another field, user_id",
        "tags (array<string>: needs flat_map",
        "lines (array<struct<sku string, qty long?>>: needs flat_map",
        "nothing (null in all records)",
        "__own (its name is not valid",
        "mixed (no type accepts all values: 1 number, 1 text)",
        "odd (an object in some records and a value in others)",
        "odd.in (inside a field that is an object only in some records)",
    ):
        assert f"  # left out: {said}" in draft.text


def test_event_time_and_key_by_what_speaks_for_them(tmp_path: Path) -> None:
    rows = [
        {
            "id": f"order-{n}",
            "received_at": (T0 + 60 + n) * 1000,
            "createdAt": (T0 + n) * 1000,
            "country": "NO",
            "customer": f"c{n % 7}",
            "amount": n + 0.5,
        }
        for n in range(100)
    ]
    draft = drafted(tmp_path, rows)
    assert (draft.pipeline.sources[0].time.field, graph_of(draft.pipeline, Pipeline).key) == (
        "createdAt",
        ("customer",),
    )
    assert "  field: createdAt" in draft.text
    assert "# chosen by name over received_at" in draft.text
    assert "# 7 values" in draft.text
    assert [one.name for one in graph_of(draft.pipeline, Pipeline).aggregates] == ["events", "total_amount"]


def test_the_delay_covers_the_disorder_that_was_seen(tmp_path: Path) -> None:
    def delay(behind: int, count: int, records: int) -> tuple[str, str]:
        rows = [{"t": T0 + n - (behind if n % 100 < count else 0)} for n in range(1, records)]
        draft = drafted(tmp_path, rows)
        assert isinstance(draft.pipeline.sources[0].time.watermark, Delay)
        return draft.text.partition("delay: ")[2].split()[0], draft.text.partition("lateness: ")[2].partition("}")[0]

    assert delay(40, 10, 500) == ("45s", "1h")
    # of many records the delay covers most, and the lateness the others
    assert delay(40, 10, 2_000) == ("45s", "1h")
    assert delay(20_000, 1, 2_000) == ("1s", "6h")


def test_what_is_malformed_is_said_and_does_not_change_the_types(tmp_path: Path) -> None:
    rows: list[Mapping[str, Any] | str] = [{"t": T0 + n, "user": f"u{n % 5}", "n": n} for n in range(300)]
    rows[7] = "not json"
    rows[8] = {"t": T0, "user": "u1", "n": "twelve"}
    draft = drafted(tmp_path, rows)
    assert types(draft) == {"t": "timestamp_seconds", "user": "string", "n": "long"}
    assert draft.dead == {"malformed": 1, "wrong type": 1}
    assert "# Dead letters of the sample: 1 malformed, such as: malformed: not JSON" in draft.text


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["nothing"], r"no record of .* is a JSON object \(malformed: not JSON"),
        (['[{"t": 1}]'], "begins with an array: convert it to JSON lines"),
        (['{"user": "a"}'], ".* has no field with a time in all records .* the fields are user"),
        ([], "has no records"),
    ],
)
def test_what_no_pipeline_can_be_made_for(tmp_path: Path, rows: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        drafted(tmp_path, rows)


NAMES = st.sampled_from(
    ["order", "select", "group", "Amount", "amount", "yes", "null", "a b", "a.b", "naïve", "it's", 'q"q',
     "window_start", "events", "total_n", "n", "when", "1st", "user", "end", "op", "%"]
)  # fmt: skip
VALUES: st.SearchStrategy[st.SearchStrategy[Any]] = st.sampled_from(
    [
        st.integers(-(2**63), 2**63 - 1),
        st.integers(),
        st.decimals(-1000, 1000, places=2).map(float),
        st.floats(allow_nan=False, allow_infinity=False),
        st.booleans(),
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5),
        st.lists(st.integers(0, 9), max_size=2),
        st.datetimes().map(lambda at: f"{at.replace(tzinfo=None).isoformat()}Z"),
        st.none(),
    ]
)


@st.composite
def samples(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Records of one form: fields of one kind each, some of which some records lack, some in objects."""
    forms = draw(st.dictionaries(NAMES, VALUES, max_size=6))
    inner = draw(st.dictionaries(NAMES, VALUES, max_size=3))
    optional = draw(st.sets(NAMES, max_size=2))
    rows = []
    for n in range(draw(st.integers(1, 12))):
        lacks = draw(st.booleans())
        row: dict[str, Any] = {name: draw(of) for name, of in forms.items() if not (lacks and name in optional)}
        if inner and not lacks:
            row["object"] = {name: draw(values) for name, values in inner.items()}
        rows.append({"t": (T0 + 7 * n) * 1000, **row})
    return rows


@examples(8)
@given(samples())
@example([{"t": T0 * 1000, "order": 10**26}])
@example([{"t": T0 * 1000, "order": 1, "a b": "x", 'q"q': 1.5, "yes": True, "object": {"a.b": 1, "order": 2}}])
def test_any_records_of_one_form_are_decoded(rows: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        draft = drafted(Path(folder), rows)
    assert (draft.dead, draft.records) == ({}, len(rows))
    assert max(map(len, draft.text.splitlines())) <= 120


def test_a_log_without_log_timestamps_gets_a_jump_that_fits_it(tmp_path: Path) -> None:
    wrong = {50, 900}
    rows = [
        {"user": f"u{n % 5}", "t": f"{2027 if n in wrong else 2026}-03-0{1 + n // 1440}T00:{n % 60:02}:00Z"}
        for n in range(2000)
    ]
    draft = drafted(tmp_path, rows)
    time = draft.pipeline.sources[0].time
    assert (time.jump, time.future) == (24 * 3_600_000_000, None)
    # neither the delay nor the window is that of the wrong clocks
    assert "window: {tumbling: 1h}" in draft.text
    assert isinstance(time.watermark, Delay)
    assert time.watermark.micros <= 3_600_000_000
    (tmp_path / "logged").mkdir()
    logged = drafted(tmp_path / "logged", [row | {"_log_time": 1_772_323_200_000} for row in rows if row["t"] < "2027"])
    assert logged.pipeline.sources[0].time.jump is None
    (tmp_path / "sparse").mkdir()
    sparse = [{"user": "u", "t": f"2026-{month:02}-{day:02}T00:00:00Z"} for month in range(1, 13) for day in (1, 15)]
    assert drafted(tmp_path / "sparse", sparse).pipeline.sources[0].time.jump == 30 * 24 * 3_600_000_000
