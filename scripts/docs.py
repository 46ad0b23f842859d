#!/usr/bin/env python3
"""Writes what docs have from the code.

That is docs/reference/cli.md from the commands, docs/reference/python.md from docstrings, the keys in
docs/reference/pipeline.md and the schema beside it from the sections, the keys in docs/connectors and
docs/guides/formats.md from the connectors and formats, the rules in docs/guides/doctor.md from those of
`windrow doctor`, the beginnings of the sections of docs/guides/alerts.md from the conditions of alerts, and the line
numbers of links to code in docs/concepts/a-record.md.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click

import windrow
from windrow.authoring.sections import FORMAT, GRAPH, PIPELINE, RULES_PIPELINE, SINK, SOURCE
from windrow.cli import COMMANDS, main
from windrow.cli.schema import schema_text
from windrow.connectors.registry import OWN
from windrow.declare.formats import REGISTRY
from windrow.telemetry.health import CONDITIONS, Condition
from windrow.tools.doctor import RULES

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"
TARGET = REFERENCE / "cli.md"
PIPELINE_TARGET = REFERENCE / "pipeline.md"
CONNECTOR_TARGETS = (
    *sorted((REFERENCE.parent / "connectors").glob("*.md")),
    REFERENCE.parent / "guides" / "formats.md",
)
PYTHON_TARGET = REFERENCE / "python.md"
SCHEMA_TARGET = REFERENCE / "pipeline.schema.json"
DOCTOR_TARGET = REFERENCE.parent / "guides" / "doctor.md"
ALERTS_TARGET = REFERENCE.parent / "guides" / "alerts.md"
RECORD_TARGET = REFERENCE.parent / "concepts" / "a-record.md"
WIDTH = 120
FEW = 45
"""Words of a function that stands in a list, without a heading."""
HEAD = """\
# Commands

<!-- Written by scripts/docs.py (`make docs`) from the commands: do not edit it by hand. -->

`windrow COMMAND --help` prints the text of this page, and `python -m windrow` is the same command. A duration is a
number and a unit, or several: `250ms`, `90s`, `1h30m` (units `us`, `ms`, `s`, `m`, `h`, `d`). Progress goes to stderr.
[Errors](errors.md) has the exit codes, and the JSON object of an error.

## Common options

`PIPELINE` is a YAML or SQL file, or `FILE.py[:VARIABLE]` for a pipeline written in Python. All commands have the first
two of these options, and those with a `PIPELINE` the next three; commands that start Spark list the last two:

{options}
"""
PIPELINE_WORDS = re.compile(r"(Each )?PIPELINE is YAML or SQL, or FILE\.py\S+ for a pipeline written in Python\. ")
"""What the help of many commands says, and the page only once."""
COMMON = 5
"""An option that at least so many commands have, with the same help, is described only once."""
IMPLIED = ("--help", "--json"), ("--only", "--var", "--profile")
"""Common options that all commands have, and those with a pipeline, which their sections do not list."""


def page() -> str:
    """Return the page."""
    with click.Context(main, info_name="windrow", **main.context_settings) as top:
        found: list[tuple[str, click.Command, click.Context]] = [("windrow", main, top)]
        for name in COMMANDS:
            command = main.get_command(top, name)
            if command is None:
                msg = f"there is no command {name!r}"
                raise LookupError(msg)
            context = click.Context(command, info_name=name, parent=top)
            found.append((f"windrow {name}", command, context))
            for action, one in command.commands.items() if isinstance(command, click.Group) else ():
                found.append((f"windrow {name} {action}", one, click.Context(one, info_name=action, parent=context)))
        options = {title: _options(command, context) for title, command, context in found}
        numbers = Counter(option for of in options.values() for option in of)
        common = [option for option, number in numbers.items() if number >= COMMON]
        parts = [HEAD.format(options="".join(map(_option, common)).strip())]
        parts += ["".join(_section(*one, options[one[0]], common)) for one in found]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts))


def _options(command: click.Command, context: click.Context) -> list[tuple[str, str]]:
    """Return the names and the help of each option."""
    options = (parameter for parameter in command.get_params(context) if isinstance(parameter, click.Option))
    return [record for option in options if (record := option.get_help_record(context)) is not None]


def _option(record: tuple[str, str]) -> str:
    names, help_ = record[0].replace(" RANGE", ""), record[1]
    return f"{_wrapped(f'- `{names}`: {help_}')}\n"


def _section(
    title: str,
    command: click.Command,
    context: click.Context,
    options: Sequence[tuple[str, str]],
    common: Sequence[tuple[str, str]],
) -> Iterator[str]:
    """Write a command: its usage, what it does, and its options."""
    yield f"## {title}\n\n```\n{' '.join([title, *command.collect_usage_pieces(context)])}\n```\n\n"
    for paragraph in (command.help or "").split("\n\n"):
        yield f"{_wrapped(PIPELINE_WORDS.sub('', ' '.join(paragraph.split())))}\n\n"
    if isinstance(command, click.Group):
        anchor = title.replace(" ", "-")
        names = ", ".join(f"[`{name}`](#{anchor}-{name})" for name in command.list_commands(context))
        yield f"{_wrapped(f'Commands, which `--help` describes in a line each: {names}.')}\n\n"
    yield from (_option(option) for option in options if option not in common)
    names = [option[0].removeprefix("-h, ").split()[0] for option in options]
    implied = {
        name for of in IMPLIED[: 1 + any(str(one.name).startswith("pipeline") for one in command.params)] for name in of
    }
    if not isinstance(command, click.Group) and not implied <= set(names):
        msg = f"{title} lacks {', '.join(sorted(implied - set(names)))}"
        raise LookupError(msg)
    shared = [name for name, option in zip(names, options, strict=True) if option in common and name not in implied]
    if shared:
        listed = ", ".join(f"`{name}`" for name in shared)
        yield f"{_wrapped(f'- {listed}: [common options](#common-options)')}\n"


# code and links stay on one line
_UNBROKEN = re.compile(r"`[^`]*`|\[[^]]*\]\([^)]*\)")


def _wrapped(text: str) -> str:
    """Break a paragraph, or an item of a list, into lines."""
    words = _UNBROKEN.sub(lambda match: match[0].replace(" ", "\0"), " ".join(text.split()))
    indent = "  " if words.startswith("- ") else ""
    filled = textwrap.fill(words, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return filled.replace("\0", " ")


_KEYS = re.compile(
    r"(^## (.+)\n(?:(?!^## ).*\n)*?<!-- keys(?: of ([a-z]+))? -->\n)(?:.*\n)*?(<!-- end of keys -->\n)", re.MULTILINE
)


_OF_CONNECTOR = re.compile(r"- `(?:source|sink)\.\w+\.")
_NAMED_KEYS = re.compile(r"(<!-- keys of ([\w.]+) -->\n)(?:.*\n)*?(<!-- end of keys -->\n)")


def _listed(items: Iterable[str]) -> str:
    return "".join(f"{_wrapped(item)}\n" for item in items)


def with_keys(text: str) -> str:
    """Return the page of the pipeline file, with the list of keys of each section written anew.

    Of the sections `source` and `sink` it has the kinds; the keys of a kind are on the page of its connector.
    """
    keys = {key.name: list(key.document("")) for key in PIPELINE.keys}
    described = {item.partition("): ")[2] for items in keys.values() for item in items}
    for name, whole in (("streams", GRAPH), ("rules", RULES_PIPELINE)):
        keys[name] = [item for item in dict.fromkeys(whole.document("")) if item.partition("): ")[2] not in described]

    def written(match: re.Match[str]) -> str:
        begin, title, of, end = match.groups()
        items = [item for item in keys.pop(of or title) if not _OF_CONNECTOR.match(item)]
        return f"{begin}\n{_listed(items)}\n{end}"

    written_text = _KEYS.sub(written, text)
    if keys:
        msg = f"the page has no list of keys for {', '.join(keys)}"
        raise LookupError(msg)
    return written_text


def connector_keys() -> dict[str, list[str]]:
    """Map `source.KIND` and `sink.KIND` of each connector, and each format, to its list of keys.

    The keys of a format are not those of each connector that has the format, and those of a schema registry not those
    of each format.
    """
    keys = {
        f"{role}.{kind}": list(spec.kinds[kind].spec.document(f"{role}.{kind}"))
        for role, spec in (("source", SOURCE), ("sink", SINK))
        for kind in OWN
        if kind in spec.kinds
    }
    keys |= {f"format.{kind}": list(spec.document(f"format.{kind}")) for kind, spec in FORMAT.kinds.items()}
    own = {name: [item for item in items if not _OF_FORMAT.match(item)] for name, items in keys.items()}
    return own | {"registry": list(REGISTRY.document("registry"))}


_OF_FORMAT = re.compile(r"- `(?:source\.\w+\.(?:key_)?format|sink\.\w+\.encoding|format\.\w+\.registry)\.")


def with_connector_keys(pages: Mapping[Path, str]) -> dict[Path, str]:
    """Return the pages of connectors and formats, with each list of keys written anew.

    Raise LookupError if a page lists the keys of nothing, or if none lists those of a connector or a format.
    """
    keys = connector_keys()

    def written(match: re.Match[str]) -> str:
        begin, name, end = match.groups()
        return f"{begin}\n{_listed(keys.pop(name))}\n{end}"

    written_pages = {path: _NAMED_KEYS.sub(written, text) for path, text in pages.items()}
    if keys:
        msg = f"docs/connectors and docs/guides/formats.md have no list of keys for {', '.join(keys)}"
        raise LookupError(msg)
    return written_pages


_RULES = re.compile(r"(<!-- rules -->\n)(?:.*\n)*?(<!-- end of rules -->\n)")


def with_rules(text: str) -> str:
    """Return the page of `windrow doctor`, with the table of its rules written anew."""
    rows = [
        f"| {rule.title} (`{rule.name}`) | {rule.question} | {rule.when('Serious')} | {rule.when('Advice')} |\n"
        for rule in RULES
    ]
    table = "".join(["| rule | looks at | serious | advice |\n", "| --- | --- | --- | --- |\n", *rows])
    written_text, number = _RULES.subn(lambda match: f"{match[1]}\n{table}\n{match[2]}", text)
    if number != 1:
        msg = "the page has no place for the table of rules"
        raise LookupError(msg)
    return written_text


_ALERT = re.compile(r"(^#+ ([a-z-]+)\n\n<!-- condition -->\n)(?:.*\n)*?(<!-- end of condition -->\n)", re.MULTILINE)
ALERT_WORDS = {
    "dead": "them with `windrow redrive spend.yaml --list`",
    "fault": "whether the broker and the database answer, and `spark.log` in the checkpoint's folder",
    "parts": "where its steps spend their time (`windrow doctor spend.yaml --no-restore`)",
    "producers": "its producer is",
    "savepoint": "windrow savepoint spend.yaml --to spend-today",
    "servers": "the database",
    "status": "windrow status spend.yaml",
    "tune": "windrow tune spend.yaml",
}
"""What the advice of a condition names, for a run of spend.yaml; an alert has the words of its own run."""


def with_alerts(text: str) -> str:
    """Return the page of alerts, whose section for each alert begins with its condition and advice."""

    def beginning(condition: Condition) -> str:
        advice = condition.advice.format(**ALERT_WORDS)
        return _wrapped(
            f"{condition.measure[0].upper()}{condition.measure[1:]}. {advice}. "
            f"Prometheus: `{condition.rule}`, {condition.severity}."
        )

    left: dict[str, Condition] = {condition.name: condition for condition in CONDITIONS.values()}
    written = _ALERT.sub(lambda match: f"{match[1]}\n{beginning(left.pop(match[2]))}\n\n{match[3]}", text)
    if left:
        msg = f"the page has no section for {', '.join(left)}"
        raise LookupError(msg)
    return written


PYTHON_HEAD = """\
# Python

<!-- Written by scripts/docs.py (`make docs`) from docstrings: do not edit it by hand. -->

`import windrow as wr` has the functions below. A pipeline is built by methods that each return the next stage:
`wr.log(...)`, `decode`, `event_time`, `key_by`, `window`, `aggregate`, `emit`, `to`. `to` returns a
[pipeline](#pipelines). [From Python and in a notebook](../guides/python.md) has examples.

A `Path` is text or a `pathlib.Path`; a `Duration` text such as `"10m"`, or a `timedelta`; a `Moment` ISO 8601 text, or
a `datetime`, in UTC unless it has a zone; a `PipelineLike` a pipeline, the path of its file, or a result of it. An
argument whose default is None can be None.

All errors are `wr.WindrowError`, the class to catch. Its subclasses are the [kinds of errors](errors.md#errors);
`error.exit_code` is the exit code of a command, and `message` of an InputError its text without the place. A function
or a stage raises PipelineError for an invalid argument, such as a duration.
"""
PYTHON_PARTS = (
    ("Read pipelines", {"windrow": ()}),
    ("Sources and sinks", {"windrow.client.fluent.connectors": ()} | {of.partition(":")[0]: () for of in OWN.values()}),
    ("Formats of records", {"windrow.client.fluent.formats": ()}),
    (
        "Stages",
        {
            "windrow.client.fluent.streams": (
                "Stream",
                "DecodedStream",
                "Timed",
                "Keyed",
                "Windowed",
                "Aggregated",
                "Emitted",
            ),
            "windrow.model.pipeline": (),
        },
    ),
    ("Windows, triggers and delays", {"windrow.client.fluent.windows": (), "windrow.model.triggers": ()}),
    ("Aggregates", {"windrow.client.fluent.aggregates": (), "windrow.model.aggregates": ()}),
    (
        "Process functions",
        {
            "windrow.client.fluent.process": (),
            "windrow.client.fluent.streams": ("Processed",),
            "windrow.model.process": (),
        },
    ),
    (
        "Rules and alerts",
        {
            "windrow.client.fluent.rules": (),
            "windrow.client.fluent.streams": ("Ruled",),
            "windrow.client.fluent.alerts": (),
        },
    ),
    ("Graphs", {"windrow.client.fluent.graph": ("GraphBuilder", "Named", "Selection")}),
    ("Pipelines", {"windrow.client.pipeline": ("Pipeline",)}),
    (
        "Results",
        {
            "windrow.client.result": ("Result",),
            "windrow.client.tables": ("Rows",),
            "windrow.client.compare": ("Diff",),
            "windrow.client.explanation": ("Why",),
            "windrow.client.findings": ("Findings",),
        },
    ),
    ("Plots", {"windrow.client.plot": ()}),
    ("Errors", {"windrow.errors": ()}),
)
"""Headings, with the modules whose public names stand under each, and the classes beside these."""
_OF_AGGREGATES = """\
Each returns a `Measure` for `aggregate`. The [pipeline file](pipeline.md#aggregate) has their results, and
[aggregates](../concepts/aggregates.md) their accuracy and state. All but `formula` also have the argument `where`, an
SQL condition: only records for which it is true count.
"""
_OF_PLOTS = """\
The functions need matplotlib (`pip install 'windrow[plot]'`), or raise SetupError. They draw on the axes `ax`, by
default new ones, and return them.
"""
ARGUMENTS_ARE_KEYS = {
    "wr.file": "[`source.file`](../connectors/file.md#keys)",
    "wr.files": "[`source.files`](../connectors/files.md#keys)",
    "wr.kafka": "[`source.kafka`](../connectors/kafka.md#source)",
    "wr.log": "[`source.log`](../connectors/log.md#keys)",
    "wr.postgres_cdc": "[`source.postgres_cdc`](../connectors/postgres.md#changes-of-a-table)",
    "wr.delta": "[`sink.delta`](../connectors/delta.md#keys)",
    "wr.duckdb": "[`sink.duckdb`](../connectors/duckdb.md#keys)",
    "wr.jsonl": "[`sink.jsonl`](../connectors/jsonl.md#keys)",
    "wr.kafka_sink": "[`sink.kafka`](../connectors/kafka.md#sink)",
    "wr.parquet": "[`sink.parquet`](../connectors/parquet.md#keys)",
    "wr.postgres": "[`sink.postgres`](../connectors/postgres.md#sink)",
    "wr.sqlite": "[`sink.sqlite`](../connectors/sqlite.md#keys)",
    "wr.avro": "[`format.avro`](../guides/formats.md#avro)",
    "wr.csv": "[`format.csv`](../guides/formats.md#csv)",
    "wr.json_schema": "[`format.json_schema`](../guides/formats.md#json-schema)",
    "wr.protobuf": "[`format.protobuf`](../guides/formats.md#protobuf)",
    "wr.registry": "[`registry`](../guides/formats.md#schema-registry)",
    "wr.field": "[`decode.FIELD`](pipeline.md#decode)",
    "DecodedStream.event_time": "[`time`](pipeline.md#time)",
    "wr.session": "[`window.session`](pipeline.md#window)",
    "wr.tumbling": "[`window.tumbling`](pipeline.md#window)",
    "Aggregated.emit": "[`emit`](pipeline.md#emit)",
    "Keyed.rules": "[a file with rules](pipeline.md#rules)",
    "wr.list_topic": "[`lists.NAME.kafka`](pipeline.md#rules)",
    "wr.rule": "[`rules.N`](pipeline.md#rules)",
    "wr.alerts": "[`alerts`](pipeline.md#alerts)",
    "Emitted.to": "[the pipeline file](pipeline.md)",
    "Named.flat_map": "[the stream](pipeline.md#several-streams)",
    "Named.join": "[`streams.NAME.join`](pipeline.md#several-streams)",
    "Named.lookup": "[`streams.NAME.lookup`](pipeline.md#several-streams)",
}
"""Functions whose arguments are keys of the pipeline file, which its pages describe; the page has their summary."""
ARGUMENTS_ARE_OPTIONS = {"pipeline.run": "run", "pipeline.replay": "replay", "wr.read_table": "show", "wr.diff": "diff"}
"""Functions with the options of a command as arguments; the page describes their other arguments."""
_WHERE = re.compile(r"(, )?(\*, )?where: str = None|(?<=\)) -> Measure")
PYTHON_SHARED = {
    "Aggregates": (_OF_AGGREGATES, _WHERE),
    "Rules and alerts": ("[Alerts](../guides/alerts.md) describes each alert and its limits.", None),
    "Plots": (_OF_PLOTS, None),
}
"""What the parts of a heading share, which stands under the heading, and is left out where functions are declared."""
DESCRIBED_ELSEWHERE = {"Aggregates"}
"""Headings whose functions another page describes, so that this one only declares them."""


def python_page() -> str:
    """Return the page of the Python API; raise LookupError if a public name has no place on it."""
    left = {name: getattr(windrow, name) for name in windrow.__all__}
    parts = [PYTHON_HEAD]
    described: dict[object, str] = {}
    for title, modules in PYTHON_PARTS:
        shared, omitted = PYTHON_SHARED.get(title, ("", None))
        documented: list[tuple[str, Any]] = []
        for module, classes in modules.items():
            found = import_module(module)
            # a module that is public, such as wr.plot, has its functions in its place
            own = next((name for name, one in left.items() if one is found), None)
            shown = [getattr(found, name) for name in classes]
            for name in [name for name, one in left.items() if any(one is other for other in shown)]:
                del left[name]
            names = [name for name, one in left.items() if getattr(one, "__module__", None) == module]
            documented += [(f"wr.{name}", left.pop(name)) for name in names]
            documented += [(f"wr.{own}.{name}", getattr(found, name)) for name in (found.__all__ if own else ())]
            documented += [(name, getattr(found, name)) for name in classes]
            left.pop(own or "", None)
        parts.append(f"## {title}\n\n{_wrapped(shared)}\n")
        functions = [(name, one) for name, one in documented if not isinstance(one, type)]
        if title in DESCRIBED_ELSEWHERE:
            declared = (f"`{name}{_parameters(_declaration(name, function, omitted))}`" for name, function in functions)
            parts.append(f"{_wrapped(', '.join(declared))}\n")
        else:
            parts.append("".join(_functions(functions, "###", omitted)))
        parts += [_class(name, one, described) for name, one in documented if isinstance(one, type)]
    if left:
        msg = f"PYTHON_PARTS has no place for {', '.join(left)}"
        raise LookupError(msg)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"


def _class(name: str, documented: type, described: dict[object, str]) -> str:
    """Write a class with its methods and properties; name those that another class, in `described`, shares with it."""
    label = "A pipeline, of every kind" if name == "Pipeline" else name
    shown = "pipeline" if name == "Pipeline" else name.removeprefix("wr.")
    # own methods first, then those of the classes of stages
    bases = [base for base in documented.__mro__ if base is documented or base.__module__.startswith("windrow.client")]
    members: dict[str, Any] = {}
    for base in bases:
        members = members | {name: member for name, member in vars(base).items() if name not in members}
    public = [
        (f"{shown}.{method}", member)
        for method, member in members.items()
        if not method.startswith("_") and inspect.getdoc(member)
        if isinstance(member, property) or inspect.isfunction(member)
    ]
    shared = [method for method, member in public if member in described]
    own = [(method, member) for method, member in public if member not in described]
    parts = [f"### {label}\n\n", *_docstring(inspect.getdoc(documented) or "")]
    if shared:
        names = ", ".join(f"`{method.rpartition('.')[2]}`" for method in shared)
        parts.append(f"- {names}: as for `{described[dict(public)[shared[0]]]}`.\n")
    described |= {member: shown for _, member in own}
    return "".join([*parts, *_functions(own, "####", None)])


def _functions(functions: Iterable[tuple[str, Any]], heading: str, omitted: re.Pattern[str] | None) -> Iterator[str]:
    """Write those that need few words as a list, then each of the others under a heading of its own."""
    long = []
    for name, function in functions:
        text = inspect.getdoc(function) or ""
        if name in ARGUMENTS_ARE_KEYS:
            text = f"{text.splitlines()[0]} The arguments are the keys of {ARGUMENTS_ARE_KEYS[name]}."
        if name in ARGUMENTS_ARE_OPTIONS:
            text = _without_options(text, ARGUMENTS_ARE_OPTIONS[name])
        own = name if name.startswith("wr.") else name.rpartition(".")[2]
        if isinstance(function, property):
            of = function.fget.__annotations__["return"]
            yield f"{_wrapped(f'- `{own}: {of}`: {_marked(text)}')}\n"
            continue
        line = _declaration(name, function, omitted)
        short = own + _parameters(line)
        if "\n" in short and "see `" in text:
            short = f"{own}(...)"
        if "\n" in short or _PARTS.search(text) or len(text.split()) > FEW:
            long.append(f"{heading} {name}\n\n```py\n{line}\n```\n\n{''.join(_docstring(text))}\n")
        else:
            yield f"{_wrapped(f'- `{short}`: {_marked(text)}')}\n"
    yield "\n"
    yield from long


def _without_options(text: str, name: str) -> str:
    """Return a docstring whose arguments are described only if they are no options of a command."""
    with click.Context(main) as top:
        command = main.get_command(top, name)
        if command is None:
            msg = f"there is no command {name!r}"
            raise LookupError(msg)
        declared = [one for one in command.params if isinstance(one, click.Option)]
        options = {option.lstrip("-").replace("-", "_") for one in declared for option in one.opts}
    before, head, after = text.partition("Args:\n")
    body, break_, rest = after.partition("\n\n")
    items = re.split(r"\n(?=\S)", textwrap.dedent(body))
    kept = textwrap.indent("\n".join(item for item in items if item.partition(":")[0] not in options), "    ")
    link = f"The other arguments are options of [`windrow {name}`](cli.md#windrow-{name})."
    return f"{before}{head}{kept}\n\n{link}{break_}{rest}"


def _declaration(name: str, function: Callable[..., object], omitted: re.Pattern[str] | None) -> str:
    """Return how a function is declared, without what all parts of its heading share."""
    line = _signature(name, function)
    return omitted.sub("", line) if omitted else line


def _parameters(line: str) -> str:
    """Return what follows the name in a declaration."""
    return line[line.index("(") :].removesuffix(": ...")


_PARTS = re.compile(r"^(?:(?:Args|Raises):$|>>> )", re.MULTILINE)


def _signature(name: str, function: Callable[..., object]) -> str:
    """Return how a function is declared, on one line, or with a line for each parameter."""
    declared = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    if not isinstance(declared, ast.FunctionDef):
        msg = f"{name} is no function"
        raise TypeError(msg)
    arguments = declared.args
    for many in (arguments.posonlyargs, arguments.args):
        many[:] = [one for one in many if one.arg != "self"]
    scope = inspect.unwrap(function).__globals__
    arguments.defaults[:] = [_value(default, scope) for default in arguments.defaults]
    arguments.kw_defaults[:] = [default and _value(default, scope) for default in arguments.kw_defaults]
    name = name.rpartition(".")[2]
    returns = f" -> {ast.unparse(declared.returns)}" if declared.returns else ""
    items = []
    for item in re.split(r", (?![^\[(]*[\])])", ast.unparse(arguments).removeprefix("/, ")):
        parameter, equals, default = item.partition("=")
        items.append(f"{parameter} = {default}" if equals and ":" in parameter else item)
    # quotes as the formatter writes them, here and on the page
    items, returns = [_simple(item).replace("'", '"') for item in items], returns.replace("'", '"')
    line = f"def {name}({', '.join(items)}){returns}: ..."
    if len(line) > WIDTH:
        line = "\n".join([f"def {name}(", *(f"    {item}," for item in items), f"){returns}: ..."])
    # classes of the model, and imports that are no public names of their module, which begin with an underscore
    return re.sub(r"(?<![\w.])(m\.|_(?=[a-zA-Z]))", "", line)


def _simple(parameter: str) -> str:
    """Shorten the type of a parameter: paths have a name, and a default of None is a type enough."""
    return re.sub(r"str \| (_os\.)?PathLike\[str\]", "Path", parameter).replace(" | None = None", " = None")


def _value(default: ast.expr, scope: Mapping[str, object]) -> ast.expr:
    """Return a default, or its value if it is the name of a number or text."""
    name = ast.unparse(default) if isinstance(default, ast.Name | ast.Attribute) else ""
    module, _, attribute = name.rpartition(".")
    value = getattr(scope.get(module), attribute, None) if module else scope.get(name)
    return ast.Constant(value) if isinstance(value, int | str) else default


def _marked(text: str) -> str:
    """Return a paragraph of a docstring with code as on a page."""
    text = re.sub(r"``([^`]*)``", r"`\1`", text)
    return re.sub(r"`windrow\.(?=(\w+)`)", lambda match: "`wr." if match[1] in windrow.__all__ else match[0], text)


def _docstring(docstring: str) -> Iterator[str]:
    """Write a docstring of Google's form: paragraphs, and its arguments and errors as lists.

    The guide to Python has the examples.
    """
    for paragraph in docstring.split("\n\n"):
        text = _marked(paragraph)
        head, _, body = text.partition("\n")
        if text.startswith(">>> "):
            continue
        if head in {"Args:", "Raises:"}:
            yield "" if head == "Args:" else "Errors:\n\n"
            for item in re.split(r"\n(?=\S)", textwrap.dedent(body)):
                what, _, meaning = item.partition(": ")
                yield f"{_wrapped(f'- `{what}`: {meaning}')}\n"
            yield "\n"
        else:
            yield f"{_wrapped(text)}\n\n"


def with_code_lines(text: str) -> str:
    """Return a page whose link definitions of the form [`Class.method`]: PATH.py#L1 have the lines of the code.

    Raise LookupError if a file does not define a name.
    """

    def link(match: re.Match[str]) -> str:
        name, path = match.groups()
        place: ast.AST = ast.parse((RECORD_TARGET.parent / path).read_text(encoding="utf-8"))
        for part in name.split("."):
            place = _definition(place, part, path)
        return f"[`{name}`]: {path}#L{getattr(place, 'lineno', 1)}"

    return re.sub(r"^\[`([\w.]+)`\]: ([\w./-]+\.py)#L\d+$", link, text, flags=re.MULTILINE)


def _definition(place: ast.AST, name: str, path: str) -> ast.AST:
    for node in ast.iter_child_nodes(place):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return node
    msg = f"{path} does not define {name}"
    raise LookupError(msg)


if __name__ == "__main__":
    RECORD_TARGET.write_text(with_code_lines(RECORD_TARGET.read_text(encoding="utf-8")), encoding="utf-8")
    DOCTOR_TARGET.write_text(with_rules(DOCTOR_TARGET.read_text(encoding="utf-8")), encoding="utf-8")
    ALERTS_TARGET.write_text(with_alerts(ALERTS_TARGET.read_text(encoding="utf-8")), encoding="utf-8")
    PIPELINE_TARGET.write_text(with_keys(PIPELINE_TARGET.read_text(encoding="utf-8")), encoding="utf-8")
    for path, text in with_connector_keys(
        {path: path.read_text(encoding="utf-8") for path in CONNECTOR_TARGETS}
    ).items():
        path.write_text(text, encoding="utf-8")
    SCHEMA_TARGET.write_text(schema_text(), encoding="utf-8")
    PYTHON_TARGET.write_text(python_page(), encoding="utf-8")
    TARGET.write_text(page(), encoding="utf-8")
