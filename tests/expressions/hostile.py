"""A call of every function that an expression may call, and records whose values are odd for all of them."""

import json
import re
from collections.abc import Iterator
from itertools import product

from windrow.errors import PipelineError
from windrow.expressions import analyse
from windrow.expressions.functions import PURE, Overload, table
from windrow.model import BooleanType, DecimalType, DoubleType, Field, LongType, StringType, TimestampType

FIELDS = (
    Field("s", StringType()),
    Field("n", LongType()),
    Field("x", DoubleType()),
    Field("d", DecimalType(18, 3)),
    Field("b", BooleanType()),
    Field("t", TimestampType("micros")),
)

TEXTS = (
    *(
        None,
        "",
        "a",
        "1",
        "-1",
        "é",
        "e\u0301",
        "%",
        "zz",
        "(",
        "\\",
        "\x7f\x01",
        "infinity",
        "1 day",
        "$.a[*]",
        "%c %s",
    ),
    *("2026-01-01 00:00:00", "Mars/Olympus", '{"a": [1, {"b": null}]}', "[1,2", "\U0001f600" * 300, "x" * 70_000),
    *("9" * 400, "POINT(1 2)", "UTC"),
)
NUMBERS = (None, 0, 1, -1, 2, 63, 64, 1000, 2**31, -(2**31), 2**63 - 1, -(2**63), 10**12)
DOUBLES = (None, 0.0, -0.0, 1.5, -1.0, 1e308, -1e308, 5e-324, 1e18)
DECIMALS = (None, "0", "1.5", "-999999999999999.999", "999999999999999.999")
BOOLEANS = (True, False, None)
TIMES = (0, None, -62_135_596_800_000_000, 253_402_300_799_999_999, 1_767_225_600_000_000)

_SQL = {
    "VARCHAR": "s",
    "ANY": "s",
    "K": "s",
    "BIGINT": "n",
    "T": "n",
    "V": "n",
    "DOUBLE": "x",
    "DECIMAL": "d",
    "BOOLEAN": "b",
    "TIMESTAMP WITH TIME ZONE": "t",
    "TIMESTAMP": "(t AT TIME ZONE 'UTC')",
    "INTERVAL": "to_days(CAST(n % 100000 AS INTEGER))",
    "BLOB": "if(n > 5, from_hex('FF00FE'), encode(s))",
    "JSON": "s::JSON",
    "DATE": "CAST(t AS DATE)",
    "STRUCT": "{'a': n}",
    "LAMBDA": "lambda q: q",
    "NULL": "NULL",
}


_MORE = {
    "array_prepend": ["array_prepend(s, [s])"],
    "array_to_string": ["array_to_string([s, s], ',')"],
    "constant_or_null": ["constant_or_null(1, s)"],
    "element_at": ["element_at(map([s], [n]), s)"],
    "format": ["format('{} {:d} {:.3f} {:>5}', s, n, x, s)", "format('{:x}', n)"],
    "from_json": ["""from_json(s, '{"a": ["INTEGER"]}')"""],
    "from_json_strict": ["""from_json_strict(s, '{"a": ["INTEGER"]}')"""],
    "invoke": ["invoke(lambda q: q + 1, n)"],
    "json_object": ["json_object('a', s, 'b', x)", "json_object(s, n)"],
    "json_transform": ["""json_transform(s, '{"a": ["INTEGER"]}')"""],
    "json_transform_strict": ["""json_transform_strict(s, '{"a": ["INTEGER"]}')"""],
    "list_aggr": [f"list_aggr([n, 1, NULL], '{name}')" for name in ("sum", "avg", "min", "mode", "product", "entropy")],
    "list_aggregate": ["list_aggregate([x, 1], 'stddev_pop')", "list_aggregate([s, s], 'string_agg', '-')"],
    "list_bool_and": ["list_bool_and([b, b])"],
    "list_filter": ["list_filter([n, 1], lambda q: q > 0)"],
    "list_prepend": ["list_prepend(s, [s])"],
    "list_reduce": ["list_reduce([n, 1], lambda q, r: q + r)"],
    "list_transform": ["list_transform([s, 'a'], lambda q: CAST(q AS BIGINT))", "list_transform([n], lambda q: q * q)"],
    "printf": ["printf('%s %d %5.2f', s, n, x)", "printf('%c', n)"],
    "split_part": ["split_part(s, s, n)", "split_part(s, ',', n)"],
    "strptime": ["strptime(s, '%Y-%m-%d %H:%M:%S')", "strptime(s, s)"],
    "struct_extract": ["struct_extract({'a': s}, 'a')"],
    "struct_insert": ["struct_insert({'a': s}, b := n)"],
    "timezone": ["t AT TIME ZONE s", "(t AT TIME ZONE s) AT TIME ZONE 'Asia/Tokyo'"],
    "try_strptime": ["try_strptime(s, '%Y-%m-%d %H:%M:%S')", "try_strptime(s, s)"],
    "union_extract": ["union_extract(union_value(a := n), 'a')"],
}
"""Calls whose arguments are not as their types say."""


GROWING = (
    "len(list_transform(string_split(s, ''), lambda q: s))",
    "length(list_transform(string_split(s, ''), lambda q: s || q)::VARCHAR)",
    "len(list_transform(string_split(s, ''), lambda q: list_transform(string_split(s, ''), lambda r: q || r)))",
    "len(list_transform(string_split(s, ''), lambda q: string_split(s, '')))",
    "len(list_transform(string_to_array(s, ''), lambda q: regexp_extract_all(s, '.')))",
    "len(list_transform(regexp_split_to_array(s, ''), lambda q: regexp_split_to_array(s, '')))",
    "len(list_transform(range(greatest(n, 0) % 100000), lambda q: s || q))",
    "len(list_transform(range(greatest(n, 0) % 100000), lambda q: repeat(s, 100)))",
    "length(list_transform(range(greatest(n, 0) % 100000), lambda q: replace(s, 'x', s))::VARCHAR)",
    "to_json(list_transform(range(greatest(n, 0) % 100000), lambda q: [s, s, s]))",
    "[s for q in range(greatest(n, 0) % 100000) if q >= 0]",
    "list_transform(range(greatest(n, 0) % 100000), lambda q: {'a': s, 'b': map {s: q}})",
    "len(list_transform(range(greatest(n, 0) % 100000), lambda q: list_transform(range(100), lambda r: s)))",
    "len(list_transform(map_keys(map(string_split(s, ' '), string_split(s, ' '))), lambda q: s))",
    "len(list_transform(json_extract(s, '$..*'), lambda q: s))",
    "len(list_filter(string_split(s, ''), lambda q: length(replace(s, q, s)) > n))",
    "len(list_reduce(string_split(s, ''), lambda q, r: q || s))",
    "len(list_reduce(string_split(s, ''), lambda q, r: q || r, s))",
    "len(list_zip(string_split(s, ''), list_transform(string_split(s, ''), lambda q: s)))",
    "list_aggregate(list_transform(string_split(s, ''), lambda q: s), 'string_agg', '-')",
    "array_to_string(list_transform(string_split(s, ''), lambda q: format('{0}{0}{0}', s)), ',')",
    "list_transform(string_split(s, ''), lambda q: printf('%100s%s', q, s))",
    "list_transform(string_split(s, ''), lambda q: rpad(s, 100, q) || lpad(q, 100, s))",
    "list_transform([[s, s]], lambda q: list_transform(q, lambda r: list_transform(string_split(r, ''), lambda v: r)))",
    "invoke(lambda q, r: len(list_transform(r, lambda v: q)), s, string_split(s, ''))",
    "concat_ws(s, string_split(s, ''))",
    "list_select([s], list_transform(range(greatest(n, 0) % 100000), lambda q: 1))",
    "list_resize([s], n, s)",
    "json_pretty(s)",
    "repeat(array_to_string(list_transform(string_split(s, ''), lambda q: s), ','), n)",
    "length(to_binary(to_binary(to_binary(to_binary(s)))))",
    "length(to_json(to_json(to_json(to_json(to_json(to_json(s)::VARCHAR)::VARCHAR)::VARCHAR)::VARCHAR)::VARCHAR)::VARCHAR)",
    "len(list_resize([]::INTEGER[10000][], n))",
    "len(CAST(s AS INTEGER[1000][]))",
    "length(CAST(s AS BIGNUM)::VARCHAR)",
    "len(range(greatest(n, 0) % 100001))",
    "length(repeat('a', greatest(n, 0) % 1000001))",
    "length(lpad(s, CAST(greatest(n, 0) % 100001 AS INTEGER), s))",
    "json_contains(repeat('[', length(s)) || repeat(']', length(s)), s)",
    "km(x, x, len(list_transform(string_split(s, ''), lambda q: s)), x)",
)
"""Calls whose result can be much larger than the record."""


def records() -> Iterator[str]:
    """Yield records as JSON: each text with each number, and the other values in turn."""
    for number, (text, whole) in enumerate(product(TEXTS, NUMBERS)):
        odd: dict[str, object] = {"s": text, "n": whole}
        for name, values in (("x", DOUBLES), ("d", DECIMALS), ("b", BOOLEANS), ("t", TIMES)):
            odd[name] = values[number % len(values)]
        yield json.dumps({"id": number, "at": 1_767_225_600_000_000 + number} | odd)


def names() -> list[str]:
    """Return the functions that an expression may call; of collations, which are alike, two."""
    pure = [
        name
        for name, overloads in table().items()
        if any(one.depends in PURE and one.kind != "aggregate" for one in overloads)
    ]
    collations = re.compile(r"(icu_)?collate_(?!de$|noaccent$)")
    return sorted(name for name in pure if not collations.match(name))


def calls(name: str) -> list[str]:
    """Return accepted expressions that call a function, one or more for each overload."""
    found: dict[str, None] = {}
    for one in table()[name]:
        if one.kind != "aggregate" and one.depends in PURE:
            for arguments in _arguments(one):
                if "regex" in name and len(arguments) > 1:
                    arguments[1] = "left(s, 1000)"  # the time is proportional to the product of pattern and text
                found.update(dict.fromkeys(filter(None, [accepted(_call(name, arguments))])))
    found.update(dict.fromkeys(filter(None, map(accepted, _MORE.get(name, ())))))
    return list(found)


def accepted(text: str) -> str | None:
    """Return an expression, or the text of its value, if one of them is accepted."""
    for made in (text, f"CAST({text} AS VARCHAR)"):
        try:
            analyse(made, FIELDS, frozenset(field.name for field in FIELDS))
        except PipelineError:
            continue
        return made
    return None


def _call(name: str, arguments: list[str]) -> str:
    if re.fullmatch(r"\w+", name):
        return f'"{name}"({", ".join(arguments)})'
    return f"({arguments[0]}) {name} ({arguments[1]})" if len(arguments) == 2 else f"{name} ({''.join(arguments)})"


def _arguments(one: Overload) -> Iterator[list[str]]:
    wanted = [type_.removesuffix("...") for type_ in one.parameters]
    if one.kind == "macro":
        for argument in ("s", "n", "[n, 1]", "t", "x"):
            yield [argument] * len(wanted)
        yield ["[s]", *["s"] * (len(wanted) - 1)][: len(wanted)]
        return
    yield [_argument(type_, "s") for type_ in wanted]
    if any(type_.removesuffix("[]") in {"ANY", "T"} for type_ in wanted):
        for other in ("n", "x", "t", "[n]"):
            yield [_argument(type_, other) for type_ in wanted]


def _argument(type_: str, of_any: str) -> str:
    if type_.endswith("[]"):
        return f"[{_argument(type_.removesuffix('[]'), of_any)}]"
    if type_ in {"ANY", "T"}:
        return of_any
    if type_.startswith("MAP("):
        return "map([s], [n])"
    return _SQL.get(type_) or f"CAST({'n' if 'INT' in type_ else 's'} AS {type_})"
