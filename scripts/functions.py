#!/usr/bin/env python3
"""Add the functions of the installed DuckDB to the table of functions that an expression may call.

    .venv/bin/python scripts/functions.py

Run it once with each release of DuckDB that `pyproject.toml` allows. What is in the table keeps what a reviewer has
said of it. A new overload of a function whose overloads all depend on the same gets that; anything else becomes
`unreviewed`, which no expression may call, until a reviewer writes in the third column what it depends on: `record`
(its arguments alone), `zone` (the time zone, too), or one of the dependences that are refused (`WHY` in
`windrow.expressions.functions`).
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

from windrow.expressions.engine import release
from windrow.expressions.functions import PURE, TABLE, Overload, catalogue, parse_table

ZONED = ("TIME WITH TIME ZONE", "TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ")


def main() -> None:
    """Write the table, and print what is to be reviewed."""
    path = Path(__file__).parents[1] / "src/windrow/expressions" / TABLE
    known = {name: list(overloads) for name, overloads in parse_table(path.read_text("utf-8")).items()}
    for name, entry in catalogue().items():
        overloads = known.setdefault(name, [])
        texts = {
            "scalar": entry.scalars,
            "macro": entry.macros,
            "aggregate": {""} if "aggregate" in entry.kinds else (),
        }
        for kind, found in texts.items():
            there = {one.text for one in overloads if one.kind == kind}
            overloads += [Overload(kind, text, depends(overloads, kind, text)) for text in set(found) - there]
    lines = []
    for name, overloads in known.items():
        groups = defaultdict(list)
        for one in overloads:
            groups[one.kind, one.depends].append(one.text)
        lines += [f"{name}\t{kind}\t{on}\t{' | '.join(sorted(texts))}\n" for (kind, on), texts in groups.items()]
    path.write_text("".join(sorted(lines)), "utf-8")
    new = sorted({line.partition("\t")[0] for line in lines if line.split("\t")[2] == "unreviewed"})
    sys.stdout.write(f"DuckDB {release()}: to be reviewed: {', '.join(new) or 'nothing'}\n")


def depends(known: list[Overload], kind: str, text: str) -> str:
    """Return what a new overload depends on, as far as those that are known say it."""
    found = {one.depends for one in known if one.kind == kind}
    if kind == "scalar" and found and found <= PURE:
        return "zone" if any(zoned in text for zoned in ZONED) else "record"
    return found.pop() if kind == "scalar" and len(found) == 1 else "unreviewed"


if __name__ == "__main__":
    main()
