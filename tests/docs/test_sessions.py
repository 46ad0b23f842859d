"""The sessions of the pages: what a reader types gives what the page shows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from tests.docs.pages import ROOT, Block, blocks
from tests.docs.sessions import Session, commands_of, matches, missing_tools, needs_of, record

from windrow.testing.servers.kafka import Kafka
from windrow.testing.servers.postgres import Postgres

MARKS = {"kafka": "service", "postgres": "service", "spark": "service", "long": "long"}
"""What a page may need, and the mark of its test."""
SERVERS, DATABASES = "localhost:9092", "postgresql://localhost/"
"""How pages write the addresses of servers."""


def sessions() -> list[object]:
    """Return the pages with sessions, with the marks of what they need."""
    return [
        pytest.param(
            page,
            id=str(page.relative_to(ROOT)),
            marks=[getattr(pytest.mark, mark) for mark in {MARKS[need] for need in needs_of(page)}],
        )
        for page in dict.fromkeys(block.page for block in blocks("console"))
    ]


@contextmanager
def topics(kafka: Kafka) -> Iterator[str]:
    """Give the address of a broker; what a page makes there is removed."""
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    before = set(admin.list_topics(timeout=30).topics)
    try:
        yield kafka.servers
    finally:
        made = set(admin.list_topics(timeout=30).topics) - before
        for removed in admin.delete_topics(sorted(made)).values() if made else ():
            removed.result(30)


@contextmanager
def databases(postgres: Postgres, page: Path) -> Iterator[str]:
    """Give the beginning of the addresses of databases; those that a page names are there while it is run."""
    names = set(re.findall(rf"{DATABASES}(\w+)", page.read_text(encoding="utf-8")))
    for name in names:
        postgres.create_database(name)
    try:
        yield postgres.url_of("")
    finally:
        for name in names:
            postgres.drop_database(name)


@pytest.mark.parametrize("page", sessions())
def test_a_session_gives_what_the_page_shows(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if missing := missing_tools(page):
        pytest.skip(f"{', '.join(missing)} not found")
    needs = needs_of(page)
    with ExitStack() as stack:
        addresses = {}
        if "kafka" in needs:
            addresses[SERVERS] = stack.enter_context(topics(request.getfixturevalue("kafka")))
        if "postgres" in needs:
            addresses[DATABASES] = stack.enter_context(databases(request.getfixturevalue("postgres"), page))
        session = stack.enter_context(Session(page, tmp_path, addresses=addresses, own_process="spark" in needs))
        ran = list(session.run())
    if "WINDROW_RECORD" in os.environ:
        record(ran)
    assert all(one.is_as_shown for one in ran), "\n\n".join(one.difference for one in ran if not one.is_as_shown)


def session_of(text: str, folder: Path) -> Session:
    (folder / "page.md").write_text(text, encoding="utf-8")
    return Session(folder / "page.md", folder)


def test_commands_share_a_folder_its_files_and_the_environment(tmp_path: Path) -> None:
    text = """
```yaml title="there/a.yaml"
a: 1
```

1. In a list:

   ```console
   $ cd there && export NAME="you there"
   $ cat \\
       a.yaml
   a: 1
   $ windrow check a.yaml
   ...
   a.yaml:1: error: the pipeline lacks 'source'
   ...
   $ echo $NAME > b; pwd
   /home/you/there
   ```

```console
$ cat b; cat missing
you there
cat: missing: No such file or directory
$ sleep 600 &
```
"""
    with session_of(text, tmp_path) as session:
        assert [one.difference for one in session.run() if not one.is_as_shown] == []


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ("$ echo a; echo b\na\n", [" a", "+b", "exit code 0"]),
        ("$ echo a\na\nb\n", ["-b"]),
        ("$ windrow check no.yaml\n", ["exit code 2"]),
        ("$ windrow check no.yaml\n...\n", ["exit code 2"]),
        ("$ false\n", ["exit code 1"]),
    ],
)
def test_what_is_otherwise_is_a_diff(shown: str, said: list[str], tmp_path: Path) -> None:
    with session_of(f"```console\n{shown}```\n", tmp_path) as session:
        (ran,) = session.run()
    assert not ran.is_as_shown
    lines = ran.difference.splitlines()
    assert [line for line in said if line not in lines] == []


def test_a_page_is_written_as_it_runs(tmp_path: Path) -> None:
    text = "a\n```console\n$ echo a; echo b\nc\n```\n- d\n\n  ```console\n  $ echo {}; true \\\n    e\n{}  ```\nf\n"
    with session_of(text.format("d", ""), tmp_path) as session:
        record(list(session.run()))
    written = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert written == text.replace("c\n`", "a\nb\n`").format("d", "  d\n")


@pytest.mark.parametrize(
    ("shown", "given", "is_same"),
    [
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("a\n...\nb\n", "a\nb\n", True),
        ("...\nd\n", "a\nd\ne\n", False),
        ("a ... d\n", "a b c d\n", True),
        ("a ... d\n", "a b\nc d\n", False),
        ("1,000 events in 0.2 s (6,171/s): 999 rows\n", "1,000 events in 11.5 s (71/s): 999 rows\n", True),
        ("1,000 events in 0.2 s: 999 rows\n", "1,000 events in 0.2 s: 998 rows\n", False),
        ("│ 0.25 s │ a │\n", "│ 10.5 s │ a │\n", True),
        ("a.c\n", "abc\n", False),
    ],
)
def test_an_output_is_compared_but_for_times(shown: str, given: str, *, is_same: bool) -> None:
    assert matches(shown, given) is is_same


def test_a_session_begins_with_a_command() -> None:
    with pytest.raises(ValueError, match=r"page\.md:7: a console block begins with"):
        list(commands_of(Block(ROOT / "page.md", 0, "console", "a\n$ b\n", None, 7)))
