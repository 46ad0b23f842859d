"""Pipelines in SQL are those that YAML says, and what SQL cannot say is refused with its place."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.graphs import Runnable

import windrow as wr
from windrow.authoring.load import open_pipeline
from windrow.authoring.pipeline_file import read_document
from windrow.errors import PipelineError
from windrow.model import Graph

EXAMPLES = Path(__file__).parents[2] / "examples"

_SQL = """\
SET 'name' = 'p';
CREATE TABLE spend (
  user_id STRING, event_time TIMESTAMP_LTZ(3), amount DECIMAL(12, 2), note STRING NULL,
  WATERMARK FOR event_time AS event_time - INTERVAL '10' MINUTES
) WITH ('connector' = 'log', 'path' = 'data/spend', 'lateness' = '2h');
CREATE TABLE paid (
  id STRING, paid_at TIMESTAMP, amount DECIMAL(12, 2), WATERMARK FOR paid_at AS paid_at
) WITH ('connector' = 'kafka', 'servers' = 'localhost:9092', 'topic' = 'paid', 'lateness' = '1h');
CREATE TABLE rates (
  currency STRING, changed_at TIMESTAMP, rate DECIMAL(12, 6), WATERMARK FOR changed_at AS changed_at,
  PRIMARY KEY (currency) NOT ENFORCED
) WITH ('connector' = 'log', 'path' = 'data/rates');
CREATE TABLE t WITH ('connector' = 'sqlite', 'path' = 'a.db', 'table' = 't');
"""
_LINES = len(_SQL.splitlines())
_YAML = """\
name: p
sources:
  spend:
    source: {log: {path: data/spend}}
    decode: {user_id: string, event_time: timestamp_millis, amount: "decimal(12,2)", note: "string?"}
    time: {field: event_time, delay: 10m}
    lateness: 2h
  paid:
    source: {kafka: {servers: "localhost:9092", topic: paid}}
    decode: {id: string, paid_at: timestamp, amount: "decimal(12,2)"}
    time: {field: paid_at, delay: 0s}
    lateness: 1h
  rates_changes:
    source: {log: {path: data/rates}}
    decode: {currency: string, changed_at: timestamp, rate: "decimal(12,6)"}
    time: {field: changed_at, delay: 0s}
streams:
  rates: {from: rates_changes, table: {key: currency}}
"""

SAME = yaml.safe_load((Path(__file__).parent / "sql_same.yaml").read_text())
REFUSED = yaml.safe_load((Path(__file__).parent / "sql_refused.yaml").read_text())


def _yaml(streams: str, taken: str = "t") -> str:
    sinks = f"sinks: {{to_t: {{from: {taken}, sink: {{sqlite: {{path: a.db, table: t}}}}}}}}\n"
    return _YAML + textwrap.indent(streams, "  ") + sinks


def _read(text: str) -> Runnable:
    return read_document(text, "p.sql").pipeline


@pytest.mark.parametrize("case", SAME.values(), ids=SAME)
def test_sql_is_the_same_pipeline_as_yaml(case: dict[str, str]) -> None:
    said = _read(_SQL + case["sql"])
    assert isinstance(said, Graph)
    assert said == read_document(_yaml(case["streams"], case.get("from", "t")), "p.yaml").pipeline


def test_a_window_over_the_only_table_is_a_pipeline_with_one_stream() -> None:
    said = open_pipeline(str(EXAMPLES / "user_spend.sql")).pipeline
    assert said == open_pipeline(str(EXAMPLES / "user_spend.yaml")).pipeline
    assert wr.sql((EXAMPLES / "user_spend.sql").read_text()).graph == said


def test_settings_options_and_types_are_those_of_yaml() -> None:
    sql = """
SET 'name' = 'p'; SET 'key_groups' = '4'; SET 'alerts.lag.time' = '10m'; SET 'alerts.latency' = '30s';
CREATE TABLE `in` (a BIGINT NOT NULL, b DOUBLE NULL, c BOOLEAN, d DECIMAL(5), e TIMESTAMP_LTZ(6),
  m TIMESTAMP_LTZ(6) NULL,
  f ARRAY<STRUCT<sku STRING, qty BIGINT>>, g TIMESTAMP_LTZ(0), h AS a * 2, WATERMARK FOR e AS m)
WITH ('connector' = 'log', 'path' = 'data/in'/* a comment */, 'decode.a.alias' = '[x, y]', 'decode.c.path' = 'u.v',
  'time.idle' = '1m', 'time.all_idle' = 'advance');
CREATE TABLE t WITH ('connector' = 'sqlite', 'path' = 'a.db', 'table' = 't', 'key' = '[window_start, a]', 'salt' = '2',
  'emit' = '{lateness: 1h}', 'emit.late.count' = '3');
INSERT INTO t SELECT a, count(*) AS n FROM TUMBLE(TABLE "in", DESCRIPTOR(rowtime), INTERVAL 1 DAY, INTERVAL '6' HOUR)
GROUP BY window_start, window_end, a;
"""
    same = """
name: p
source: {log: {path: data/in}}
decode:
  a: {type: long, alias: [x, y]}
  b: double?
  c: {type: boolean, path: u.v}
  d: decimal(5,0)
  e: timestamp_micros
  m: timestamp_micros?
  f: array<struct<sku string, qty long>>
  g: timestamp_seconds
derive: {h: a * 2}
time: {field: e, punctuated: m, idle: 1m, all_idle: advance}
key: a
window: {tumbling: {size: 1d, offset: 6h}}
aggregate: {n: count()}
emit: {lateness: 1h, late: {count: 3}}
sink: {sqlite: {path: a.db, table: t, key: [window_start, a]}}
key_groups: 4
salt: 2
alerts: {lag: {time: 10m}, latency: 30s}
"""
    assert _read(sql) == read_document(same, "p.yaml").pipeline


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["message"][:50])
def test_what_sql_cannot_say_is_refused_with_its_place(case: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    line, _, rest = case["message"].partition(":")
    with pytest.raises(PipelineError) as caught:
        _read(f"{_SQL}{case['sql'].rstrip()};\n")
    assert str(caught.value) == f"p.sql:{_LINES + int(line)}:{rest}"
    assert caplog.messages == [], "the parser logs what it does not know"


def test_findings_have_the_place_in_the_sql(tmp_path: Path) -> None:
    file = tmp_path / "a.sql"
    text = (EXAMPLES / "user_spend.sql").read_text()
    file.write_text(text.replace("sum(amount)", "sum(amout)").replace("'time.future'", "'time.futur'"))
    with pytest.raises(PipelineError, match=r"a\.sql:14:53: .*'futur' is not a key of time"):
        open_pipeline(str(file))
    file.write_text(text.replace("sum(amount)", "sum(amout)"))
    with pytest.raises(PipelineError, match=r"a\.sql:21:43: .*amout") as caught:
        open_pipeline(str(file)).runnable()
    assert caught.value.place is not None


_FIELDS = ("user_id", "note", "amount")


@given(
    keys=st.lists(st.sampled_from(_FIELDS[:2]), unique=True),
    sizes=st.lists(st.integers(1, 59), min_size=2, max_size=2),
    calls=st.lists(
        st.sampled_from(["sum(amount)", "max(note)", "top_k(note, 3)", "count_distinct(user_id)"]), max_size=3
    ),
    where=st.sampled_from(["", "amount > 1", "note = ';' OR note = 'WHERE'", "amount BETWEEN 1 AND 2"]),
    kind=st.sampled_from(["TUMBLE", "HOP"]),
)
def test_random_windows_come_back(keys: list[str], sizes: list[int], calls: list[str], where: str, kind: str) -> None:
    aggregates = {f"a{number}": call for number, call in enumerate([*calls, "count()"])}
    slide, size = sizes
    window = {"TUMBLE": f"tumbling: {size}m", "HOP": f"hopping: {{size: {size}m, slide: {slide}m}}"}[kind]
    shown = "".join(f", a{number}: '{call}'" for number, call in enumerate([*calls, "count()"]))[2:]
    taken = "t_where" if where else "spend"
    streams = f't_where: {{from: spend, where: "{where}"}}\n' if where else ""
    streams += f"t: {{from: {taken}, key: [{', '.join(keys)}], window: {{{window}}}, aggregate: {{{shown}}}}}\n"
    items = ", ".join([*keys, *(f"{call} AS {name}" for name, call in aggregates.items())])
    spans = ", ".join(f"INTERVAL '{one}' MINUTES" for one in ([size] if kind == "TUMBLE" else [slide, size]))
    sql = f"INSERT INTO t SELECT {items} FROM {kind}(TABLE spend, DESCRIPTOR(event_time), {spans})"
    sql += (f" WHERE {where}" if where else "") + f" GROUP BY {', '.join(['window_start', 'window_end', *keys])};"
    assert _read(_SQL + sql) == read_document(_yaml(streams), "p.yaml").pipeline
