"""How pipelines print back."""

import textwrap
from dataclasses import replace

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st
from tests.graphs import as_graph, parse_short, python_of
from tests.short_forms import Pipeline

from windrow.authoring.checks import validate
from windrow.authoring.printing import to_dict, to_json, to_mermaid, to_python_file, to_text, to_yaml
from windrow.authoring.sections import mask_secrets
from windrow.model import (
    Delay,
    Emit,
    EventTime,
    Global,
    KafkaSource,
    PostgresSink,
    Punctuated,
    Records,
    SqliteSink,
    Tumbling,
)
from windrow.model.references import given_reference, mask_arguments, mask_option, mask_url, mask_webhook

YAML = """\
name: user-spend
source: {log: {path: data/spend}}
decode: {user_id: string, event_time: timestamp_millis, amount: 'decimal(12,2)'}
time: {field: event_time, delay: 10m, future: 1h}
key: [user_id]
window: {tumbling: 5m}
aggregate: {total: sum(amount), events: count()}
emit: {lateness: 1h, late: each, mode: retract}
sink: {sqlite: {path: spend.db, table: user_spend_5m}}
"""


@pytest.fixture
def pipeline() -> Pipeline:
    return parse_short(YAML)


@pytest.fixture
def secretive(pipeline: Pipeline) -> Pipeline:
    return replace(
        pipeline,
        source=KafkaSource("h:1", "spend", "latest", (("sasl.jaas.config", "hunter2"), ("client.id", "me"))),
        sink=PostgresSink("postgresql://me:hunter2@h/db?sslpassword=hunter2&sslmode=require", "stats.t", ("a", "b")),
    )


def test_the_main_job_has_no_findings(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert validate(as_graph(pipeline)) == []


def test_yaml_is_canonical(pipeline: Pipeline) -> None:
    assert to_yaml(as_graph(pipeline)) == YAML


def test_defaults_are_left_out_and_the_rest_is_not(pipeline: Pipeline) -> None:
    full = replace(
        pipeline,
        time=EventTime("event_time", Delay(0)),
        window=Tumbling(300_000_000, 1_000),
        emit=Emit(0, "batch", "retract", "hold"),
        sink=SqliteSink("a.db", "t", ("window_start", "user_id"), "text", changelog=False),
        key_groups=9,
    )
    assert to_yaml(as_graph(full)).splitlines()[3:] == [
        "time: {field: event_time, delay: 0s}",
        "key: [user_id]",
        "window: {tumbling: {size: 5m, offset: 1ms}}",
        "aggregate: {total: sum(amount), events: count()}",
        "emit: {lateness: 0s, late: batch, mode: retract, at_end: hold}",
        "sink: {sqlite: {path: a.db, table: t, key: [window_start, user_id], decimals: text, changelog: false}}",
        "key_groups: 9",
    ]


def test_a_sink_without_a_changelog(pipeline: Pipeline) -> None:
    sink = PostgresSink("postgresql://h/d", "t", changelog=False)
    other = replace(pipeline, sink=sink, emit=replace(pipeline.emit, mode="accumulate"))
    assert parse_short(to_yaml(as_graph(other))) == other
    assert "wr.postgres('postgresql://h/d', table='t', changelog=False)" in python_of(other)
    assert "beside it t_late, _dead, _clocks" in to_text(as_graph(other))
    assert "a revision replaces the previous row\n" in to_text(as_graph(other))
    assert "t_changes" in to_text(as_graph(replace(other, sink=replace(sink, changelog=True))))


def test_python_reads_like_the_fluent_form(pipeline: Pipeline) -> None:
    assert python_of(pipeline) == textwrap.dedent("""\
        (
            wr.log('data/spend')
            .decode(user_id='string', event_time='timestamp_millis', amount='decimal(12,2)')
            .event_time('event_time', delay='10m', future='1h')
            .key_by('user_id')
            .window(wr.tumbling('5m'))
            .aggregate(total=wr.sum('amount'), events=wr.count())
            .emit(lateness='1h', late='each', mode='retract')
            .to(wr.sqlite('spend.db', table='user_spend_5m'), name='user-spend')
        )
    """)


def test_text_says_what_each_noun_means(pipeline: Pipeline) -> None:
    assert to_text(as_graph(pipeline)) == textwrap.dedent("""\
        user-spend
          source     the embedded log data/spend, each partition in offset order
          decode     JSON with user_id string, event_time timestamp_millis, amount decimal(12,2)
                     a record that does not fit goes to user_spend_5m_dead
          time       event_time
                     a partition's watermark is 10m behind the greatest event time read from it
                     a record over 1h ahead of its log timestamp goes to user_spend_5m_dead and advances no watermark
          key        user_id, in 8 key groups (on a cluster in 8 state partitions)
          window     tumbling, 5m long
          aggregate  total = sum(amount), events = count()
          emit       a window fires when every partition has read 10m past its end
                     late records revise it for 1h (one revision for each)
                     after that: user_spend_5m_late
                     open windows fire at the end of a bounded input
          sink       table user_spend_5m in the SQLite file spend.db
                     beside it user_spend_5m_changes, _late, _dead, _clocks
    """)


def test_text_of_everything_else(secretive: Pipeline) -> None:
    other = replace(
        secretive,
        time=EventTime("event_time", Punctuated("mark")),
        window=Tumbling(300_000_000, 60_000_000),
        emit=Emit(at_end="hold"),
    )
    text = to_text(as_graph(other))
    for said in (
        "the Kafka topic spend at h:1 from the latest offset, each partition in offset order, sasl.jaas.config=***",
        "a record with mark sets its partition's watermark to it\n",
        "tumbling, 5m long, shifted by 1m",
        "a window fires when every partition's watermark has reached its end",
        "late records change nothing: stats.t_late",
        "open windows stay open at the end of a bounded input",
        "table stats.t in PostgreSQL postgresql://me:***@h/db?sslpassword=***&sslmode=require, one row for each a, b",
    ):
        assert said in text
    assert "(one revision per step)" in to_text(as_graph(replace(other, emit=Emit(lateness=1, late="batch"))))
    assert "decimals as text" in to_text(as_graph(replace(other, sink=SqliteSink("a", "t", (), "text"))))


BASE = {
    "name": "x",
    "source": "{log: {path: a}}",
    "decode": "{u: string, t: timestamp, s: timestamp}",
    "time": "{field: t, delay: 1m}",
    "key": "u",
    "window": "{tumbling: 5m}",
    "aggregate": "{n: count()}",
    "sink": "{sqlite: {path: a, table: o}}",
}


@pytest.mark.parametrize(
    ("section", "given", "said"),
    [
        (
            "window",
            "{tumbling: {size: 1 day, zone: Asia/Tokyo, offset: 6h}}",
            "1 day long in Asia/Tokyo, shifted by 6h",
        ),
        ("window", "{tumbling: 2 weeks}", "tumbling, 2 weeks long in UTC\n"),
        ("window", "{cumulate: {size: 1h, step: 1m}}", "cumulate, 1h at most, growing by 1m\n"),
        ("window", "{hopping: {size: 1h, slide: 1m}}", "hopping, 1h long, one every 1m\n"),
        ("window", "{session: 30m}", "sessions of records less than 30m apart"),
        ("emit", "{early: {every: 30s}}", "an early pane is written 30s of processing time after a record\n"),
        ("emit", "{lateness: 1h, late: {count: 5}}", "revise it for 1h (one revision for every 5 of a key)\n"),
        ("emit", "{early: {event_time: 30s}}", "whenever the watermark has advanced by 30s in the window\n"),
        ("emit", "{early: {any_of: [{count: 1}, {count: 5}]}}", "(after every record or after every 5 records)\n"),
        ("emit", "{early: {all_of: [{count: 2}, {count: 5}]}}", "(after every 2 records and after every 5 records)\n"),
        ("emit", "{early: {repeat: {trigger: {count: 5}, times: 1}}}", "after every 5 records, at most 1 time\n"),
        ("emit", "{mode: accumulate}", "a revision replaces the previous row, which o_changes does not retract"),
        ("emit", "{mode: discard}", "a pane holds only the records since the previous pane, as a row of its own"),
        ("time", "{field: t, delay: {adaptive: {target: 0.999, min: 1s, max: 2s}}}", "so that 99.9 % of its"),
        ("time", "{field: t, delay: 1m, sent: s}", "a device's clock is corrected by the log timestamp minus s"),
        (
            "time",
            "{field: t, delay: 1m, idle: 1m}",
            "without records for 1m does not hold back others; if all are idle, watermarks stop",
        ),
        (
            "time",
            "{field: t, delay: 1m, idle: 1m, all_idle: advance}",
            "if all are idle, watermarks advance with processing time",
        ),
        ("derive", "{d: upper(u)}", "  derive     d = upper(u)\n"),
        ("aggregate", "{n: count() where u > 'a'}", "n = count() where u > 'a'"),
    ],
)
def test_text_of_each_kind(section: str, given: str, said: str) -> None:
    text = "".join(f"{name}: {value}\n" for name, value in (BASE | {section: given}).items())
    assert said in to_text(as_graph(parse_short(text)))


def test_text_of_a_global_window_has_nothing_late(pipeline: Pipeline) -> None:
    text = to_text(as_graph(replace(pipeline, window=Global(), emit=Emit(early=Records(3)))))
    assert "one window for all time" in text
    assert "late records" not in text


def test_text_of_salt(pipeline: Pipeline) -> None:
    assert "each spread over 4 of them" in to_text(as_graph(replace(pipeline, salt=4)))


def test_mermaid_shows_the_way_and_where_the_rest_goes(pipeline: Pipeline) -> None:
    chart = to_mermaid(as_graph(pipeline))
    assert "  source --> decode --> time --> key --> window --> aggregate --> emit --> sink\n" in chart
    assert '  late[("<b>late output</b><br/>user_spend_5m_late")]\n' in chart
    assert "too far ahead" in chart
    quoted = replace(pipeline, sink=SqliteSink('a"<b>&.db', "t"), time=EventTime("event_time", Punctuated("mark")))
    assert '"<b>sink</b><br/>t in a&quot;&lt;b&gt;&amp;.db"' in to_mermaid(as_graph(quoted))
    assert "watermark in mark" in to_mermaid(as_graph(quoted))
    assert "too far ahead" not in to_mermaid(as_graph(quoted))


def test_no_print_out_holds_a_secret(secretive: Pipeline) -> None:
    for print_ in (to_dict, to_json, to_yaml, to_text, to_python_file, to_mermaid):
        assert "hunter2" not in str(print_(as_graph(secretive)))
    assert mask_secrets(mask_secrets(as_graph(secretive))) == mask_secrets(as_graph(secretive))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://h/db", "postgresql://h/db"),
        ("postgresql://h:5432/db", "postgresql://h:5432/db"),
        ("postgresql://me@h/db", "postgresql://me@h/db"),
        ("postgresql://me:@/db?host=/run", "postgresql://me:@/db?host=/run"),
        ("postgresql://me:pw@h:5432/db", "postgresql://me:***@h:5432/db"),
        ("postgresql://me:p@w@h/db", "postgresql://me:***@h/db"),
        ("postgresql://me:p/w@h/db", "postgresql://me:***@h/db"),
        ("postgresql://me:p?w#@h/db", "postgresql://me:***@h/db"),
        ("postgresql://h/db?password=p@w#x&user=me", "postgresql://h/db?password=***&user=me"),
        ("postgresql://h/db?user=me&PASSWORD=pw", "postgresql://h/db?user=me&PASSWORD=***"),
        ("postgresql://me@corp:pw@h/db", "postgresql://***:***@h/db"),
        ("postgresql://me%3Apw@h/db", "postgresql://***@h/db"),
        ("postgresql://h/db?password=p&w", "postgresql://h/db?***"),
        ("postgresql://h:5432/db?password=p@w", "postgresql://***"),
        ("postgresql://me:pw", "postgresql://***"),
        (
            "postgresql://[::1]:5432,h:1/db?application_name=me",
            "postgresql://[::1]:5432,h:1/db?application_name=me",
        ),
        ("http://me:pw@a:8081,http://b:8081", "http://me:***@a:8081,http://b:8081"),
        ("https://a/?token=x", "https://a/?***"),
        ("host=h password='p w'", "host=h password=***"),
    ],
)
def test_passwords_in_urls_are_masked(url: str, shown: str) -> None:
    assert mask_url(url) == shown
    assert mask_url(shown) == shown


ODD = st.text(alphabet="@/:%?#&=,;[]'\" .a1", max_size=4)


@drawn(st.lists(ODD, min_size=1, max_size=4), st.sampled_from(("", "u", "u@corp", "u%40")))
def test_no_part_of_any_password_is_shown(parts: list[str], user: str) -> None:
    password = "hunter".join(["", *parts, ""])
    for url in (
        f"postgresql://{user}:{password}@h:5432/db?sslmode=require",
        f"postgresql://h:5432/db?user=u&password={password}",
        f"postgresql://{user}@h/db?password={password}&sslmode=require",
        f"http://a:1,http://{user}:{password}@b:2",
    ):
        assert "hunter" not in mask_url(url)
        assert "hunter" not in mask_option("proxy", url)
        assert "hunter" not in mask_webhook(url)
        assert "hunter" not in repr(PostgresSink(url, "t"))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("${HOOK}", "${HOOK}"),
        ("${HOOK:-https://h/x}", "***"),
        ("https://h", "https://h"),
        ("https://h:8080/x/y", "https://h:8080/***"),
        ("https://h?x", "https://h/***"),
        ("https://me:pw@h/x", "https://h/***"),
        ("https://me:p@w@h/x", "https://***"),
        ("https://me:p/w@h/x", "https://***"),
        ("https://${HOST}/${PATH}", "https://${HOST}/***"),
    ],
)
def test_of_a_webhook_the_host_is_shown(url: str, shown: str) -> None:
    assert mask_webhook(url) == shown
    assert mask_webhook(shown) == shown


@pytest.mark.parametrize(
    ("argument", "shown"),
    [
        ("--channel=ops", "--channel=ops"),
        ("Authorization: Bearer ${TOKEN}", "Authorization: Bearer ${TOKEN}"),
        ("Authorization: Bearer x", "Authorization: Bearer ***"),
        ("--password=x", "--password=***"),
        ("${TOKEN:-x}", "${TOKEN:-***}"),
        ("say to https://me:pw@h/x", "say to https://h/***"),
        ("$${HOME}", "$${HOME}"),
        (given_reference("TOKEN", "x}"), "${TOKEN}"),
    ],
)
def test_arguments_of_a_command_keep_their_references(argument: str, shown: str) -> None:
    assert mask_arguments((argument,)) == (shown,)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("ssl.truststore.password", "***"),
        ("sasl.jaas.config", "***"),
        ("sasl.oauthbearer.client.secret", "***"),
        ("ssl.keystore.key", "***"),
        ("ssl.key.pem", "***"),
        ("ssl.keystore.location", "x"),
        ("security.protocol", "x"),
    ],
)
def test_secret_options_are_masked(name: str, shown: str) -> None:
    assert mask_option(name, "x") == shown


def test_a_section_longer_than_a_line_has_a_line_for_each_part() -> None:
    names = [f"highest_of_those_below_{number}" for number in range(5)]
    calls = [f"quantile(amount, 0.{number + 1})" for number in range(5)]
    called = "".join(f"\n  {name}: {call}" for name, call in zip(names, calls, strict=True))
    long = parse_short(YAML.replace(" {total: sum(amount), events: count()}", called))
    assert f"aggregate:{called}\nemit: {{" in to_yaml(as_graph(long))
    assert parse_short(to_yaml(as_graph(long))) == long
    lines = (f"        {name}=wr.quantile('amount', 0.{number + 1}),\n" for number, name in enumerate(names))
    assert f"    .aggregate(\n{''.join(lines)}    )\n    .emit(" in python_of(long)


def test_mermaid_of_an_adaptive_delay() -> None:
    adaptive = parse_short(YAML.replace("delay: 10m", "delay: {adaptive: {target: 0.999, min: 1s, max: 5m}}"))
    assert "delay of 99.9 % of the records, 1s to 5m" in to_mermaid(as_graph(adaptive))
