"""Graphs as files: read, checked with lines, and printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from windrow.authoring.checks import validate
from windrow.authoring.load import open_pipeline
from windrow.authoring.pipeline_file import read_document
from windrow.authoring.printing import to_dict, to_mermaid, to_python_file, to_text, to_yaml
from windrow.errors import PipelineError, each_error
from windrow.expressions import spec_of, stream_of
from windrow.model import MAX_PARTITIONS, Graph, PostgresSink, SinkNode, Tumbling, WindowNode

SHOP = """\
name: shop
sources:
  purchases:
    source: {log: {path: data/shop}}
    decode: {user: string, country: "string?", t: timestamp_millis, amount: "decimal(12,2)", url: string}
    derive: {cents: "CAST(amount * 100 AS BIGINT)"}
    time: {field: t, delay: 1m, future: 1h}
streams:
  per_user:
    from: purchases
    key: user
    window: {tumbling: 5m}
    aggregate: {total: sum(amount), n: count()}
  per_domain:
    from: purchases
    derive: {far: "country <> 'US'"}
    key: [{domain: "split_part(url, '/', 3)"}]
    window: {session: 30m}
    aggregate: {most: "max(cents) where far"}
    emit: {lateness: 1h}
sinks:
  users: {from: per_user, sink: {sqlite: {path: shop.db, table: users}}}
  domains: {from: per_domain, sink: {postgres: {url: "postgresql://u:secret@host/db", table: domains}}}
  again: {from: per_user, sink: {sqlite: {path: shop.db, table: again, changelog: false}}}
key_groups: 4
"""


def read(text: str) -> Graph:
    graph = read_document(text, "shop.yaml").pipeline
    assert isinstance(graph, Graph)
    return graph


def replaced(text: str, changes: Sequence[tuple[str, str]]) -> str:
    """The text after some replacements, each of the first place that it fits."""
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return text


def problems(*changes: tuple[str, str]) -> list[str]:
    """The errors of the file after some replacements."""
    text = SHOP
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return problems_of(text)


def problems_of(text: str) -> list[str]:
    document = read_document(text, "shop.yaml")
    return [
        f"{document.place(finding.where).line}: {finding.text}"
        for finding in validate(document.pipeline)
        if finding.level == "error"
    ]


def assert_warnings(text: str, where: str, expected: Sequence[str]) -> None:
    """The warnings at places that begin so are as many, and begin with their lines and these words."""
    document = read_document(text, "shop.yaml")
    found = [
        f"{document.place(finding.where).line}: {finding.message}"
        for finding in validate(document.pipeline)
        if finding.level == "warning" and finding.where.startswith(where)
    ]
    assert len(found) == len(expected), found
    assert all(one.startswith(start) for one, start in zip(found, expected, strict=True)), found


def test_the_nodes_of_a_file() -> None:
    graph = read(SHOP)
    assert [node.name for node in graph.nodes] == ["purchases", "per_user", "per_domain", "users", "domains", "again"]
    user, domain = graph.keyed
    assert isinstance(user, WindowNode)
    assert (user.window, user.key, user.input) == (Tumbling(300_000_000), ("user",), "purchases")
    assert isinstance(domain, WindowNode)
    assert (domain.key, [one.name for one in domain.derive]) == (("domain",), ["far", "domain"])
    assert [one.name for one in spec_of(graph, domain).derive] == ["cents", "far", "domain"]
    assert [sink.name for sink in graph.sinks_of("per_user")] == ["users", "again"]
    assert problems() == []


def test_it_reads_back_as_it_was_printed() -> None:
    graph = read(SHOP.replace("u:secret@", ""))
    assert read(to_yaml(graph)) == graph
    assert to_dict(graph)["streams"]["per_domain"]["from"] == "purchases"
    assert max(map(len, to_yaml(graph).splitlines())) < 200


def test_no_print_out_has_a_secret() -> None:
    graph = read(SHOP)
    for text in (to_yaml(graph), to_text(graph), to_mermaid(graph), to_python_file(graph), str(to_dict(graph))):
        assert "secret" not in text
        assert "***" in text
    assert isinstance(graph.sinks[1].sink, PostgresSink)
    assert "secret" in graph.sinks[1].sink.url


def test_what_it_does_in_words() -> None:
    lines = to_text(read(SHOP)).splitlines()
    assert lines[0] == "shop"
    assert "stream per_domain (from purchases)" in lines
    assert "sink again (from per_user)" in lines
    assert "  derive     cents = CAST(amount * 100 AS BIGINT)" in lines
    assert "  derive     far = country <> 'US'" in lines
    assert [line for line in to_mermaid(read(SHOP)).splitlines() if "-->" in line] == [
        "  n0 --> n1",
        "  n0 --> n2",
        "  n1 --> n3",
        "  n2 --> n4",
        "  n1 --> n5",
    ]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            [("from: purchases\n    key", "from: sales\n    key")],
            ["10: streams.per_user.from: there is no source or stream 'sales'; use one of purchases, per_user"],
        ),
        (
            [("{from: per_domain, sink", "{from: purchases, sink")],
            ["14: streams.per_domain: no sink writes its rows; add a sink from 'per_domain', or remove it"],
        ),
        ([("table: again", "table: USERS")], ["24: sinks.again.sink: 'users' also writes the table 'USERS'"]),
        (
            [("  again: {", "  per_user: {")],
            [
                "9: streams.per_user: the name 'per_user' is used twice",
                "24: sinks.per_user: the name 'per_user' is used",
            ],
        ),
        ([("  again: {", "  a b: {")], ["24: sinks.a b: a name has 1 to 100 letters"]),
        (
            [("emit: {lateness: 1h}", "emit: {lateness: 1h, at_end: hold}")],
            ["20: streams.per_domain.emit: at_end is hold, but fire for 'per_user'"],
        ),
        ([("field: t,", "field: u,")], ["7: sources.purchases.time.field: 'u' is not a field of decode"]),
        ([("sum(amount)", "sum(url)")], ["13: streams.per_user.aggregate.total: "]),
        (
            [("country <> 'US'", "nation <> 'US'")],
            ["16: streams.per_domain.derive.far: ", "19: streams.per_domain.aggregate.most: 'far'"],
        ),
        ([("table: again", "table: 1x")], ["24: sinks.again.sink.sqlite.table: "]),
        ([("key_groups: 4", "key_groups: 0")], ["25: key_groups: "]),
    ],
)
def test_problems_have_the_line_of_their_part(changes: list[tuple[str, str]], expected: list[str]) -> None:
    found = problems(*changes)
    assert [line[: len(begin)] for line, begin in zip(found, expected, strict=True)] == expected, found


SECOND = """\
  refunds:
    source: {log: {path: data/refunds}}
    decode: {user: string, country: "string?", at: timestamp, amount: "decimal(12,2)", url: string}
    derive: {cents: "-CAST(amount * 100 AS BIGINT)"}
    time: {field: at, delay: 5m, future: 1h, idle: 1m}
    lateness: 2h
streams:
  plain: {from: purchases, select: [user, country, amount, url, cents]}
  back: {from: refunds, select: [user, country, amount, url, cents]}
  moved: {from: [plain, back]}
"""


def two_sources(*changes: tuple[str, str]) -> str:
    text = (
        SHOP.replace(":secret", "")
        .replace("streams:\n", SECOND)
        .replace("from: purchases", "from: moved")
        .replace("plain: {from: moved", "plain: {from: purchases")
    )
    return replaced(text, changes)


def test_two_sources() -> None:
    graph = read(two_sources())
    assert [node.name for node in graph.sources] == ["purchases", "refunds"]
    assert not [one for one in validate(graph) if one.level == "error"]
    assert read(to_yaml(graph)) == graph
    text = to_text(graph)
    assert "source purchases\n" in text
    assert "source refunds\n" in text
    fires = "a window fires when the watermark of every partition of purchases and refunds has reached its end"
    assert text.count(fires) == 2
    assert "n1 --> " in to_mermaid(graph)
    assert [graph.partition_name(one) for one in (3, MAX_PARTITIONS + 3)] == ["purchases/3", "refunds/3"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            ("data/refunds", "more/shop"),
            "9: sources.refunds.source: tables would call both this source and 'purchases' 'shop': give one of",
        ),
        (
            ("data/refunds", "data/shop"),
            "9: sources.refunds.source: tables would call both this source and 'purchases' 'shop': read it as",
        ),
        (("at: timestamp,", "at: string,"), "12: sources.refunds.time.field: 'at' is a string, not a time"),
        (("lateness: 2h", "lateness: 40000d"), "13: sources.refunds.lateness: is longer than a hundred years"),
        (
            ("from: refunds", "from: purchases"),
            "8: sources.refunds: no stream reads it",
        ),
        (
            ("url, cents]}\n  moved", "url]}\n  moved"),
            "17: streams.moved.from: the streams of a union must have the same fields",
        ),
        (
            (
                "moved: {from: [plain, back]}",
                "all: {from: [plain, back]}\n  moved: {from: all, deduplicate: {by: user, within: 1h}}",
            ),
            "18: streams.moved.deduplicate: every key would be kept forever, because a copy can be late without limit",
        ),
    ],
)
def test_problems_of_two_sources_have_their_lines(change: tuple[str, str], expected: str) -> None:
    found = problems_of(two_sources(change))
    assert any(one.startswith(expected) for one in found), found


def test_a_file_among_several_sources_is_to_be_idle() -> None:
    file = ("{log: {path: data/refunds}}", "{file: {path: refunds.csv, key: user, log: data/refunds}}")
    found = [one.where for one in validate(read(two_sources(file))) if "`idle`" in one.message]
    assert found == []
    found = [one.where for one in validate(read(two_sources(file, (", idle: 1m", "")))) if "`idle`" in one.message]
    assert found == ["sources.refunds.time"]


def test_unknown_keys_are_reported_with_their_lines() -> None:
    with pytest.raises(PipelineError) as caught:
        read(
            SHOP.replace("window: {tumbling", "windows: {tumbling").replace(
                "{from: per_user, sink", "{form: per_user, sink"
            )
        )
    found = [f"{one.place}: {one.message}" for one in each_error(caught.value)]
    assert len(found) >= 3
    assert found[0].startswith("shop.yaml:12: 'windows' is not a key of streams.per_user; did you mean 'window'?")
    assert any("shop.yaml:22: 'form' is not a key of sinks.users" in one for one in found)


def test_it_is_loaded_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(SHOP)
    assert open_pipeline(str(file)).runnable() == read(SHOP)


@pytest.mark.parametrize("section", ["sources", "streams", "sinks"])
def test_a_node_has_a_name(section: str) -> None:
    named = yaml.safe_load(SHOP)
    first = next(iter(named[section]))
    named[section] = {"" if name == first else name: part for name, part in named[section].items()}
    with pytest.raises(PipelineError, match="a name has 1 to 100 letters"):
        read(yaml.safe_dump(named, sort_keys=False))


def test_a_graph_without_streams_or_sinks() -> None:
    graph = read(SHOP)
    nowhere = replace(graph, nodes=tuple(node for node in graph.nodes if not isinstance(node, SinkNode)))
    assert [finding.where for finding in validate(nowhere)] == ["streams.per_user", "streams.per_domain"]
    empty = replace(graph, nodes=graph.sources)
    assert [finding.message for finding in validate(empty)] == ["there is no stream; add one"]


def test_the_python_of_a_graph_makes_the_same_graph(tmp_path: Path) -> None:
    for number, text in enumerate((SHOP.replace(":secret", ""), two_sources(), CHAIN, SALTED)):
        graph = read(text)
        file = tmp_path / f"graph{number}.py"
        file.write_text(to_python_file(graph))
        assert open_pipeline(str(file)).runnable() == graph, file.read_text()


SALTED = """\
name: odd-names
sources:
  class:
    source: {log: {path: data/shop}}
    decode: {user: string, t: timestamp_millis, amount: long}
    time: {field: t, delay: 1m, future: 1h}
streams:
  same: {from: class}
  1-2.3:
    from: same
    key: [user]
    window: {tumbling: 5m}
    aggregate: {total: sum(amount)}
    salt: 2
  1_2_3: {from: [same, class], where: amount > 1}
sinks:
  a: {from: 1-2.3, sink: {sqlite: {path: shop.db, table: a}}}
  b: {from: 1_2_3, sink: {sqlite: {path: shop.db, table: b}}}
"""


CHAIN = """\
name: chain
sources:
  purchases:
    source: {log: {path: data/shop}}
    decode: {id: string, user: string, kind: "string?", t: timestamp_millis, amount: "decimal(12,2)"}
    time: {field: t, delay: 1m, future: 1h}
    lateness: 2h
streams:
  hours: {from: minutes, key: user, window: {tumbling: 1h}, aggregate: {total: sum(total), n: count()}}
  unique: {from: purchases, deduplicate: {by: id, within: 1h}}
  large: {from: unique, where: amount > 100, derive: {cents: "CAST(amount * 100 AS BIGINT)"}, select: [id, cents]}
  kinds: {from: unique, split: {bought: kind = 'buy'}, other: others}
  both: {from: [kinds.bought, kinds.others]}
  minutes:
    from: both
    key: user
    window: {tumbling: 5m}
    aggregate: {total: sum(amount), n: count()}
    emit: {lateness: 1h}
sinks:
  to_minutes: {from: minutes, sink: {sqlite: {path: shop.db, table: minutes}}}
  to_hours: {from: hours, sink: {sqlite: {path: shop.db, table: hours}}}
  to_large: {from: large, sink: {sqlite: {path: shop.db, table: large}}}
"""


KEYED = '  keyed: {from: unique, where: amount > 1, derive: {cents: "CAST(amount * 100 AS BIGINT)"}}\n'
RENAMED = "  named: {from: unique, select: [id, kind, t, amount]}\n  keyed: {from: named, derive: {user: id}}\n"
OTHER = "  other: {from: unique, key: id, window: {tumbling: 1h}, aggregate: {n: count()}, emit: {lateness: 2h}}\n"
OTHER_SINK = "{from: other, sink: {sqlite: {path: shop.db, table: other}}}"


def chain_problems(*changes: tuple[str, str]) -> list[str]:
    """The errors of the chain after some replacements."""
    text = CHAIN
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    document = read_document(text, "chain.yaml")
    return [
        f"{document.place(finding.where).line}: {finding.text}"
        for finding in validate(document.pipeline)
        if finding.level == "error"
    ]


def test_a_chain_of_streams_is_put_in_order_and_reads_back() -> None:
    graph = read(CHAIN)
    assert [node.name for node in graph.streams] == ["unique", "large", "kinds", "both", "minutes", "hours"]
    assert chain_problems() == []
    assert [[one.node.name for one in level] for level in graph.levels] == [
        ["unique", "to_large"],
        ["minutes"],
        ["hours"],
    ]
    assert read(to_yaml(graph)) == graph
    lines = to_text(graph).splitlines()
    assert "  unique by  id, within 1h of event time" in lines
    assert "  keeps      a key until the watermark is 3h past its record" in lines
    assert "  keeps      rows of a window until the watermark is 1h past its end" in lines
    assert "  level      3 of 3" in lines
    assert '  n3 -- "bought" --> n4' in to_mermaid(graph).splitlines()


@pytest.mark.parametrize(
    ("changes", "is_shared"),
    [
        ([], True),
        ([("by: [user, id]", "by: id")], False),
        ([("    window: {tumbling: 5m}", "    salt: 2\n    window: {tumbling: 5m}")], False),
        ([("{from: unique, split", "{from: keyed, split"), ("streams:\n", f"streams:\n{KEYED}")], True),
        ([("{from: unique, split", "{from: keyed, split"), ("streams:\n", f"streams:\n{RENAMED}")], False),
        ([("large: {from: unique", "large: {from: unique.duplicates")], True),
        ([("[kinds.bought, kinds.others]", "[kinds.bought, purchases]")], False),
        ([("  to_large:", f"  to_other: {OTHER_SINK}\n  to_large:"), ("streams:\n", f"streams:\n{OTHER}")], False),
    ],
)
def test_readers_of_a_deduplication_are_at_its_level_if_it_has_their_key(
    changes: list[tuple[str, str]], *, is_shared: bool
) -> None:
    text = CHAIN.replace("by: id", "by: [user, id]")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    graph = read(text)
    (node,) = (node for node in graph.streams if node.name == "unique")
    assert graph.partition_key_of(node) == (("user",) if is_shared else ())
    assert len({graph.level_of(node), graph.level_of(graph.producer("minutes"))}) == 1 + (not is_shared)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([("{from: unique, where", "{from: unik, where")], ["11: streams.large.from: there is no source or stream"]),
        (
            [("from: both", "from: hours")],
            [
                "9: streams.hours.from: it depends on itself through 'minutes'",
                "12: streams.kinds: no sink writes its rows",
                "13: streams.both: no sink writes its rows",
            ],
        ),
        ([("amount > 100", "amount + 100")], ["11: streams.large.where: 'amount + 100' is not a condition"]),
        ([("kind = 'buy'", "knd = 'buy'")], ["12: streams.kinds.split.bought: "]),
        ([("[id, cents]", "[id, cent]")], ["11: streams.large.select.1: there is no field 'cent'; did you mean"]),
        ([("by: id", "by: kind")], ["10: streams.unique.deduplicate.by.0: 'kind' can be null"]),
        ([("by: id", "by: ident")], ["10: streams.unique.deduplicate.by.0: there is no field 'ident'"]),
        ([("    lateness: 2h\n", "")], ["9: streams.unique.deduplicate: every key would be kept forever"]),
        (
            [("{from: [kinds.bought, kinds.others]}", "{from: [kinds.bought, large]}")],
            ["13: streams.both.from: the streams of"],
        ),
        ([("window: {tumbling: 1h}", "window: {session: 1h}")], ["9: streams.hours.window: a session cannot read"]),
        ([("sum(amount)", "sum(amout)")], ["18: streams.minutes.aggregate.total: 'amout' is not a field"]),
        (
            [("    key: user\n    window: {tumbling: 5m}", "    key: usr\n    window: {tumbling: 5m}")],
            ["16: streams.minutes.key.0: 'usr' is"],
        ),
        (
            [("window: {tumbling: 5m}", "window: {session: 5m}"), ("lateness: 1h}", "lateness: 1h, late: batch}")],
            ["19: streams.minutes.emit.late: other streams read each revision"],
        ),
        (
            [("window: {tumbling: 5m}", "window: {global: {}}"), ("{lateness: 1h}", "{late: batch}")],
            ["19: streams.minutes.emit.late: other streams read each revision", "9: streams.hours.from: the rows of"],
        ),
        (
            [("window: {tumbling: 5m}", "window: {global: {}}"), ("{lateness: 1h}", "{early: {count: 2}}")],
            ["19: streams.minutes.emit.early: a window whose rows other", "9: streams.hours.from: the rows of a table"],
        ),
        (
            [("n: count()}}\n  unique", "n: count()}, emit: {lateness: 1h}}\n  unique")],
            ["9: streams.hours.emit.lateness: "],
        ),
        ([("emit: {lateness: 1h}", "emit: {lateness: 1h, late: batch}")], ["19: streams.minutes.emit.late: "]),
        ([("emit: {lateness: 1h}", "emit: {lateness: 1h, late: {count: 2}}")], ["19: streams.minutes.emit.late: "]),
        (
            [("n: count()}}\n  unique", "n: count()}, emit: {late: {count: 2}}}\n  unique")],
            ["9: streams.hours.emit.late: "],
        ),
        ([("emit: {lateness: 1h}", "emit: {lateness: 1h, mode: accumulate}")], ["19: streams.minutes.emit.mode: "]),
        (
            [
                ("select: [id, cents]", "select: [id, cents, offset]"),
                ('cents: "', 'offset: "CAST(1 AS BIGINT)", cents: "'),
            ],
            ["23: sinks.to_large.from: the field 'offset' is a column"],
        ),
        ([("sum(total)", "sum(totals)")], ["9: streams.hours.aggregate.total: "]),
        (
            [
                (
                    "kinds: {from: unique, split: {bought: kind = 'buy'}, other: others}",
                    "kinds: {from: unique, split: {bought: kind = 'buy', others: amount > 1}, other: bought}",
                )
            ],
            ["12: streams.kinds.split: 'bought' is not a valid and unique name of an output"],
        ),
    ],
)
def test_problems_of_a_chain_have_the_line_of_their_part(changes: list[tuple[str, str]], expected: list[str]) -> None:
    found = chain_problems(*changes)
    assert [line[: len(begin)] for line, begin in zip(found, expected, strict=True)] == expected, found


JOINED = """\
name: joined
sources:
  orders:
    source: {log: {path: data/orders}}
    decode: {order_id: string, user: string, at: timestamp, amount: long, note: "string?", score: double}
    time: {field: at, delay: 1m, future: 1h}
    lateness: 10m
  payments:
    source: {log: {path: data/payments}}
    decode: {id: string, number: long, at: timestamp_millis, amount: long, note: "string?", score: double}
    time: {field: at, delay: 1m, future: 1h}
    lateness: 20m
streams:
  paid:
    from: orders
    join: {with: payments, by: {order_id: id}, before: 1m, after: 15m, how: left}
  large: {from: paid, where: amount_right > 100, select: [order_id, user, amount_right, at, at_right]}
  minutes:
    from: large
    key: user
    window: {tumbling: 5m}
    aggregate: {paid: sum(amount_right)}
sinks:
  to_paid: {from: paid, sink: {sqlite: {path: shop.db, table: paid}}}
  to_minutes: {from: minutes, sink: {sqlite: {path: shop.db, table: minutes}}}
"""


def test_a_join_reads_back_and_says_what_it_does(tmp_path: Path) -> None:
    graph = read(JOINED)
    assert problems_of(JOINED) == []
    assert read(to_yaml(graph)) == graph
    assert "by: {order_id: id}" in to_yaml(graph)
    same = read(JOINED.replace("{id: string", "{order_id: string").replace("{order_id: id}", "order_id"))
    assert read(to_yaml(same)) == same
    assert "by: [order_id]" in to_yaml(same)
    for made in (graph, same):
        (tmp_path / "joined.py").write_text(to_python_file(made))
        assert open_pipeline(str(tmp_path / "joined.py")).runnable() == made
    lines = [" ".join(line.split()) for line in to_text(graph).splitlines()]
    for line in (
        "stream paid (from orders, payments)",
        "join pairs of orders and payments with order_id = id",
        "the event time of payments is up to 1m before or up to 15m after that of orders",
        (
            "a record of orders without a partner is emitted alone once no partner can be on time; "
            "a late partner retracts it"
        ),
        "order by watermark: a record waits until the watermark of every partition has reached its own",
        "bound a row comes, or is retracted, until the watermark is 35m past it",
        "keeps a record of orders until the watermark is 35m past it",
        "a record of payments until the watermark is 11m past it",
        "rows one for each row of the join, by the places of its records",
    ):
        assert line in lines, line
    assert "has reached its end and 15m more, with the rows as of that watermark" in to_text(graph)
    assert "left join by order_id; 1m before to 15m after" in to_mermaid(graph)
    assert {name: field.type_text for name, field in ((one.name, one) for one in stream_of(graph, "paid").fields)} == {
        "order_id": "string",
        "user": "string",
        "at": "timestamp",
        "amount": "long",
        "note": "string?",
        "score": "double",
        "number": "long?",
        "at_right": "timestamp_millis?",
        "amount_right": "long?",
        "note_right": "string?",
        "score_right": "double?",
    }


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("{order_id: id}", "[]"), "16: streams.paid.join.by: is empty"),
        (("{order_id: id}", "order_id"), "16: streams.paid.join.by: in 'payments': there is no field 'order_id'"),
        (("{order_id: id}", "{orderid: id}"), "16: streams.paid.join.by: in 'orders': there is no field 'orderid'"),
        (
            ("{order_id: id}", "{order_id: number}"),
            "16: streams.paid.join.by: 'order_id' in 'orders' is string, but 'number' in 'payments' is long: derive",
        ),
        (("{order_id: id}", "note"), "16: streams.paid.join.by: in 'orders': 'note' can be null"),
        (("{order_id: id}", "score"), "16: streams.paid.join.by: in 'orders': 'score' is a double"),
        (("with: payments", "with: payment"), "16: streams.paid.join.with: there is no source or stream 'payment'"),
        (
            (" before: 1m, after: 15m,", ""),
            "16: streams.paid.join: every record would be kept forever: give the distance",
        ),
        (("after: 15m", "after: 90000d"), "16: streams.paid.join.after: is longer than a hundred years"),
        (
            ("    lateness: 20m\n", ""),
            "15: streams.paid.join: every record would be kept forever, because a partner can be late without limit: ",
        ),
        (('note: "string?", score', "amount_right: long, score"), "16: streams.paid.join: both have 'amount', and"),
        (("with: payments", "with: minutes"), "16: streams.paid.join.with: it depends on itself through"),
        (
            ("{tumbling: 5m}", "{session: 5m}"),
            "21: streams.minutes.window: a session cannot read the rows of a join",
        ),
        (
            ("table: paid}", "table: paid, key: [order_id]}"),
            "24: sinks.to_paid.sink.key: the rows of a table of records are identified by the",
        ),
        (("number: long", "row: long"), "24: sinks.to_paid.from: the field 'row' is a column of every table"),
        (("from: paid, where: amount_right > 100", "from: [paid, orders]"), "17: streams.large.from: the streams of a"),
    ],
)
def test_problems_of_a_join_have_their_lines(change: tuple[str, str], expected: str) -> None:
    text = JOINED
    assert change[0] in text
    text = text.replace(*change)
    found = problems_of(text)
    assert any(one.startswith(expected) for one in found), found


SAMPLED = """\
name: sampled
sources:
  readings:
    source: {log: {path: data/readings}}
    decode: {sensor: string, room: "string?", t: timestamp_millis, value: double}
    time: {field: t, delay: 1m, future: 1h}
streams:
  few: {from: readings, sample: {by: [sensor], every: 10}}
  minutes: {from: few, key: sensor, window: {tumbling: 1m}, aggregate: {highest: max(value)}}
sinks:
  to_few: {from: few, sink: {sqlite: {path: few.db, table: few}}}
  to_minutes: {from: minutes, sink: {sqlite: {path: few.db, table: minutes}}}
"""


def test_a_sample_reads_back_and_says_what_it_does(tmp_path: Path) -> None:
    graph = read(SAMPLED)
    assert problems_of(SAMPLED) == []
    assert read(to_yaml(graph)) == graph
    (tmp_path / "sampled.py").write_text(to_python_file(graph))
    assert open_pipeline(str(tmp_path / "sampled.py")).runnable() == graph
    lines = [" ".join(line.split()) for line in to_text(graph).splitlines()]
    for line in (
        "stream few (from readings)",
        "sample records 10, 20, 30 and so on of each sensor",
        "order by watermark: a record waits until the watermark of every partition has reached its own",
        "keeps the number of records of each key, forever",
        "rows one for each record, by source, partition and offset",
    ):
        assert line in lines, line
    assert "sample by sensor, 1 in 10" in to_mermaid(graph)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("every: 10", "every: 0"), "8: streams.few.sample.every: must be from 1 to 1,000,000,000, such as 10"),
        (("every: 10", "every: 2000000000"), "8: streams.few.sample.every: must be from 1 to 1,000,000,000"),
        (("by: [sensor]", "by: []"), "8: streams.few.sample.by: is empty; list the fields"),
        (("by: [sensor]", "by: room"), "8: streams.few.sample.by.0: 'room' can be null"),
        (("by: [sensor]", "by: sensr"), "8: streams.few.sample.by.0: there is no field 'sensr'"),
        (("by: [sensor]", "by: value"), "8: streams.few.sample.by.0: 'value' is a double"),
        (
            ("{from: few, key: sensor,", "{from: last, key: sensor,"),
            "9: streams.minutes.from: the rows of a table have no event time",
        ),
    ],
)
def test_problems_of_a_sample_have_their_lines(change: tuple[str, str], expected: str) -> None:
    assert change[0] in SAMPLED
    text = SAMPLED.replace(*change)
    if "last" in change[1]:
        text = text.replace("sinks:", "  last: {from: readings, table: {key: sensor}}\nsinks:")
    found = problems_of(text)
    assert any(one.startswith(expected) for one in found), found


def test_rows_that_change_have_no_sample() -> None:
    last = "  last: {from: readings, table: {key: sensor}}\n  few: {from: last, sample"
    found = problems_of(SAMPLED.replace("  few: {from: readings, sample", last))
    assert "9: streams.few.from: the rows of a table change, so they cannot be counted; sample records" in found


ITEMS = """\
name: items
sources:
  orders:
    source: {log: {path: data/orders}}
    decode:
      id: string
      user: {type: string, path: customer.id}
      t: timestamp
      items: array<struct<sku string, qty long?, `unit price` decimal(12,2), marks array<string>?>>
      tags: array<string?>?
    time: {field: t, delay: 1m, future: 1h}
    lateness: 1h
streams:
  lines: {from: orders, flat_map: items, position: line}
  marks: {from: lines, flat_map: marks, element: mark, outer: true}
  tags: {from: orders, flat_map: tags}
  minutes: {from: marks, key: [sku], window: {tumbling: 5m}, aggregate: {n: count(), sold: sum(qty)}}
  plain: {from: orders, select: [id, user]}
  minutes_of_orders: {from: orders, key: user, window: {tumbling: 5m}, aggregate: {n: count()}}
  one: {from: tags, select: [id, user, t, tags]}
sinks:
  to_minutes: {from: minutes, sink: {sqlite: {path: a.db, table: minutes}}}
  to_plain: {from: plain, sink: {sqlite: {path: a.db, table: plain}}}
  to_orders: {from: minutes_of_orders, sink: {sqlite: {path: a.db, table: orders}}}
  to_one: {from: one, sink: {sqlite: {path: a.db, table: one}}}
"""


OF_TABLES = """
name: shop
sources:
  shop:
    source: {postgres_cdc: {url: "postgresql://h/d", tables: [orders, shop.lines], log: data/shop}}
    decode: {at: {type: timestamp_millis, path: source.ts_ms}}
    time: {field: at, delay: 0s}
  other:
    source: {log: {path: data/other}}
    decode: {id: long, at: timestamp}
    time: {field: at, delay: 0s}
streams:
  orders: {from: shop, changes: {of: orders, decode: {id: long, total: "decimal(12,2)?"}}}
  order: {from: orders, table: {key: id}}
  rest: {from: other, table: {key: id}}
  lines: {from: shop, changes: {of: shop.lines, decode: {n: long}}}
  line: {from: lines, table: {key: n}}
sinks:
  to_line: {from: line, sink: {sqlite: {path: a.db, table: line}}}
  to_order: {from: order, sink: {sqlite: {path: a.db, table: order_}}}
  to_rest: {from: rest, sink: {sqlite: {path: a.db, table: rest}}}
"""


def test_the_changes_of_a_table_have_its_columns_and_the_fields_of_the_source() -> None:
    graph = read(OF_TABLES)
    assert [one.text for one in validate(graph) if one.level == "error" or one.where.startswith("streams")] == []
    fields = {one.name: one.type_text for one in stream_of(graph, "order").fields}
    assert fields == {"at": "timestamp_millis", "id": "long", "total": "decimal(12,2)?"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("of: orders", "of: order"), "streams.orders.changes.of: 'shop' does not follo"),
        (("of: orders", "of: 'a b'"), "streams.orders.changes.of: 'a b' is not the name"),
        (
            ("{from: shop, ch", "{from: other, ch"),
            "streams.orders.from: 'other' has no changes of rows: its source nee",
        ),
        (
            ("{from: shop, ch", "{from: rest, ch"),
            "streams.orders.from: 'rest' is not a source: `changes` are read from",
        ),
        (
            ('changes: {of: orders, decode: {id: long, total: "decimal(12,2)?"}}', "where: '\"at\" IS NOT NULL'"),
            "streams.order.from: has the rows of several tables",
        ),
        (("{id: long, total", "{AT: long, total"), "streams.orders.changes.decode.AT: 'AT' and 'at' "),
        (('{id: long, total: "decimal(12,2)?"}', "{}"), "streams.orders.changes.decode: is empty; list th"),
        (("tables: [orders, shop.lines]", "table: orders, tables: [a]"), "sources.shop.source.postgres_cdc needs eit"),
        (("tables: [orders, shop.lines]", "key: id, tables: [a]"), "sources.shop.source.postgres_cdc has `tables` a"),
        (("tables: [orders, shop.lines], log: data/shop", "log: data/shop"), "postgres_cdc needs either `table` or"),
        (("shop.lines]", "shop.orders]"), "sources.shop.source.postgres_cdc.tables.1: there"),
        (
            ("source.ts_ms}}", "source.ts_ms}, k: {type: long, tombstones: true}}"),
            "streams.orders.from: a tombstone has",
        ),
        (("shop.lines]", "'a b']"), "sources.shop.source.postgres_cdc.tables.1: 'a b'"),
        (("log: data/shop", 'servers: "h:1", topic: t'), "sources.shop.source.postgres_cdc.topic: keeps th"),
    ],
)
def test_changes_that_cannot_be_read_are_refused(change: tuple[str, str], expected: str) -> None:
    text = OF_TABLES.replace(*change, 1)
    assert text != OF_TABLES
    try:
        found = [one.text for one in validate(read(text))]
    except PipelineError as exc:
        found = [str(exc)]
    assert any(expected in one for one in found), found


def test_elements_read_back_and_say_what_they_are(tmp_path: Path) -> None:
    graph = read(ITEMS)
    assert [one.level for one in validate(graph) if one.level == "error"] == []
    assert read(to_yaml(graph)) == graph
    (tmp_path / "items.py").write_text(to_python_file(graph))
    assert open_pipeline(str(tmp_path / "items.py")).pipeline == graph
    fields = {one.name: one.type_text for one in stream_of(graph, "marks").fields}
    assert fields == {
        "id": "string",
        "user": "string",
        "t": "timestamp",
        "tags": "array<string?>?",
        "sku": "string",
        "qty": "long?",
        "unit price": "decimal(12,2)",
        "line": "long",
        "mark": "string?",
    }
    text = to_text(graph)
    assert "user string (at customer.id)" in text
    assert "a record without elements becomes one record with null in their place" in text
    assert "outer flat_map marks" in to_mermaid(graph)
    assert stream_of(graph, "minutes").fields[2].name == "sku"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            ("flat_map: items", "flat_map: item"),
            "14: streams.lines.flat_map: 'item' is not a field of the stream; its ",
        ),
        (("flat_map: items", "flat_map: user"), "14: streams.lines.flat_map: 'user' is a string, not an array of the"),
        (("struct<sku", "struct<ID"), "14: streams.lines.flat_map: there are two fields 'ID' (SQL ignores case): "),
        (("position: line", "position: SKU"), "14: streams.lines.position: there is a field 'SKU' already"),
        (("position: line", "position: __n"), "14: streams.lines.position: '__n' begins with two"),
        (("position: line", "element: item"), "14: streams.lines.element: an element is a struct with the fields"),
        (("element: mark", "element: user"), "15: streams.marks.element: there are two fields 'user'"),
        (
            ("key: user,", "key: items,"),
            "19: streams.minutes_of_orders.key.0: 'items' is an array, and only flat_map",
        ),
        (
            ("n: count()}}\n  one", "n: max(tags)}}\n  one"),
            "19: streams.minutes_of_orders.aggregate.n: 'tags' is an arr",
        ),
        (
            ("select: [id, user]}", 'where: "items IS NULL"}'),
            "18: streams.plain.where: 'items IS NULL': 'items' is an array, which expressions cannot use",
        ),
        (
            ("select: [id, user]}", "deduplicate: {by: tags, within: 1m}}"),
            "18: streams.plain.deduplicate.by.0: 'tags' is",
        ),
        (("from: tags, select: [id, user, t, tags]", "from: [tags, orders]"), "20: streams.one.from: the streams of a"),
        (
            ("qty long?", "sku long"),
            "9: sources.orders.decode.items: there are two fields 'sku' in struct<sku string, ",
        ),
        (
            ("path: customer.id", "path: customer..id"),
            "7: sources.orders.decode.user.path: must be names separated by dots",
        ),
    ],
)
def test_problems_of_elements_have_their_lines(change: tuple[str, str], expected: str) -> None:
    assert change[0] in ITEMS
    found = problems_of(ITEMS.replace(*change))
    assert any(one.startswith(expected) for one in found), found


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("element: mark", "elment: mark"), "15: 'elment' is not a key of streams.marks; did you mean 'element'?"),
        (("array<string?>?\n", "list<string>\n"), "'list' is not a type; did you mean array<...>?"),
        (
            ("array<string?>?\n", "array<strng>\n"),
            "10: sources.orders.decode.tags: 'strng' is not a type; did you mean",
        ),
        (("array<string?>?\n", "array<string\n"), "'array<string': a '>' or a comma is missing at the end"),
        (("array<string?>?\n", "array<\n"), "'array<': the text ends too early"),
        (("array<string?>?\n", "array<struct<>>\n"), "'>' is not the name of a field; put it in `backquotes`"),
        (
            ("array<string?>?\n", "array<struct<a:string>>\n"),
            "a field and its type are not separated by a colon: write a TYPE",
        ),
        (("array<string?>?\n", "array<array<string>>\n"), "the elements of an array cannot be arrays"),
        (
            ("array<string?>?\n", "struct<a long>\n"),
            "a struct can only be the element of an array; a field in an object has",
        ),
        (("array<string?>?\n", "array<string> long\n"), "'long' is not expected here"),
        (("array<string?>?\n", "array<struct<a struct<b long>>>\n"), "'a' is a struct in a struct"),
    ],
)
def test_types_that_cannot_be_read(change: tuple[str, str], expected: str) -> None:
    assert change[0] in ITEMS
    with pytest.raises(PipelineError) as refused:
        read(ITEMS.replace(*change))
    assert expected in str(refused.value)


def test_a_union_has_elements_of_two_arrays_of_one_record() -> None:
    text = ITEMS.replace(
        "  one: {from: tags, select: [id, user, t, tags]}",
        "  skus: {from: lines, select: [id, sku]}\n"
        "  names: {from: tags, derive: {sku: \"coalesce(tags, '-')\"}, select: [id, sku]}\n"
        "  one: {from: [skus, names]}",
    )
    assert problems_of(text) == []
    lines = [" ".join(line.split()) for line in to_text(read(text)).splitlines()]
    assert (
        "union a row of several streams is in the union once for each stream, identified by the stream's name" in lines
    )


def test_a_file_with_one_stream_has_no_arrays() -> None:
    found = problems_of(
        "name: a\nsource: {log: {path: a}}\n"
        "decode: {k: string, t: timestamp, items: array<long>}\n"
        "time: {field: t, delay: 1m}\nkey: k\nwindow: {tumbling: 5m}\naggregate: {n: count()}\n"
        "sink: {sqlite: {path: a.db, table: a}}\n"
    )
    assert found == ["3: decode.items: an array needs a flat_map, which only a file with sources and streams can have"]


TABLES = """\
name: tables
sources:
  rates:
    source: {log: {path: data/rates}}
    decode: {code: string, number: long, held_from: timestamp, rate: double, note: "string?", gone: boolean}
    time: {field: held_from, delay: 1m, future: 1h, idle: 1m}
  sales:
    source: {log: {path: data/sales}}
    decode: {id: string, currency: string, at: timestamp, amount: long, rate: double, note: "string?"}
    time: {field: at, delay: 1m, future: 1h}
    lateness: 1h
streams:
  rate: {from: rates, table: {key: code, deleted: gone}}
  priced:
    from: sales
    lookup: {table: rate, by: {currency: code}, revise: 2h, how: left}
  noted:
    from: sales
    lookup: {table: rate, by: {currency: code}, as_of: order, broadcast: true}
  sale: {from: sales, table: {key: [id]}}
  valued:
    from: sale
    join: {with: rate, by: {currency: code}, how: left}
  hours:
    from: priced
    key: currency
    window: {tumbling: 1h}
    aggregate: {amount: sum(amount)}
sinks:
  to_priced: {from: priced, sink: {sqlite: {path: shop.db, table: priced}}}
  to_noted: {from: noted, sink: {sqlite: {path: shop.db, table: noted}}}
  to_valued: {from: valued, sink: {sqlite: {path: shop.db, table: valued}}}
  to_hours: {from: hours, sink: {sqlite: {path: shop.db, table: hours}}}
  to_sale: {from: sale, sink: {sqlite: {path: shop.db, table: sale}}}
"""


RATE = "rate: {from: rates, table: {key: code, deleted: gone}}"
OWN_RATES = """\
of_sales: {from: sales, derive: {code: currency, gone: rate < 0}, select: [code, rate, gone]}
  of_rates: {from: rates, select: [code, rate, gone]}
  all_rates: {from: [of_rates, of_sales]}
  rate: {from: all_rates, table: {key: code, deleted: gone}}"""


def test_tables_read_back_and_say_what_they_do(tmp_path: Path) -> None:
    graph = read(TABLES)
    assert problems_of(TABLES) == []
    assert read(to_yaml(graph)) == graph
    (tmp_path / "tables.py").write_text(to_python_file(graph))
    assert open_pipeline(str(tmp_path / "tables.py")).runnable() == graph
    assert to_dict(graph)["streams"]["noted"] == {
        "from": "sales",
        "lookup": {"table": "rate", "by": {"currency": "code"}, "as_of": "order", "broadcast": True},
    }
    assert to_dict(graph)["streams"]["valued"]["join"] == {"with": "rate", "by": {"currency": "code"}, "how": "left"}
    lines = [" ".join(line.split()) for line in to_text(graph).splitlines()]
    for line in (
        "table the last record of each code",
        "a record with gone removes the row",
        "keeps the row of each key",
        "stream priced (from sales)",
        "lookup the row of rate with currency = code",
        "the row that was valid at the record's event time",
        "a row that arrives before the watermark is 2h past the record replaces it",
        "a record without a row has null in the fields of the table",
        "keeps the rows of each key of rate until the watermark is 2h past their end",
        "each removed key forever, because its versions have no lateness",
        "a record of sales until the watermark is 2h past it",
        "the row that is current when the record is processed, in watermark order; no later row replaces it",
        "a record without a row is dropped",
        "broadcast: each of 8 key groups has the whole table and a part of the records",
        "keeps in each key group the row of each key of rate",
        "join pairs of rows of sale and rate with currency = code",
        "a row of sale without a partner is emitted alone",
        "keeps the rows of both tables",
        "rows one for each id",
        "rows one for each record, by source, partition and offset",
    ):
        assert line in lines, line
    chart = to_mermaid(graph)
    assert "table by code" in chart
    assert "look up in rate by currency, as of event time" in chart
    assert "look up in rate by currency, as of order, broadcast" in chart
    assert "left join by currency" in chart
    # a lookup takes a table whether or not that has an operator of its own
    alone = read(TABLES.replace("with: rate, by: {currency: code}", "with: sale, by: id"))
    said = to_text(alone)
    rate = said[said.index("stream rate ") : said.index("stream sale ")]
    assert "keeps" not in rate.split("stream priced")[0]
    assert "order" not in rate.split("stream priced")[0]
    fields = {name: [one.name for one in stream_of(graph, name).fields] for name in ("priced", "valued")}
    assert fields["priced"] == [
        *("id", "currency", "at", "amount", "rate", "note"),
        *("number", "held_from", "rate_right", "note_right", "gone"),
    ]
    assert fields["valued"] == fields["priced"]
    assert stream_of(graph, "valued").key == ("id",)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], []),
        ([("streams:\n", "key_groups: 1\nstreams:\n")], ["20: there is only one key group, so nothing is spread"]),
        (
            [(RATE, OWN_RATES)],
            ["22: 'rate' is made of all records of 'sales', so each record would be sent to all 8 key groups"],
        ),
        # it is made of some of them
        ([(RATE, OWN_RATES), ("select: [code, rate, gone]}\n", "select: [code, rate, gone], where: rate < 0}\n")], []),
        # and here of no more than of those that are looked up
        (
            [
                (RATE, OWN_RATES),
                ("  of_sales: {from: sales", "  large: {from: sales, where: amount > 9}\n  of_sales: {from: large"),
            ],
            [],
        ),
    ],
)
def test_a_broadcast_that_spreads_nothing_is_said(changes: list[tuple[str, str]], expected: list[str]) -> None:
    text = replaced(TABLES, changes)
    assert_warnings(text, "streams.noted.lookup.broadcast", expected)
    assert problems_of(text) == []


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (
            "dear: {from: rate, where: rate > 1}",
            (
                "'dear' is a selection of the table 'rate', but a lookup needs the table itself: look rows up in "
                "'rate', and apply the selection after the lookup; or make a table of the same records in which "
                "rows are deleted if the condition is not true: "
                '{from: rates, table: {key: [code], deleted: "(gone) OR (rate > 1) IS NOT TRUE"}}'
            ),
        ),
        (
            "dear: {from: rate, derive: {twice: rate * 2}}",
            (
                "'dear' is a selection of the table 'rate', but a lookup needs the table itself: look rows up in "
                "'rate', and apply the selection after the lookup"
            ),
        ),
        (
            "dear_ones: {from: rate, where: rate > 1}\n  dear: {from: dear_ones, where: rate > 2}",
            "'dear' is a selection of the table 'rate', but a lookup needs the table itself",
        ),
        ("dear: {from: hours, where: n > 1}", "'dear' is the result of an aggregate, which cannot be looked up"),
        ("dear: {from: rates, where: rate > 1}", "'dear' is not a table: use a stream with `table`"),
        ("dear: {from: dear, where: rate > 1}", "'dear' is not a table: use a stream with `table`"),
    ],
)
def test_a_selection_of_a_table_is_no_table_and_the_remedy_is_named(selection: str, expected: str) -> None:
    changes = [
        ("  priced:\n", f"  {selection}\n  priced:\n"),
        ("table: rate, by: {currency", "table: dear, by: {currency"),
    ]
    found = problems_of(replaced(TABLES, changes))
    assert any(f"streams.priced.lookup.table: {expected}" in one for one in found), found


def test_the_table_behind_a_selection_is_the_one_to_look_up() -> None:
    changes = [("  priced:\n", "  dear: {from: rate, where: rate > 1}\n  priced:\n")]
    joined = [
        (
            "lookup: {table: rate, by: {currency: code}, revise: 2h, how: left}",
            "join: {with: dear, by: {currency: code}}",
        )
    ]
    found = problems_of(replaced(TABLES, changes + joined))
    assert any("look rows up in 'rate': lookup: {table: rate, by: ...}" in one for one in found), found


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            ("key: code, deleted", "key: [], deleted"),
            "13: streams.rate.table.key: is empty; list the fields that identify",
        ),
        (("key: code, deleted", "deleted"), "13: streams.rate.table lacks 'key'"),
        (("key: code, deleted", "key: cod, deleted"), "13: streams.rate.table.key.0: there is no field 'cod'"),
        (("key: code, deleted", "key: note, deleted"), "13: streams.rate.table.key.0: 'note' can be null"),
        (("key: code, deleted", "key: rate, deleted"), "13: streams.rate.table.key.0: 'rate' is a double"),
        (("key: code, deleted", "key: [code, code], deleted"), "13: streams.rate.table.key.1: 'code' is given twice"),
        (("deleted: gone", "deleted: number"), "13: streams.rate.table.deleted: 'number' is not a condition"),
        (("deleted: gone", "deleted: went"), "13: streams.rate.table.deleted: "),
        (
            ("table: rate, by: {currency: code}, rev", "table: rates, by: {currency: code}, rev"),
            "16: streams.priced.lookup.table: 'rates' is not a table: use a stream with `table`",
        ),
        (
            ("table: rate, by: {currency: code}, rev", "table: rat, by: {currency: code}, rev"),
            "16: streams.priced.lookup.table: there is no source or stream 'rat'; did you mean 'rate'?",
        ),
        (
            ("table: rate, by: {currency: code}, rev", "table: hours, by: {currency: code}, rev"),
            "16: streams.priced.lookup.table: 'hours' is the result of an aggregate, which cannot be looked up",
        ),
        (
            ("table: rate, by: {currency: code}, rev", "table: valued, by: {currency: code}, rev"),
            "16: streams.priced.lookup.table: 'valued' is the result of a join of tables, which cannot be looked up",
        ),
        (
            ("{currency: code}, rev", "{currency: note}, rev"),
            "16: streams.priced.lookup.by: the key of the table 'rate' is code",
        ),
        (
            ("{currency: code}, rev", "{amount: code}, rev"),
            "16: streams.priced.lookup.by: 'amount' in 'sales' is long, but 'code' in 'rate' is string: derive",
        ),
        (
            ("{currency: code}, rev", "{note: code}, rev"),
            "16: streams.priced.lookup.by: in 'sales': 'note' can be null",
        ),
        (
            ("revise: 2h", "as_of: order, revise: 2h"),
            "16: streams.priced.lookup.revise: applies to `as_of: event_time`; as of order",
        ),
        (("revise: 2h", "revise: -2h"), "16: streams.priced.lookup.revise: '-2h' is not a duration"),
        (("revise: 2h", "revise: 90000d"), "16: streams.priced.lookup.revise: is longer than a hundred years"),
        (
            ("revise: 2h, how: left", "revise: 2h, how: full"),
            "16: streams.priced.lookup.how must be inner or left, not 'full'",
        ),
        (
            ("revise: 2h, how", "revise: 2h, broadcast: 4, how"),
            "16: streams.priced.lookup.broadcast must be true or false, not '4'",
        ),
        (
            ("with: rate, by", "with: rate, broadcast: true, by"),
            "23: 'broadcast' is not a key of streams.valued.join",
        ),
        (
            (
                "from: sales\n    lookup: {table: rate, by: {currency: code}, as",
                "from: valued\n    lookup: {table: rate, by: {currency: code}, as",
            ),
            "18: streams.noted.from: the rows of a table change; look up rows for records",
        ),
        (
            (
                "from: sales\n    lookup: {table: rate, by: {currency: code}, as",
                "from: priced\n    lookup: {table: rate, by: {currency: code}, as",
            ),
            "18: streams.noted.from: the rows of a join change; look up rows for records",
        ),
        (
            ("    lateness: 1h\n", ""),
            (
                "15: streams.priced.lookup: every version of a row would be kept forever, because a record "
                "can be late without limit: give sources.sales a lateness"
            ),
        ),
        (
            ("from: sale\n", "from: sales\n"),
            (
                "23: streams.valued.join: every record would be kept forever: give the distance of partners in "
                "event time, such as after: 15m; or look rows up in 'rate': lookup: {table: rate, by: ...}"
            ),
        ),
        (
            ("with: rate", "with: rates"),
            (
                "23: streams.valued.join: every record would be kept forever: give the distance of partners in "
                "event time, such as after: 15m, or join two tables"
            ),
        ),
        (
            ("how: left}\n  hours", "after: 5m}\n  hours"),
            "22: streams.valued.from: a table has no event time: join it with a table",
        ),
        (
            ("from: priced\n", "from: valued\n"),
            "25: streams.hours.from: the rows of a table have no event time, so no window contains them; use",
        ),
        (
            ("sale: {from: sales, table: {key: [id]}}", "sale: {from: valued, table: {key: id}}"),
            "20: streams.sale.from: it depends on itself",
        ),
        (
            ("sale: {from: sales, table: {key: [id]}}", "sale: {from: priced, table: {key: id}}"),
            "20: streams.sale.from: a table is made of records, but the rows of a join can be retracted",
        ),
        (
            ("sale: {from: sales, table: {key: [id]}}", "sale: {from: rate, deduplicate: {by: code, within: 1h}}"),
            "20: streams.sale.from: the rows of a table change, so they have no duplicates; deduplicate records",
        ),
        (
            ("table: valued}", "table: valued, key: [id]}"),
            "32: sinks.to_valued.sink.key: the rows of a table of records are identified by id; remove the key",
        ),
        (
            ("from: priced, sink", "from: rate.versions, sink"),
            "30: sinks.to_priced.from: there is no source or stream 'rate.versions'",
        ),
    ],
)
def test_problems_of_tables_have_their_lines(change: tuple[str, str], expected: str) -> None:
    assert change[0] in TABLES
    try:
        found = problems_of(TABLES.replace(*change))
    except PipelineError as exc:
        found = [f"{str(one.place).rpartition(':')[2]}: {one.message}" for one in each_error(exc)]  # it cannot be read
    assert any(one.startswith(expected) for one in found), found


NO_PARTNER = "has no `idle`: the watermark decides that a record has no partner, and an idle partition"
IS_TABLE = "has no `idle`: a table seldom changes, and streams of it and other sources wait until it does"


@pytest.mark.parametrize(
    ("text", "changes", "expected"),
    [
        (JOINED, [], [f"6: {NO_PARTNER}", f"11: {NO_PARTNER}"]),
        (JOINED, [("delay: 1m, future: 1h}", "delay: 1m, future: 1h, idle: 1m}")], [f"11: {NO_PARTNER}"]),
        # pairs wait for nothing, and a window over them for both
        (JOINED, [("how: left", "how: inner")], []),
        (
            JOINED,
            [("how: left", "how: inner"), ("at, delay: 1m", "at, delay: 90s")],
            ["6: is 1m30s, and 1m for 'payments', whose records wait 30s longer for it in 'minutes'"],
        ),
        (
            JOINED,
            [("at, delay: 1m", "at, delay: {by_partition: {default: 1m, 3: 10m}}")],
            [
                f"6: {NO_PARTNER}",
                f"11: {NO_PARTNER}",
                "6: is 10m, and 1m for 'payments', whose records wait 9m longer for it in 'paid'",
            ],
        ),
        (
            JOINED,
            [("how: left", "how: inner"), ("at, delay: 1m", "at, delay: {by_partition: {default: 90s}}")],
            ["6: is 1m30s, and 1m for 'payments', whose records wait 30s longer for it in 'minutes'"],
        ),
        (TABLES, [], [f"10: {IS_TABLE}"]),
        # sales wait for the rates; versions that wait for sales delay nothing in a lookup, but do in a join of tables
        (
            TABLES,
            [("held_from, delay: 1m", "held_from, delay: 2m")],
            [f"10: {IS_TABLE}", "6: is 2m, and 1m for 'sales', whose records wait 1m longer for it in 'priced'"],
        ),
        (
            TABLES,
            [("held_from, delay: 1m", "held_from, delay: 30s")],
            [f"10: {IS_TABLE}", "10: is 1m, and 30s for 'rates', whose records wait 30s longer for it in 'valued'"],
        ),
    ],
)
def test_a_source_that_holds_another_back_is_said(
    text: str, changes: list[tuple[str, str]], expected: list[str]
) -> None:
    assert_warnings(replaced(text, changes), "sources.", expected)
