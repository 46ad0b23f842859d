"""Pipelines in Python files."""

from pathlib import Path

import pytest

import windrow as wr
from windrow.authoring.load import split_spec
from windrow.errors import PipelineError, Place, each_error

SOURCE = """\
from pathlib import Path

import windrow as wr

assert __name__ != "__main__"
stream = wr.log("data").decode(user="string", t="timestamp").event_time("t", delay="1m")
windowed = stream.key_by("user").window(wr.tumbling("5m"))
pipeline = windowed.aggregate(n=wr.count()).to(wr.sqlite("a.db", table="one"))
other = windowed.aggregate(n=wr.count()).to(wr.sqlite("a.db", table="two"))
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text(SOURCE)
    return path


@pytest.mark.parametrize(
    ("spec", "split"),
    [
        ("a.py", ("a.py", "pipeline")),
        ("a/b.py:other", ("a/b.py", "other")),
        ("C:/a.py", ("C:/a.py", "pipeline")),
        ("a.yaml", None),
        ("a.py:", None),
        ("a.py:x.y", None),
        ("", None),
    ],
)
def test_specs(spec: str, split: tuple[str, str] | None) -> None:
    assert split_spec(spec) == split


def test_the_variable_is_pipeline_or_named(file: Path) -> None:
    assert wr.load(file).name == "one"
    assert wr.load(f"{file}:other").name == "two"


def test_a_missing_variable_is_told_with_those_there_are(file: Path) -> None:
    with pytest.raises(
        PipelineError, match=r"no pipeline called 'nope'; it has pipeline, other: give .*job.py:pipeline"
    ):
        wr.load(f"{file}:nope")
    file.write_text("pipeline = 1\n")
    with pytest.raises(
        PipelineError, match=r"'pipeline' in .*job.py' is an int, not a pipeline; end the stages with .to\(sink\)"
    ):
        wr.load(file)
    file.write_text(f"{SOURCE}stage = wr.log('x')\n")
    with pytest.raises(
        PipelineError, match=r"'stage' in .*job.py' is a Stream, not a pipeline; it has pipeline, other: give"
    ):
        wr.load(f"{file}:stage")
    with pytest.raises(PipelineError, match=r"'wr' in .*job.py' is a module, not a pipeline; it has pipeline, other"):
        wr.load(f"{file}:wr")


@pytest.mark.parametrize(
    ("source", "line", "message"),
    [
        ("x = 1\nx = = 2\n", 2, "is not valid Python: invalid syntax"),
        ("\n\n1 / 0\n", 3, "the file raised ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit('no')\n", 2, "the file raised SystemExit: no"),
        ("\nraise KeyboardInterrupt\n", 2, "the file raised KeyboardInterrupt"),
        ("\nraise GeneratorExit\n", 2, "the file raised GeneratorExit"),
        ("raise ValueError('\\ud800')\n", 1, "the file raised ValueError: \\ud800"),
        (
            "class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd\n",
            3,
            "the file raised Odd: its __str__ raised ValueError",
        ),
        ("import windrow as wr\nwr.tumbling('x')\n", 2, "window.tumbling.size: 'x' is not a duration"),
        ("import windrow as wr\n\ndef f():\n    wr.log('x').decode(a='b')\nf()\n", 4, "decode.a: 'b' is not a type"),
        ("import no_such_module\n", 1, "the file raised ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_what_goes_wrong_in_the_file_has_its_line(file: Path, source: str, line: int, message: str) -> None:
    file.write_text(source)
    with pytest.raises(PipelineError) as refused:
        wr.load(file)
    assert refused.value.place == Place(str(file), line)
    assert refused.value.message.startswith(message)


def test_a_file_may_import_its_neighbours(file: Path) -> None:
    (file.parent / "neighbour_of_job.py").write_text("TABLE = 'three'\n")
    file.write_text(f"from neighbour_of_job import TABLE\n{SOURCE}".replace('"one"', "TABLE"))
    assert wr.load(file).name == "three"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="there is no file"):
        wr.load(tmp_path / "absent.py")


def test_every_problem_of_a_pipeline_in_a_file_is_told(file: Path) -> None:
    file.write_text(SOURCE.replace('"user")', '"usr")').replace('"5m"', '"0s"'))
    with pytest.raises(
        PipelineError, match=r"(?s)job.py:8: key.0: 'usr' .* did you mean 'user'.*must be longer"
    ) as refused:
        wr.load(file)
    assert refused.value.place == Place(str(file), 8)


def test_each_problem_has_its_line(file: Path) -> None:
    file.write_text(SOURCE.replace('"user")', '"usr")').replace('"5m"', '"0s"'))
    with pytest.raises(PipelineError) as refused:
        wr.load(file)
    assert [one.place for one in each_error(refused.value)] == [Place(str(file), 8)] * 2
