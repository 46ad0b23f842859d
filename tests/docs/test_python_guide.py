"""The guide to Python: its sessions give what they show, and the notebooks run from top to bottom."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from tests.client.purchases import spend
from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "guides" / "python.md"
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def test_the_sessions_of_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (log,) = (block.text for block in blocks("json") if block.page == PAGE)
    (tmp_path / "data" / "spend").mkdir(parents=True)
    (tmp_path / "data" / "spend" / "partition-0.jsonl").write_text(log)
    names: dict[str, Any] = {}
    (code,) = (block.text for block in blocks("python") if block.page == PAGE)
    exec(compile(code, PAGE.name, "exec"), names)  # noqa: S102 - the page's own code
    # docstrings and tests have the same pipeline
    assert names["pipeline"] == spend()
    text = "\n".join(block.text for block in blocks("pycon") if block.page == PAGE)
    examples = doctest.DocTestParser().get_doctest(text, names, PAGE.name, str(PAGE), 0)
    said: list[str] = []
    found = doctest.DocTestRunner().run(examples, out=said.append)
    assert found.attempted
    assert not found.failed, "".join(said)


@pytest.mark.parametrize(
    "notebook",
    [
        pytest.param(path, id=path.stem, marks=[] if path.stem == "first_steps" else pytest.mark.long)
        for path in NOTEBOOKS
    ],
)
def test_a_notebook_runs_and_is_kept_without_outputs(notebook: Path, tmp_path: Path) -> None:
    book: Any = nbformat.read(notebook, as_version=4)  # type: ignore[no-untyped-call]
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell for cell in code if cell.outputs or cell.execution_count] == []
    NotebookClient(book, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in code for output in cell.outputs]
    shown = [kind for output in outputs for kind in output.get("data", {})]
    assert {"text/html", "image/png"} <= set(shown)
    # nothing was complained of; the progress of a run was an output of its own, which is empty at its end
    assert [output for output in outputs if output.output_type in {"stream", "error"}] == []
    assert {"text/plain": ""} in [output.get("data") for output in outputs]


def test_there_are_the_notebooks_that_the_guide_names() -> None:
    named = set(re.findall(r"`(\w+\.ipynb)`", PAGE.read_text(encoding="utf-8")))
    assert named == {notebook.name for notebook in NOTEBOOKS}
