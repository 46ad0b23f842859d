"""`windrow capacity`: the resources that a pipeline needs under a load and their cost, each with its formula."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from windrow import model as m
from windrow.errors import InputError, PipelineError
from windrow.telemetry.folders import Folder, default_checkpoint
from windrow.telemetry.numbers import short_bytes, short_duration
from windrow.terminal.common import OK, json_option, print_json
from windrow.terminal.options import DURATION, STATE_FOLDER
from windrow.terminal.pipelines import open_pipeline, pipeline_argument

if TYPE_CHECKING:
    from windrow.tools.capacity.expected import NodeExpected
    from windrow.tools.capacity.load import Keys, Load
    from windrow.tools.capacity.plan import Figure, Prices, Wishes

N = TypeVar("N", int, float)
_SECOND = 1_000_000
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kmg]?)", re.IGNORECASE)
_FACTORS = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}
_PER = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_RECORD_BYTES = 100
_ENOUGH = 10
"""Records that a share must comprise to be measured."""
_COVERED = 0.9
_THOUSAND = 1000


def _number(text: str, option: str) -> float:
    """Parse a number such as 20000, 20k, 1.5m or 1g."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        msg = f"{option}: {text!r} is not a number; write one such as 20000, 20k, 1.5m or 1g"
        raise InputError(msg)
    return float(match[1]) * _FACTORS[match[2].lower()]


def _rate(text: str, option: str) -> float:
    number, slash, unit = text.partition("/")
    if slash and unit not in _PER:
        msg = f"{option}: {text!r} is not a rate; write records per unit of time, such as 20000/s, 1.5m/h or 3m/d"
        raise InputError(msg)
    return _number(number, option) / _PER[unit or "s"]


def _share(text: str, option: str) -> float:
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        msg = f"{option}: {text!r} is not a share; write a percentage such as 30%"
        raise InputError(msg)
    return share


def _seconds(text: str, option: str) -> float:
    try:
        return m.parse_duration(text) / _SECOND
    except PipelineError as exc:
        msg = f"{option}: {exc.message}"
        raise InputError(msg) from exc


def _whole(text: str, option: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        msg = f"{option}: {text!r} is not a number of partitions; write one such as 12"
        raise InputError(msg)
    return number


def _named(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield a (name, value) pair for each ``NAME=VALUE``; the name is empty if the text is only a value."""
    for text in texts:
        name, sign, value = text.rpartition("=")
        yield (name, value) if sign else ("", text)


def _quantiles(text: str) -> dict[float, float]:
    """Parse ``p50=1s,p99=30s,max=1h`` into a mapping of quantile (0 to 1) to seconds."""
    found: dict[float, float] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        try:
            share = 1.0 if name == "max" else float(name.removeprefix("p")) / 100
        except ValueError:
            share = 0.0
        if not 0 < share <= 1 or (name != "max" and not name.startswith("p")):
            msg = f"--disorder: {part!r} is not a quantile; write, for example, p99=30s, or max=1h for the maximum"
            raise InputError(msg)
        found[share] = _seconds(value, "--disorder")
    return found


_HELP = {
    "rate": "Record rate, such as 20000/s or 5m/h; NAME=RATE for each of several sources. May be repeated.",
    "keys": "Number of keys, such as 1m; NAME=NUMBER for a single stream. May be repeated.",
    "hot": "Share of all records that have the most frequent key.  [default: the same as other keys]",
    "record_bytes": "Size of a record in bytes; NAME=BYTES for a single source. May be repeated.  [default: 100]",
    "disorder": "How far records are behind the newest in their partition.  [default: in order]",
    "share": "Share of its input that the conditions of stream NAME let through. May be repeated.  [default: all]",
    "partners": "Number of partners of each left record in join NAME. May be repeated.  [default: by chance]",
    "duplicates": "Share of records that are duplicates.  [default: 0%]",
    "skew": "How far the slowest partition is behind the others.  [default: 0s]",
    "text_bytes": "Mean length of texts, such as keys.  [default: 10, or as measured]",
    "log": "Measure the load on the first records of the log; other options override what is measured.",
    "sample": "Number of records to read with --log.",
    "checkpoint": "Checkpoint of the run whose history the load is taken from.  [default: .windrow/NAME]",
    "every": "Time between the starts of two steps; shorter when 8,000 records are waiting.",
    "headroom": "Factor by which cores and memory exceed the load.",
    "partitions": (
        "Number of partitions of the log; NAME=NUMBER for the log of one source. May be repeated.  [default: those of "
        "the log with --log, else as needed]"
    ),
    "keep_log": "Retention of the log.",
    "keep_table": "Retention of rows in the tables.",
    "keep_changelog": "Retention of the changelog and the late output.",
    "copies": "Replication factor of the log.",
    "prices": "YAML file with prices; adds the monthly cost.",
}


@click.command("capacity")
@pipeline_argument
@click.option("--rate", multiple=True, metavar="[NAME=]RATE", help=_HELP["rate"])
@click.option("--keys", multiple=True, metavar="[NAME=]NUMBER", help=_HELP["keys"])
@click.option("--hot-key", metavar="PERCENT", help=_HELP["hot"])
@click.option("--record-bytes", multiple=True, metavar="[NAME=]BYTES", help=_HELP["record_bytes"])
@click.option("--disorder", metavar="pN=DURATION,...", help=_HELP["disorder"])
@click.option("--share", multiple=True, metavar="NAME=PERCENT", help=_HELP["share"])
@click.option("--partners", multiple=True, metavar="NAME=NUMBER", help=_HELP["partners"])
@click.option("--duplicates", metavar="PERCENT", help=_HELP["duplicates"])
@click.option("--skew", type=DURATION, help=_HELP["skew"])
@click.option("--text-bytes", type=click.FloatRange(min=0), help=_HELP["text_bytes"])
@click.option("--log", is_flag=True, help=_HELP["log"])
@click.option("--sample", type=click.IntRange(min=1), default=500_000, show_default=True, help=_HELP["sample"])
@click.option("--checkpoint", type=STATE_FOLDER, metavar="DIR", help=_HELP["checkpoint"])
@click.option("--every", type=DURATION, default="1s", show_default=True, help=_HELP["every"])
@click.option("--headroom", type=click.FloatRange(min=1), default=1.5, show_default=True, help=_HELP["headroom"])
@click.option("--partitions", multiple=True, metavar="[NAME=]NUMBER", help=_HELP["partitions"])
@click.option("--keep-log", type=DURATION, default="7d", show_default=True, help=_HELP["keep_log"])
@click.option("--keep-table", type=DURATION, default="365d", show_default=True, help=_HELP["keep_table"])
@click.option("--keep-changelog", type=DURATION, default="30d", show_default=True, help=_HELP["keep_changelog"])
@click.option("--copies", type=click.IntRange(min=1), default=3, show_default=True, help=_HELP["copies"])
@click.option("--prices", type=click.Path(path_type=Path), metavar="FILE", help=_HELP["prices"])
@json_option
def command(*, pipeline: str, as_json: bool, prices: Path | None, **given: Any) -> int:  # noqa: ANN401 - options
    """Plan the cores, memory, state, partitions, latency, network and storage that a pipeline needs.

    PIPELINE is YAML or SQL, or FILE.py[:VARIABLE] for a pipeline written in Python. The load is stated (--rate,
    --keys, --record-bytes, --disorder), measured on the log (--log), or taken from the history of a run, in which case
    --keys and --record-bytes are required. Each figure is shown with its formula, its inputs, and its accuracy: within
    25 %, or within a factor of 2, as measured in docs/guides/capacity.md.

    Cores and memory include the headroom. --prices adds the monthly cost, from a YAML file with currency, core_hour,
    memory_gb_hour, storage_gb_month and network_gb.
    """
    from windrow.tools.capacity.demand import MACHINE  # noqa: PLC0415 - help needs no Arrow
    from windrow.tools.capacity.plan import Wishes, cost, plan  # noqa: PLC0415 - the same

    if given["every"] <= 0:
        msg = "--every: the time between steps must be above 0; give a duration such as 1s"
        raise InputError(msg)
    graph = open_pipeline(pipeline).runnable()
    priced = None if prices is None else _read_prices(prices)
    load, notes = _load(graph, given)
    wishes = Wishes(
        every=given["every"] / _SECOND,
        headroom=given["headroom"],
        keep_log=given["keep_log"] / _SECOND,
        keep_table=given["keep_table"] / _SECOND,
        keep_changelog=given["keep_changelog"] / _SECOND,
        copies=given["copies"],
        partitions=_by_name(given, "partitions", [source.name for source in graph.sources], _whole, every=True),
    )
    found = plan(graph, load, wishes)
    costs = [] if priced is None else list(cost(found, priced))
    notes += [f"cannot be planned: {reason}" for reason in found.unknown]
    notes += [f"note: {doubt}" for doubt in found.doubts]
    if as_json:
        figures = [asdict(figure) for figure in (*found.figures, *costs)]
        plain = {"load": load.plain(), "headroom": wishes.headroom, "figures": figures, "notes": notes}
        print_json({"pipeline": graph.name, **plain, "constants": vars(MACHINE)})
        return OK
    click.echo(f"{graph.name}: capacity")
    for line in _lines(load, wishes, [*found.figures, *costs], notes, found.nodes):
        click.echo(line)
    return OK


def _load(graph: m.Graph, given: Mapping[str, Any]) -> tuple[Load, list[str]]:
    """Return the load that the options state or that is measured, and notes about it."""
    from windrow.tools.capacity.load import read_sample  # noqa: PLC0415 - help needs no Arrow

    notes: list[str] = []
    if given["log"] and given["checkpoint"] is not None:
        msg = "--log measures the log and --checkpoint reads the history of a run: leave one of them out"
        raise InputError(msg)
    if given["log"]:
        measured = read_sample(graph, given["sample"])
        notes += _sample_notes(measured, graph)
    elif given["rate"] and given["checkpoint"] is None:
        measured = _unstated_load(graph, given, notes)
    else:
        measured = _recorded_load(graph, given)
    load = _with_options(measured, graph, given)
    empty = [name for name, rate in load.rates.items() if not rate]
    notes += [
        f"assumed: {name} has no records, because none were read; override with --rate {name}=RATE" for name in empty
    ]
    return load, notes


def _unstated_load(graph: m.Graph, given: Mapping[str, Any], notes: list[str]) -> Load:
    """Return a default load for the options to override; add a note for each value that no option states.

    Raise InputError if the options do not state the keys and the rates of all sources.
    """
    from windrow.tools.capacity.load import Behind, Keys, Load  # noqa: PLC0415 - help needs no Arrow

    if not _states_all_keys(given):
        msg = "the number of keys is missing: give --keys, such as --keys 1m, or measure it on the log with --log"
        raise InputError(msg)
    if not given["record_bytes"]:
        notes.append(f"assumed: records of {_RECORD_BYTES} bytes; override with --record-bytes")
    if given["disorder"] is None:
        notes.append("assumed: records in order of event time, so none are late; override with --disorder")
    names, stated = [source.name for source in graph.sources], {name for name, _ in _named(given["rate"])}
    missing = [name for name in names if name not in stated]
    if missing and len(names) > 1:
        msg = f"the rate of {', '.join(missing)} is missing: give --rate {missing[0]}=RATE, such as 20000/s"
        raise InputError(msg)
    return Load(
        rates=dict.fromkeys(names, 0.0),
        record_bytes=dict.fromkeys(names, float(_RECORD_BYTES)),
        keys={"": Keys.even(1)},
        behind=Behind.stated({}),
    )


def _states_all_keys(given: Mapping[str, Any]) -> bool:
    return any(not name for name, _ in _named(given["keys"]))


def _recorded_load(graph: m.Graph, given: Mapping[str, Any]) -> Load:
    from windrow.telemetry.history import history_of, read_history  # noqa: PLC0415 - the same
    from windrow.tools.capacity.load import Keys, recorded_load  # noqa: PLC0415 - help needs no Arrow

    checkpoint: Folder = given["checkpoint"] or default_checkpoint(graph.name)
    try:
        reports = read_history(history_of(checkpoint))
    except InputError as exc:
        msg = f"the load is unknown: {exc.message}; state it with --rate and --keys, or measure it with --log"
        raise InputError(msg) from exc
    stated = {"--keys": _states_all_keys(given), "--record-bytes": bool(given["record_bytes"])}
    missing = [option for option, is_stated in stated.items() if not is_stated]
    if missing:
        msg = f"the history of a run does not contain keys and record sizes: give {' and '.join(missing)}, or --log"
        raise InputError(msg)
    return recorded_load(graph, reports, Keys.even(1), float(_RECORD_BYTES))


def _with_options(load: Load, graph: m.Graph, given: Mapping[str, Any]) -> Load:
    """Return the load with its values replaced by those that options state."""
    from windrow.tools.capacity.load import Behind  # noqa: PLC0415 - help needs no Arrow

    sources = [source.name for source in graph.sources]
    nodes = [node.name for node in graph.computed if node.name]
    rates = {**load.rates, **_by_name(given, "rate", sources, _rate)}
    if not sum(rates.values()):
        msg = "--rate: 0 records per second cannot be planned for; give a rate such as 20000/s"
        raise InputError(msg)
    shares = {("", name): share for name, share in _by_name(given, "share", nodes, _share, kind="stream").items()}
    return replace(
        load,
        rates=rates,
        record_bytes={**load.record_bytes, **_by_name(given, "record_bytes", sources, _number, every=True)},
        keys=_stated_keys(load.keys, nodes, given),
        behind=load.behind if given["disorder"] is None else Behind.stated(_quantiles(given["disorder"])),
        shares={**load.shares, **shares},
        partners=_by_name(given, "partners", nodes, _number, kind="stream"),
        accepted={} if given["keys"] or given["hot_key"] or given["duplicates"] else load.accepted,
        duplicates=0.0 if given["duplicates"] is None else _share(given["duplicates"], "--duplicates"),
        skew=load.skew if given["skew"] is None else given["skew"] / _SECOND,
        text_bytes=load.text_bytes if given["text_bytes"] is None else given["text_bytes"],
    )


def _stated_keys(measured: Mapping[str, Keys], nodes: Sequence[str], given: Mapping[str, Any]) -> dict[str, Keys]:
    from windrow.tools.capacity.load import Keys  # noqa: PLC0415 - help needs no Arrow

    hot = 0.0 if given["hot_key"] is None else _share(given["hot_key"], "--hot-key")
    stated = dict(_named(given["keys"]))
    keys = {} if "" in stated else dict(measured)
    for name, text in stated.items():
        number = _number(text, "--keys")
        if number < 1:
            msg = f"--keys: {text} is less than one key"
            raise InputError(msg)
        keys[name if not name else _known_name(name, nodes, "--keys", "stream")] = Keys.even(number, hot)
    if hot and not stated:
        keys = {name: Keys.even(max(1.0, known.number), hot) for name, known in keys.items()}
    return keys


def _by_name(
    given: Mapping[str, Any],
    name: str,
    known: Sequence[str],
    read: Callable[[str, str], N],
    *,
    kind: str = "source",
    every: bool = False,
) -> dict[str, N]:
    """Map the names of sources or streams to the values of an option.

    With `every`, a value without a name applies to all of them.
    """
    option, found = f"--{name.replace('_', '-')}", dict[str, N]()
    for own, text in _named(given[name]):
        value = read(text, option)
        found |= dict.fromkeys(known if every and not own else [_known_name(own, known, option, kind)], value)
    return found


def _known_name(name: str, known: Sequence[str], option: str, kind: str) -> str:
    if not name and len(known) == 1:
        return known[0]
    if name not in known:
        names = ", ".join(known) or "none has a name"
        msg = (
            f"{option}: {f'unknown {kind} {name!r}' if name else f'specify the {kind}'} (NAME=VALUE); "
            f"available: {names}"
        )
        raise InputError(msg)
    return name


def _sample_notes(load: Load, graph: m.Graph) -> Iterator[str]:
    """Yield a note about the size of the sample, and one for each figure that it is too small to measure."""
    from windrow.tools.capacity.nodes import spans  # noqa: PLC0415 - help needs no Arrow

    sample = load.sample
    if sample is None:
        return
    span = short_duration(sample.seconds)
    yield f"measured: {sample.records:,} of {sample.origin}, over {span} of event time"
    least = _ENOUGH / sample.records
    if least > 0.001:  # noqa: PLR2004 - a share of late records that counts
        yield (
            f"too small: {sample.records:,} records cannot show shares of late records below "
            f"{100 * min(1.0, least):.2g} %; read more (--sample) or give --disorder"
        )
    if sample.coverage is not None and sample.coverage < _COVERED:
        yield (
            f"too small: {100 * (1 - sample.coverage):.0f} % of the records of the log have keys that are not in the "
            "sample, so the number of keys is a lower estimate; read more (--sample) or give --keys"
        )
    widest = max(
        (
            width
            for node in graph.keyed
            if isinstance(node, m.WindowNode) and not isinstance(node.window, m.Session | m.Global)
            for width, _ in spans(node.window)
        ),
        default=0.0,
    )
    if sample.seconds < widest:
        yield (
            f"too small: the sample spans {span}, less than a window ({short_duration(widest)}), so the number of keys "
            "in a whole window is an estimate; read more (--sample)"
        )


_PRICES = ("core_hour", "memory_gb_hour", "storage_gb_month", "network_gb")


def _read_prices(path: Path) -> Prices:
    """Read a price list.

    Raise InputError if the file cannot be read, or PipelineError with the line of an invalid entry.
    """
    from windrow.authoring.pipeline_file import read_file  # noqa: PLC0415 - only with prices
    from windrow.declare.yaml_node import compose  # noqa: PLC0415 - the same
    from windrow.tools.capacity.plan import Prices  # noqa: PLC0415 - help needs no Arrow

    node = compose(read_file(str(path)), str(path))
    if not node.is_mapping:
        raise node.wrong_kind(expected="a mapping with currency, " + ", ".join(_PRICES))
    items = {key.value: node.under(value, key.value) for key, value in node.node.value}
    unknown = [name for name in items if name not in {"currency", *_PRICES}]
    if unknown:
        msg = f"unknown price {unknown[0]!r}; the prices are currency, {', '.join(_PRICES)}"
        raise items[unknown[0]].error(msg)
    missing = [name for name in _PRICES if name not in items]
    if missing:
        msg = f"{', '.join(missing)}: missing; write a price, or 0 if it costs nothing"
        raise node.error(msg)
    values = {name: items[name].fraction() for name in _PRICES}
    for name, value in values.items():
        if value < 0:
            msg = f"{name} is below 0: write a price, or 0 if it costs nothing"
            raise items[name].error(msg)
    return Prices(items["currency"].text() if "currency" in items else "units", **values)


def _lines(
    load: Load, wishes: Wishes, figures: Sequence[Figure], notes: Sequence[str], nodes: Sequence[NodeExpected]
) -> Iterator[str]:
    keys = " and ".join(f"{known.number:,.0f}" for known in dict.fromkeys(load.keys.values()))
    every = m.format_duration(round(wishes.every * _SECOND))
    yield (
        f"load: {load.rate:,.6g} records/s of {load.mean_bytes:,.0f} bytes, {keys} keys, 99 % at most "
        f"{load.behind.quantile(0.99):.3g} s behind; a step every {every}, headroom {wishes.headroom:g}"
    )
    yield from (f"  {note}" for note in notes)
    yield ""
    width, values = max(len(figure.name) for figure in figures), [_value(figure) for figure in figures]
    value_width = max(map(len, values))
    for figure, value in zip(figures, values, strict=True):
        yield f"  {figure.name:{width}}  {value:>{value_width}}  {_within(figure):6} {figure.law}"
        if figure.inputs:
            inputs = ", ".join(f"{name} {_plain_number(number)}" for name, number in figure.inputs.items())
            yield f"  {'':{width + value_width}}           {inputs}"
    if len(nodes) > 1:
        yield ""
        for node in nodes:
            yield (
                f"  {node.node.name}: takes {node.taken:,.4g} records/s, holds {node.rows:,.0f} rows, "
                f"writes {node.changelog:,.4g} changes/s"
            )


def _within(figure: Figure) -> str:
    if figure.within is None:
        return ""
    return f"±{figure.within:.0%}" if figure.within < 1 else f"x/÷ {figure.within:g}"


_WHOLE = {"cores", "partitions", "tasks", "rows", "key_groups"}


def _value(figure: Figure) -> str:
    value, unit = figure.value, figure.unit
    if unit.startswith("bytes"):
        return f"{short_bytes(value)}{unit.removeprefix('bytes')}"
    if unit == "s":
        return short_duration(value)
    number = f"{value:,.0f}" if unit in _WHOLE and value == round(value) else _plain_number(value)
    if unit == "key_groups":
        return number
    return f"{number} {unit.removesuffix('s') if number == '1' else unit}"


def _plain_number(number: float) -> str:
    return f"{number:,.0f}" if number >= _THOUSAND else f"{number:.4g}"
