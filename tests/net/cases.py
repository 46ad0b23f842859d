"""The cases: `cases/*.yaml`, a group a file.

A case is a pipeline by its sections (what it leaves out is as in `cases/base.yaml`), with these keys beside them:

- `log`: how its log is made, see `feeds.Log`;
- `python`: in place of the sections, a pipeline of `pipelines.py`, or two of them, the second for `then`;
- `then`: sections of the pipeline that resumes from a savepoint at the middle of the log;
- `replay`: options of `windrow replay`, once for each list: the shadow's tables are kept too; `half` stands for the
  offsets at the middle of the log;
- `run`: the log is run by `windrow run` with these options too, and its tables are kept;
- `spark`: `true` for the sample that is played on Spark too, as a stream and as a batch, `batch` for a batch alone;
  what is not in the sample is left to the long suite, if Spark can play it.

`matrix` in a file has `log`, `sections` (each with its variants by name), `all` (what all its cases have besides), and
lists of lines: a case has the words of a line among its variants. Every combination is a case, named by its variants,
but for those of `without`. Those of `long` are left to the long suite on the memory host too; `spark` and `batch` hold
the names of those in the sample.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from tests.net.feeds import Log

HERE = Path(__file__).parent
STORIES = "stories"
"""The group of the stories of the documentation and of `tests/transcripts`."""


@dataclass(frozen=True)
class Case:
    """A pipeline and its log; `pipelines` are one, or two where another resumes from a savepoint."""

    group: str
    name: str
    log: Log
    pipelines: tuple[str, ...]
    replay: tuple[tuple[str, ...], ...] = ()
    run: tuple[str, ...] | None = None
    spark: bool | str = False
    long: bool = False
    files: dict[str, str] = field(default_factory=dict)
    """Pipeline files by name; a pipeline is one of these, or ``pipelines.py:NAME``."""


def groups() -> list[str]:
    """Return the names of the groups of cases."""
    return sorted(path.stem for path in (HERE / "cases").glob("*.yaml") if path.stem != "base")


def cases(group: str) -> list[Case]:
    """Return the cases of a group."""
    base, given = (yaml.safe_load((HERE / "cases" / f"{name}.yaml").read_text()) for name in ("base", group))
    named = base.pop("aggregates")
    found = dict(given.get("cases", {}))
    for matrix in given.get("matrix", []):
        found |= _combined(matrix)
    return [_case(base, named, group, name, dict(case or {})) for name, case in found.items()]


def stories() -> dict[str, Path]:
    """Return the stories by their paths from the project's root."""
    root = HERE.parent.parent
    found = sorted([*root.glob("docs/concepts/*.yaml"), *root.glob("tests/transcripts/*.yaml")])
    return {str(path.relative_to(root)): path for path in found}


def _combined(matrix: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    sections: dict[str, dict[str, Any]] = matrix["sections"]
    without, long = ([set(line.split()) for line in matrix.get(name, [])] for name in ("without", "long"))
    for variants in itertools.product(*sections.values()):
        if any(words <= set(variants) for words in without):
            continue
        case: dict[str, Any] = {"log": matrix.get("log", {}), **matrix.get("all", {})}
        for section, variant in zip(sections, variants, strict=True):
            value = sections[section][variant]
            merged = {**case.get(section, {}), **value} if section in {"emit", "log"} else value
            case[section] = merged
        for sample, value in (("batch", "batch"), ("spark", True)):
            if " ".join(variants) in matrix.get(sample, []):
                case["spark"] = value
        case["long"] = any(words <= set(variants) for words in long)
        yield " ".join(variants), case


def _case(base: dict[str, Any], named: dict[str, Any], group: str, name: str, case: dict[str, Any]) -> Case:
    log = case.pop("log", {})
    log = {key: tuple(map(_frozen, value)) if isinstance(value, list) else value for key, value in log.items()}
    log = {"seed": f"{group}/{name}", **log}
    replay = tuple(tuple(map(str, options)) for options in case.pop("replay", []))
    run = tuple(map(str, case.pop("run"))) if "run" in case else None
    spark = case.pop("spark", False)
    long = case.pop("long", False)
    then = case.pop("then", None)
    if "python" in case:
        given = case.pop("python")
        names = given if isinstance(given, list) else [given]
        pipelines = tuple(f"{HERE / 'pipelines.py'}:{one}" for one in names)
        files = {}
    else:
        texts = [_pipeline(base, named, case)]
        if then is not None:
            texts.append(_pipeline(base, named, case | then))
        files = {f"pipeline-{number}.yaml": text for number, text in enumerate(texts)}
        pipelines = tuple(files)
    return Case(group, name, Log(**log), pipelines, replay, run, spark, long, files)


def _frozen(value: Any) -> Any:  # noqa: ANN401
    return tuple(value) if isinstance(value, list) else value


def _pipeline(base: dict[str, Any], named: dict[str, Any], case: dict[str, Any]) -> str:
    whole = base | case
    if isinstance(whole["aggregate"], str):
        whole["aggregate"] = named[whole["aggregate"]]
    return yaml.safe_dump({key: value for key, value in whole.items() if value is not None}, sort_keys=False)
