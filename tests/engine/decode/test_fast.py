"""The fast path agrees with the exact path wherever it accepts a record, and accepts what is ordinary."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windrow.engine import schema
from windrow.engine.decode.exact import ExactDecoder, decode_exactly
from windrow.engine.decode.fast import FastDecoder
from windrow.model import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    Delay,
    DoubleType,
    EventTime,
    Field,
    LongType,
    Punctuated,
    StringType,
    StructType,
    TimestampType,
)

MILLIS = TimestampType("millis")
T0 = 1_767_225_600_000
HOUR = 3_600_000_000


def exact_decoder(
    *, mark: str | None = None, log: bool = False, sent: str | None = None, **fields: DataType
) -> ExactDecoder:
    return ExactDecoder(
        fields=tuple(Field(name, type_) for name, type_ in fields.items()),
        time=EventTime("t", Delay(0), future=HOUR, sent=sent),
        key=("k",),
        mark=Field(mark, fields["t"]) if mark else None,
        log_time_inside=log,
    )


SHAPES = {
    "main": exact_decoder(k=StringType(), t=MILLIS, x=DecimalType(12, 2)),
    "log": exact_decoder(k=StringType(), t=MILLIS, x=DecimalType(12, 2), log=True),
    "marks": exact_decoder(k=LongType(), t=TimestampType("micros"), x=LongType(), mark="w"),
    "declared mark": exact_decoder(k=StringType(), t=TimestampType("seconds"), w=TimestampType("seconds"), mark="w"),
    "iso": exact_decoder(k=BooleanType(), t=TimestampType("iso"), x=DoubleType(), mark="w"),
    "skew": exact_decoder(k=StringType(), t=MILLIS, s=TimestampType("micros"), sent="s"),
    "skewed log": exact_decoder(
        k=StringType(), t=TimestampType("iso"), s=TimestampType("iso"), sent="s", mark="s", log=True
    ),
    "wide": exact_decoder(k=DecimalType(2, 2), t=MILLIS, x=DecimalType(38, 10), w=DecimalType(20, 20)),
    "optional": ExactDecoder(
        fields=(
            Field("k", StringType()),
            Field("t", MILLIS),
            Field("s", StringType(), optional=True),
            Field("b", BooleanType(), optional=True),
            Field("l", LongType(), optional=True),
            Field("d", DoubleType(), optional=True),
            Field("x", DecimalType(12, 2), optional=True),
            Field("i", TimestampType("iso"), optional=True),
            Field("m", TimestampType("micros"), optional=True),
        ),
        time=EventTime("t", Delay(0), future=HOUR),
        key=("k",),
        mark=None,
        log_time_inside=True,
    ),
    "aliases": ExactDecoder(
        fields=(
            Field("k", StringType(), alias=("key", "user id")),
            Field("t", MILLIS, alias=("time",)),
            Field("x", DecimalType(12, 2), optional=True, alias=("amt", "value")),
            Field("l", LongType(), alias=("n",)),
            Field("w", MILLIS, alias=("mark",)),
        ),
        time=EventTime("t", Punctuated("w"), future=HOUR),
        key=("k",),
        mark=Field("w", MILLIS, alias=("mark",)),
        log_time_inside=False,
    ),
    "tombstones": ExactDecoder(
        fields=(
            Field("k", StringType(), tombstones=True),
            Field("t", MILLIS),
            Field("s", MILLIS),
            Field("x", DecimalType(12, 2), optional=True),
        ),
        time=EventTime("t", Delay(0), future=HOUR, sent="s"),
        key=("k",),
        mark=None,
        log_time_inside=False,
        tombstones=(Field("k", StringType(), tombstones=True),),
    ),
    "tombstones in a log": ExactDecoder(
        fields=(Field("k", LongType(), tombstones=True), Field("t", MILLIS), Field("x", StringType(), optional=True)),
        time=EventTime("t", Delay(0), future=HOUR),
        key=("k",),
        mark=Field("w", MILLIS),
        log_time_inside=True,
        tombstones=(Field("k", LongType(), tombstones=True),),
    ),
    "nested": ExactDecoder(
        fields=(
            Field("k", StringType(), path=("c", "id")),
            Field("t", MILLIS),
            Field("v", LongType(), optional=True, path=("c", "d", "v"), alias=("x",)),
            Field("s", ArrayType(StringType())),
            Field("n", ArrayType(LongType(), optional=True), optional=True),
            Field("m", ArrayType(DecimalType(12, 2)), optional=True, alias=("o",)),
            Field("i", ArrayType(TimestampType("iso")), optional=True, path=("c", "i")),
            Field("r", ArrayType(StructType((Field("q", LongType()), Field("p", DecimalType(12, 2), optional=True))))),
            Field(
                "y",
                ArrayType(
                    StructType((Field("b", BooleanType()), Field("z", ArrayType(StringType()), optional=True))),
                    optional=True,
                ),
                optional=True,
            ),
        ),
        time=EventTime("t", Delay(0), future=HOUR),
        key=("k",),
        mark=None,
        log_time_inside=False,
    ),
    "odd names": ExactDecoder(
        fields=(Field('"q\\/', StringType()), Field("\u00e4.$ (", MILLIS), Field(" ", DoubleType())),
        time=EventTime("\u00e4.$ (", Delay(0)),
        key=('"q\\/',),
        mark=None,
        log_time_inside=False,
    ),
}
FAST = {name: FastDecoder(exact) for name, exact in SHAPES.items()}


def batch(
    values: list[bytes | None], log_times: list[int | None] | None = None, keys: list[bytes | None] | None = None
) -> pa.RecordBatch:
    count = len(values)
    return pa.record_batch(
        [
            pa.array([0] * count, pa.int32()),
            pa.array(range(count), pa.int64()),
            pa.array(log_times or [None] * count, pa.int64()).cast(schema.MICROS),
            pa.array(keys or [None] * count, pa.binary()),
            pa.array(values, pa.binary()),
        ],
        schema=schema.RAW,
    )


def assert_agrees(shape: str, raw: pa.RecordBatch) -> int:
    """Return how many records the fast path accepted."""
    fast = FAST[shape].decode(raw)
    exact, _, _ = decode_exactly(SHAPES[shape], raw, fast.rows)
    assert exact.rows.tolist() == fast.rows.tolist()
    assert exact.times == fast.times
    assert exact.marks == fast.marks
    for exact_column, fast_column in zip(exact.columns, fast.columns, strict=True):
        assert fast_column.type == exact_column.type
        assert fast_column == exact_column
        if pa.types.is_floating(fast_column.type):  # to the last bit
            bits = [column.fill_null(0.0).to_numpy().tobytes() for column in (fast_column, exact_column)]
            assert bits[0] == bits[1]
    return len(fast.rows)


space = st.sampled_from(["", "", "", "", " ", "\n\t", "\r", "\x0c", "\u00a0"])
digits = st.text("0123456789", min_size=1, max_size=22)
NUMBERS = Path(__file__).with_name("numbers.txt").read_text().splitlines()
ISOS = Path(__file__).with_name("isos.txt").read_text().splitlines()
STRINGS = Path(__file__).with_name("strings.txt").read_text().splitlines()
numbers = st.one_of(
    st.sampled_from(NUMBERS),
    st.integers(-(10**6), 10**6).map(str),
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(-(10**10), 10**10, places=2).map(str),
    st.tuples(st.sampled_from(["", "-"]), digits, digits).map(lambda p: f"{p[0]}{p[1]}.{p[2]}"),
)
isos = st.one_of(
    st.datetimes().map(lambda t: t.isoformat() + "Z"),
    st.sampled_from(ISOS),
)
strings = st.one_of(
    st.text(max_size=8).map(json.dumps),
    st.text(max_size=8).map(lambda text: json.dumps(text, ensure_ascii=False)),
    numbers.map(json.dumps),
    isos.map(json.dumps),
    st.sampled_from([*STRINGS, '"\x01"', '"\x00"', '"1_000"']),
)
literals = st.sampled_from(["true", "false", "null", "NaN", "nan", "-Infinity", "inf", "True", "nul", "undefined", ""])
nested = st.sampled_from(
    ["{}", "[]", "[1,]", '{"k":1}', '{"x":"bad","t":null}', '{"w":5,}', "[nan]", "[[[[[[]]]]]]", "[" * 300 + "]" * 300]
)
ordinary = st.sampled_from([str(T0), '"u1"', "12.34", "1", "0", "-7.5", '"12.5"', '"2026-01-01T10:00:00Z"', "true"])
nothing = st.one_of(st.just("null"), ordinary)
values = st.one_of(ordinary, ordinary, numbers, strings, literals, nested)
names = {
    shape: [*(path[0] for field in exact.fields for path in field.paths), "w", "_log_time", "K", "_key", "_value"]
    for shape, exact in SHAPES.items()
}


def right_value(type_: DataType) -> st.SearchStrategy[str]:
    """Return values that the type often holds."""
    match type_:
        case ArrayType():
            return st.lists(right_element(type_), max_size=4).flatmap(lambda items: written("[]", items))
        case StringType():
            return strings
        case BooleanType():
            return st.sampled_from(["true", "false"])
        case TimestampType(unit="iso"):
            return isos.map(json.dumps)
        case TimestampType():
            return st.integers(T0 - 10**9, T0 + 10**9).map(str)
        case _:
            return numbers


def right_element(of: ArrayType) -> st.SearchStrategy[str]:
    """Return elements that an array often holds."""
    if isinstance(of.element, StructType):
        members = [right_member(one) for one in of.element.fields]
        right: st.SearchStrategy[str] = st.tuples(*members).flatmap(lambda items: written("{}", items))
        right = st.one_of(right, right, st.lists(st.one_of(*members), max_size=3).flatmap(lambda it: written("{}", it)))
    else:
        right = right_value(of.element)
    return st.one_of(right, right, right, right, values)


def right_member(field: Field) -> st.SearchStrategy[str]:
    """Return members of an object that a field often has."""
    right = right_value(field.type)
    pairs = st.tuples(keys(field.name), st.one_of(right, right, right, values))
    return pairs.map(lambda pair: f"{pair[0]}:{pair[1]}")


def written(brackets: str, items: Sequence[str]) -> st.SearchStrategy[str]:
    """Return items in brackets, with space between."""
    return st.lists(space, min_size=2, max_size=2).map(
        lambda gaps: f"{brackets[0]}{gaps[0]}{f'{gaps[1]},{gaps[0]}'.join(items)}{gaps[1]}{brackets[1]}"
    )


@st.composite
def keys(draw: st.DrawFn, name: str) -> str:
    """Return the name as JSON, now and then with an escape in it."""
    text = json.dumps(name, ensure_ascii=draw(st.booleans()))
    if name and draw(st.integers(0, 9)) == 0:
        text = text.replace(name[0], f"\\u{ord(name[0]):04x}", 1)
    return text


@st.composite
def records(draw: st.DrawFn, shape: str) -> str:
    """Return an object with the shape's fields, right or wrong, and some others."""
    members: list[tuple[str, str]] = []
    inner: dict[tuple[str, ...], list[str]] = {("c",): []} if shape == "nested" else {}
    fields = SHAPES[shape].fields
    for field in fields:
        if draw(st.integers(0, 19)):
            value = right_value(field.type) if draw(st.integers(0, 5)) else values
            path, text = draw(st.sampled_from(field.paths)), draw(st.one_of(value, value, nothing))
            above, name = path[:-1], path[-1]
            if above:
                inner.setdefault(above, []).append(f"{draw(keys(name))}:{text}")
                continue
            members.append((draw(keys(name)), text))
            if draw(st.booleans()) and field.alias:  # under a second name the same, or another value
                other = draw(st.one_of(st.just(members[-1][1]), value))
                members.append((draw(st.sampled_from(field.alias).flatmap(keys)), other))
    for above in sorted(inner, key=len, reverse=True):
        further, name = above[:-1], above[-1]
        text = draw(written("{}", inner[above]) if draw(st.integers(0, 9)) else values)
        if further:
            inner.setdefault(further, []).append(f"{draw(keys(name))}:{text}")
        else:
            members.append((draw(keys(name)), text))
    others = draw(st.lists(st.sampled_from(names[shape]), max_size=2))
    members = draw(st.permutations([*members, *((draw(keys(name)), draw(values)) for name in others)]))
    gaps = [draw(space) for _ in range(4)]
    body = f",{gaps[0]}".join(f"{key}{gaps[1]}:{gaps[2]}{value}" for key, value in members)
    return f"{gaps[3]}{{{body}{gaps[2]}}}{gaps[0]}"


@st.composite
def mutated(draw: st.DrawFn, shape: str) -> bytes:
    """Return a record's bytes with one cut, insertion or replacement in it."""
    data = bytearray(draw(records(shape)).encode("utf-8", "surrogatepass"))
    at = draw(st.integers(0, len(data) - 1))
    match draw(st.integers(0, 3)):
        case 0:
            del data[at:]
        case 1:
            data[at] = draw(st.integers(0, 255))
        case 2:
            data[at:at] = draw(st.sampled_from([b",", b"}", b'"', b"\\", b"0", b".", b"e5", b"\xef\xbb\xbf", b"\x00"]))
        case _:
            del data[at]
    return bytes(data)


def lines(shape: str) -> st.SearchStrategy[bytes | None]:
    plain = records(shape).map(lambda text: text.encode("utf-8", "surrogatepass"))
    return st.one_of(plain, plain, plain, mutated(shape), st.binary(max_size=20), st.none())


log_times = st.one_of(st.none(), st.sampled_from([0, T0 * 1000, -(2**63) + 1, 2**63 - 1]))


log_keys = st.one_of(
    st.none(),
    st.sampled_from([b"", b"EUR", b"7", b"-0", b"\x00", b"\xff", b"9" * 18, b"9" * 19]),
    numbers.map(str.encode),
)


def agrees(shape: str, examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(st.lists(st.tuples(lines(shape), log_times, log_keys), min_size=1, max_size=40))
    def holds(rows: list[tuple[bytes | None, int | None, bytes | None]]) -> None:
        assert_agrees(shape, batch(*map(list, zip(*rows, strict=True))))

    holds()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_fast_path_agrees_with_the_exact_path(shape: str) -> None:
    agrees(shape, 40)


@pytest.mark.long
@pytest.mark.parametrize("shape", SHAPES)
def test_the_fast_path_agrees_with_the_exact_path_at_length(shape: str) -> None:
    agrees(shape, 1000)


ORDINARY = {
    "main": [
        '{"k":"u1","t":1767225600000,"x":12.34}',
        '{ "x" : -5, "t" : "1767225600000", "k" : "", "o": [null, true] }',
        '{"k":"Paris, India; Nancy, infinite","t":0,"x":"0.5","note":"\\u00e4\\n","big":12345678901234567890}',
    ],
    "log": ['{"k":"u1","t":1767225600000,"x":12.34,"_log_time":1767225600000}', '{"k":"u1","t":0,"x":9999999999.99}'],
    "marks": ['{"k":1,"t":1767225600000000,"x":9223372036854775807}', '{"k":-1,"t":1,"x":-5,"w":7}'],
    "declared mark": ['{"k":"u","t":1767225600}', '{"k":"u","t":1767225600,"w":null}', '{"k":"u","t":1,"w":2}'],
    "iso": [
        '{"k":true,"t":"2026-01-01T10:00:00Z","x":1e3}',
        '{"k":false,"t":"2026-01-01 10:00:00.25+00:00","x":"0.1"}',
    ],
    # without a log time of the batch's own there is none
    "skew": [],
    "skewed log": ['{"k":"u","t":"2026-01-01T10:00:00Z","s":"2026-01-01T10:00:01Z","_log_time":1767261601000}'],
    "wide": ['{"k":0.25,"t":1,"x":123456789.123456,"w":0.5}'],
    "optional": [
        '{"k":"u","t":1}',
        '{"k":"u","t":1,"s":null,"b":null,"l":null,"d":null,"x":null,"i":null,"m":null}',
        '{"k":"u","t":1,"s":"","b":true,"l":-7,"d":0.5,"x":"1.25","i":"2026-01-01T10:00:00Z","m":5}',
    ],
    "aliases": [
        '{"key":"u","time":1,"amt":2.5,"n":3}',
        '{"user id":"u","t":1,"value":null,"x":2.5,"l":3,"mark":7}',
        '{"k":"u","t":1,"l":3,"w":null}',
    ],
    "tombstones": [],
    "tombstones in a log": ['{"k":1,"t":1767225600000,"x":"a"}', '{"k":1,"t":1,"_key":"5","_value":7}'],
    "nested": [
        '{"c":{"id":"u"},"t":1,"s":[],"r":[]}',
        '{"t":1,"c":{"d":{"v":5},"id":"u"},"s":["a","b, c"," [x]"],"r":[{"q":1,"p":2.5},{"q":"2"},{"p":null,"q":-3}]}',
        '{"c":{"id":"u","d":null,"i":["2026-01-01T10:00:00Z"]},"t":1,"s":["\\u00e4"],"r":[{"q":1}],"n":[1,null,-7]}',
        '{"c":{"id":"u"},"t":1,"s":[],"r":[],"m":[1.25,"0.5"],"y":[{"b":true,"z":["a"]},{"z":null,"b":false}]}',
        '{"c":{"id":"u","i":null},"t":1,"s":[],"r":[],"n":null,"o":[3]}',
    ],
    "odd names": [],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_ordinary_records_take_the_fast_path(shape: str) -> None:
    texts = ORDINARY[shape]
    assert assert_agrees(shape, batch([text.encode() for text in texts])) == len(texts)


def test_bytes_that_are_not_utf8_leave_the_others_alone() -> None:
    good, bad = b'{"k":"\xc3\xa4","t":1,"x":1}', b'{"k":"\xe4","t":1,"x":1}'
    values: list[bytes | None] = [bad if i in {0, 17, 18, 99} else None if i == 50 else good for i in range(100)]
    assert assert_agrees("main", batch(values)) == 95


def test_an_array_is_no_struct_without_members() -> None:
    struct = StructType((Field("a", LongType(), optional=True),))
    exact = ExactDecoder(
        (Field("t", MILLIS), Field("r", ArrayType(struct))), EventTime("t", Delay(0)), (), None, log_time_inside=False
    )
    texts = (b"[]", b"[{}]", b'[{"a": 1}]', b"[[]]", b'[{"a": 1}, []]')
    values: list[bytes | None] = [b'{"t": 1, "r": %s}' % text for text in texts]
    assert FastDecoder(exact).decode(batch(values)).rows.tolist() == [0, 2]


def test_deep_nesting_is_found_behind_brackets_in_text() -> None:
    deep = b'{"k":"u","t":1,"x":1,"o":' + b"[" * 256 + b"]" * 256 + b"}"
    level = b'{"k":"u","t":1,"x":1,"o":' + b"[" * 255 + b"]" * 255 + b"}"
    text = b'{"k":"' + b"[" * 300 + b'","t":1,"x":1}'
    long = b'{"k":"' + b"u" * 3000 + b'","t":1,"x":1}'
    raw = batch([deep, level, text, long])
    assert_agrees("main", raw)
    good, _, dead = decode_exactly(SHAPES["main"], raw, np.arange(4))
    assert (good.rows.tolist(), dead.rows.tolist()) == ([1, 2, 3], [0])


def test_names_that_differ_in_case_only_are_left_to_the_exact_path() -> None:
    assert not FastDecoder.reads(exact_decoder(k=StringType(), t=MILLIS, K=LongType()))
    assert not FastDecoder.reads(exact_decoder(k=StringType(), t=MILLIS, _log_time=LongType(), log=True))
    assert FastDecoder.reads(exact_decoder(k=StringType(), t=MILLIS, _log_time=LongType()))
