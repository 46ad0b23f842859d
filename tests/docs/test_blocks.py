"""Each fenced block of a page is run or checked by a test, or is listed here with the reason why it cannot be."""

from __future__ import annotations

import ast
import json
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from tests.docs.pages import PAGES, ROOT, Block, blocks, blocks_of

from windrow.authoring.pipeline_file import read_document

LANGUAGES = {
    "console": "test_sessions.py",
    "yaml": "test_pages.py",
    "python": "test_pages.py",
    "yml": "test_blocks.py",
    "py": "test_blocks.py",
    "json": "test_blocks.py",
}
"""The test of a block by its language; `yml` is a part of a pipeline, `py` one of a program."""

PAGES_OF_THEIR_OWN = {
    ("docs/tutorial/*.md", "pycon"): "test_tutorial.py",
    ("docs/compare/*.md", "java"): "test_compare.py",
    ("docs/compare/*.md", "py"): "test_compare.py",
    ("docs/compare/*.md", "sql"): "test_compare.py",
    ("docs/compare/*.md", "text"): "test_compare.py",
    ("docs/guides/python.md", "pycon"): "test_python_guide.py",
    ("docs/reference/cli.md", ""): "test_cli_reference.py",
    ("docs/reference/sql.md", "sql"): "test_sql_reference.py",
    ("examples/*/README.md", "sh"): "test_examples.py",
    ("examples/*/README.md", "text"): "test_examples.py",
}
"""The test of the blocks of a page in a language."""

NOT_RUN: dict[str, dict[str, tuple[str, ...]]] = {
    "builds, installs or measures for minutes": {
        "README.md": ("make demo", "A day of 1,000,000 events"),
        "docs/README.md": ("pip install",),
        "docs/benchmarks.md": ("make bench",),
        "docs/performance.md": ("make bench", "PYTHONPATH=. .venv/bin/python bench"),
        "docs/guides/dashboard.md": ("pip install",),
        "docs/guides/install.md": ("pip install",),
        "docs/guides/other-tools.md": ("pip install",),
        "docs/tutorial/*.md": ("python -m venv", "pip install"),
        "docs/reference/transcripts.md": ("windrow transcript tests",),
    },
    "needs a cluster of machines": {
        "docs/tutorial/7-cluster.md": ("windrow pack",),
        "docs/concepts/hosts.md": ("windrow run spend.yaml --conf",),
        "docs/guides/cluster.md": ("",),
        "docs/guides/kubernetes.md": ("docker build", "kubectl create"),
    },
    "a live run, or a server, which ends with Ctrl-C": {
        "docs/guides/dashboard.md": ("curl", "WINDROW_DASHBOARD_TOKEN"),
        "docs/guides/first-hour.md": ("windrow services",),
        "docs/guides/other-tools.md": ("windrow run",),
        "docs/guides/realtime.md": ("windrow status",),
    },
    "needs Spark's checkpoint of a run of the reader's own": {
        "docs/concepts/hosts.md": ("windrow run pipeline.yaml",),
        "docs/connectors/files.md": ("$ windrow run",),
        "docs/guides/backfill.md": ("windrow run spend.yaml --backfill",),
        "docs/guides/redrive.md": ("windrow redrive spend.yaml",),
        "docs/guides/replay.md": ("windrow replay PIPELINE",),
        "docs/guides/savepoints.md": ("windrow savepoint spend.yaml",),
        "docs/guides/other-tools.md": ("$ OTEL_TRACES_EXPORTER",),
    },
    "shows ways to choose from": {
        "docs/concepts/rules.md": ("windrow replay fraud.yaml",),
        "docs/guides/first-hour.md": ("windrow init orders --from orders.jsonl  ",),
    },
    "for another program": {
        "docs/connectors/delta.md": ("SELECT",),
        "docs/guides/monitoring.md": ("# prometheus.yml",),
        "docs/reference/metrics.md": ("1 - sum(",),
        "docs/reference/transcripts.md": ("[pytest]",),
    },
}
"""By reason: pages, and how their blocks begin. Commands of windrow in them are checked to exist."""

LEAST = {
    "name": "least",
    "source": {"log": {"path": "data"}},
    "decode": {"k": "string", "card": "string", "t": "timestamp"},
    "time": {"field": "t", "delay": "1m"},
    "key": "k",
}
AGGREGATED = {
    "window": {"tumbling": "1m"},
    "aggregate": {"n": "count()"},
    "sink": {"sqlite": {"path": "a.db", "table": "a"}},
}
JUDGED = {
    "recent": {"last": 1, "within": "1h"},
    "rules": [{"name": "a", "when": "true", "severity": "low"}],
    "sink": {"sqlite": {"path": "a.db", "table": "a"}},
}


def listed(block: Block) -> str | None:
    """Return the reason why a block is not run, or None."""
    page = block.page.relative_to(ROOT)
    found = (
        reason
        for reason, pages in NOT_RUN.items()
        if any(page.match(name) and block.text.startswith(beginnings) for name, beginnings in pages.items())
    )
    return next(found, None)


def its_test(block: Block) -> str | None:
    """Return the file of the test that runs or checks a block, or None."""
    if block.title is not None and any(other.language == "console" for other in blocks_of(block.page)):
        return LANGUAGES["console"]
    page = block.page.relative_to(ROOT)
    own = (
        test for (name, language), test in PAGES_OF_THEIR_OWN.items() if language == block.language and page.match(name)
    )
    return next(own, None) or (None if listed(block) else LANGUAGES.get(block.language))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_block_is_run_or_says_why_not(page: Path) -> None:
    missing = [
        f"{page.name}:{block.line}: {block.text[:60]!r}"
        for block in blocks_of(page)
        if not (its_test(block) or listed(block))
    ]
    assert missing == [], 'make it a `console` session, or a file of one (title="NAME"), or list it in NOT_RUN'


def test_nothing_is_listed_in_vain() -> None:
    untested = [block for page in PAGES for block in blocks_of(page) if not its_test(block)]
    for pages in NOT_RUN.values():
        for name, beginnings in pages.items():
            for beginning in beginnings:
                of = [b for b in untested if b.page.relative_to(ROOT).match(name) and b.text.startswith(beginning)]
                assert of, f"{name} has no block that begins with {beginning!r} and that no test runs"
    tests = {*LANGUAGES.values(), *PAGES_OF_THEIR_OWN.values()}
    assert [name for name in tests if not (Path(__file__).parent / name).is_file()] == []


def checked(language: str) -> list[object]:
    """Return the blocks in a language that are checked here."""
    found = [block for block in blocks(language) if its_test(block) == Path(__file__).name]
    return [pytest.param(block, id=block.name) for block in found]


@pytest.mark.parametrize("block", checked("yml"))
def test_a_part_of_a_pipeline_can_stand_in_one(block: Block) -> None:
    part = yaml.safe_load(block.text)
    assert part
    read_document(yaml.safe_dump(LEAST | (JUDGED if "lists" in part else AGGREGATED) | part), block.name)


@pytest.mark.parametrize("block", checked("py"))
def test_a_part_of_a_program_imports_what_there_is(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            module = import_module(node.module)
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


@pytest.mark.parametrize("block", checked("json"))
def test_json_is_json(block: Block) -> None:
    left = block.text.lstrip()
    assert left
    while left:
        _, end = json.JSONDecoder().raw_decode(left)
        left = left[end:].lstrip()
