"""The pytest plugin, in a project of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]
# each project runs in a process of its own: numpy cannot be loaded twice in one

STORY = """\
name: one record
pipeline:
  time: {field: t, delay: 0s}
  key: [user]
  window: {tumbling: 5m}
  aggregate: {n: count()}
steps:
  - records: [{user: A, t: "10:00"}]
  - end: fire
final:
  - ["10:00", A, 1]
"""
INI = """
[pytest]
windrow_transcripts = stories/*.yaml
windrow_rebatch = 1
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    stories = pytester.mkdir("stories")
    (stories / "good.yaml").write_text(STORY)
    (stories / "bad.yaml").write_text(STORY.replace("A, 1]", "A, 2]"))
    (stories / "none.yaml").write_text(STORY.replace("steps:", "step:"))
    (stories / "notes.txt").write_text("no story")
    return pytester


def test_stories_are_tests(project: pytest.Pytester) -> None:
    project.makeini(INI)
    result = project.runpytest_subprocess("-v")
    result.assert_outcomes(passed=1, failed=2)
    shown = result.stdout.str()
    assert "good.yaml::memory PASSED" in shown
    assert '! ["10:00", A, 2]   ["10:00", A, 1]' in shown
    assert "none.yaml:7: 'step' is not a key of story" in shown
    assert "Traceback" not in shown


def test_without_the_setting_nothing_is_collected(project: pytest.Pytester) -> None:
    project.makeini("[pytest]")
    result = project.runpytest_subprocess()
    result.assert_outcomes()


def test_fixture_runs_a_story(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest
        from windrow.testing.plugin import StoryFailedError

        def test_good(run_story):
            assert run_story("stories/good.yaml", rebatch=2).runs == 5

        def test_bad(run_story):
            with pytest.raises(StoryFailedError, match="final"):
                run_story("stories/bad.yaml")
        """
    )
    project.runpytest_subprocess().assert_outcomes(passed=2)


def test_plugin_imports_nothing_heavy() -> None:
    code = (
        "import sys, windrow.testing.plugin; "
        "print([name for name in ('pyarrow', 'duckdb', 'pandas', 'numpy', 'pyspark', 'yaml') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert found.strip() == "[]"
