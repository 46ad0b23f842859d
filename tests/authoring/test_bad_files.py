"""Every file in `bad/` is refused with the message beside it."""

from pathlib import Path

import pytest

from windrow.authoring.load import open_pipeline
from windrow.authoring.pipeline_file import parse_pipeline
from windrow.errors import PipelineError

BAD = Path(__file__).parent / "bad"


@pytest.mark.parametrize("case", sorted(path.stem for path in BAD.glob("*.yaml")))
def test_a_bad_file_is_refused_with_the_message_beside_it(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BAD)
    with pytest.raises(PipelineError) as refused:
        open_pipeline(f"{case}.yaml").runnable()
    assert f"{refused.value}\n" == (BAD / f"{case}.txt").read_text()
    assert refused.value.exit_code == 2
    assert refused.value.place is not None


def test_each_message_has_its_file() -> None:
    assert {path.stem for path in BAD.glob("*.txt")} == {path.stem for path in BAD.glob("*.yaml")}


@pytest.mark.parametrize(
    ("name", "message"), [("absent.yaml", "there is no file"), (".", "is a folder"), ("a\0b", "cannot be read")]
)
def test_a_file_that_cannot_be_read_is_refused(name: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BAD)
    with pytest.raises(PipelineError, match=message):
        open_pipeline(name)


def test_a_file_nested_without_end_is_refused() -> None:
    with pytest.raises(PipelineError, match="nested too deeply"):
        parse_pipeline("[" * 100_000)
