"""Writes anew what the net expects: ``python -m tests.net.record [GROUP ...] [--only CASE]`` from the project's root.

Only where an answer is meant to change: the commit that does says which cases are recorded anew, and why. It prints
what differs from what was recorded before.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.net.cases import STORIES, Case, cases, groups, stories
from tests.net.runs import Answers, Lines, OtherError, compare, expected, keep, play, play_story


def main() -> None:
    """Record."""
    parser = argparse.ArgumentParser(prog="python -m tests.net.record", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="all, if none is named")
    parser.add_argument("--only", metavar="CASE", help="one case of them; the others stay as they are")
    given = parser.parse_args()
    for group in given.groups or [*groups(), STORIES]:
        before = expected(group)
        after: Answers = {}
        for name, one in (stories() if group == STORIES else {case.name: case for case in cases(group)}).items():
            if given.only not in {None, name}:
                after |= {name: before[name]} if name in before else {}
                continue
            after[name] = _played(one)
            try:
                compare(f"{group}: {name}", before.get(name, {}), after[name])
            except OtherError as exc:
                print(exc if name in before else f"{group}: {name} is new")  # noqa: T201
        print(f"{group}: {len(after)} cases, {keep(group, after):,} bytes")  # noqa: T201


def _played(one: Case | Path) -> Lines:
    if isinstance(one, Path):
        return play_story(one)
    with tempfile.TemporaryDirectory() as folder:
        return play(one, Path(folder))


if __name__ == "__main__":
    main()
