"""The rules and the dashboard are what Prometheus and Grafana take, over metrics and labels that a run exports."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tests.cli.test_listen import STEP

from windrow.cli import main
from windrow.connectors.follower import SlotLag
from windrow.model import ALERT_NAMES
from windrow.telemetry.metrics import METRICS, RunMetrics
from windrow.telemetry.reports import Lag
from windrow.tools.monitoring.command import rules_text

ROOT = Path(__file__).parents[3]
DASHBOARD = ROOT / "src" / "windrow" / "tools" / "monitoring" / "windrow.dashboard.json"
CASES = Path(__file__).parent / "alerts.yaml"
OF_PROMETHEUS = {"job", "instance"}


def rules() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(rules_text())["groups"][0]["rules"]
    return found


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return found


def panels() -> list[dict[str, Any]]:
    return [one for one in dashboard()["panels"] if one["type"] != "row"]


def dashboard_expressions() -> Iterator[tuple[str, str]]:
    """The expressions of the dashboard, each with its legend, as Grafana asks Prometheus."""
    for panel in panels():
        for target in panel["targets"]:
            yield target["expr"].replace("$__rate_interval", "1m").replace("$pipeline", "spend"), target["legendFormat"]


def expressions() -> dict[str, str]:
    """All expressions, with the text whose labels must be theirs."""
    annotations = {one["expr"]: " ".join(one.get("annotations", {}).values()) for one in rules()}
    return {**annotations, **dict(dashboard_expressions())}


def run_promtool(*arguments: str | Path, given: bytes = b"") -> tuple[int, str]:
    """Run Prometheus' own tool; return its exit code and what it said."""
    found = shutil.which("promtool", path=f"{ROOT}/.venv/tools/usr/bin") or shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed: scripts/test installs it, as root on Debian")
    ran = subprocess.run([found, *arguments], input=given, capture_output=True, check=False)
    return ran.returncode, (ran.stdout + ran.stderr).decode()


def test_promtool_finds_nothing_wrong_with_the_metrics() -> None:
    metrics = RunMetrics("user-spend", 1_000_000)
    metrics.on_lag(Lag(0, {}, slots=(SlotLag("orders", 1, 1.0),)))
    metrics.on_step(replace(STEP, state_rows=1))
    page, _ = metrics.page("")
    text = page.decode()
    assert [one.name for one in METRICS if f"# HELP {one.name} " not in text] == []
    assert run_promtool("check", "metrics", given=page) == (0, "")


@pytest.fixture(name="rules_file")
def make_rules_file(tmp_path: Path) -> Path:
    file = tmp_path / "windrow.rules.yml"
    file.write_text(rules_text(), encoding="utf-8")
    return file


def test_promtool_finds_nothing_wrong_with_the_rules(rules_file: Path) -> None:
    code, said = run_promtool("check", "rules", "--lint=all", "--lint-fatal", rules_file)
    assert (code, f"{len(rules())} rules found" in said) == (0, True), said


def test_each_alert_is_raised_as_its_case_says_and_not_just_below(rules_file: Path) -> None:
    code, said = run_promtool("test", "rules", shutil.copy(CASES, rules_file.parent))
    assert code == 0, said


def test_each_alert_has_a_case_that_raises_it_and_one_that_does_not() -> None:
    cases = [
        (case["alertname"], bool(case.get("exp_alerts")))
        for test in yaml.safe_load(CASES.read_text())["tests"]
        for case in test["alert_rule_test"]
    ]
    assert set(cases) == {(one["alert"], is_raised) for one in rules() if "alert" in one for is_raised in (True, False)}


def test_there_is_a_rule_for_each_alert_with_all_that_it_needs() -> None:
    found = {one["alert"]: one for one in rules() if "alert" in one}
    names = {f"Windrow{name.title().replace('-', '')}": name for name in ALERT_NAMES}
    assert found.keys() == names.keys()
    for alert, one in found.items():
        assert one["for"]
        assert one["labels"]["severity"] in {"critical", "warning", "info"}
        assert set(one["annotations"]) == {"summary", "description", "runbook_url"}
        assert one["annotations"]["runbook_url"] == f"docs/guides/alerts.md#{names[alert]}"


def test_promtool_can_parse_each_expression_of_the_dashboard(tmp_path: Path) -> None:
    found = [{"record": f"panel:{number}", "expr": one} for number, (one, _) in enumerate(dashboard_expressions())]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": found}]}))
    code, said = run_promtool("check", "rules", file)
    assert (code, f"{len(found)} rules found" in said) == (0, True), said


@pytest.mark.parametrize(("expression", "text"), expressions().items())
def test_each_metric_and_label_is_exported(expression: str, text: str) -> None:
    assert list(strangers(expression, text)) == []


@pytest.mark.parametrize(
    ("expression", "text", "stranger"),
    [
        ("windrow_epochs", "", "windrow_epochs"),
        ("windrow_steps_total_bucket", "", "windrow_steps_total_bucket"),
        ('windrow_epoch{partition="1"}', "", "windrow_epoch{partition}"),
        ("sum by (partition) (windrow_epoch)", "", "partition"),
        ("windrow_epoch", "{{partition}}", "partition"),
        ("windrow_epoch", "{{ $labels.node }}", "node"),
        ("windrow:epoch", "", "windrow:epoch"),
        ("windrow_epoch", '{{ with query "windrow_epochs" }}', "windrow_epochs"),
    ],
)
def test_what_is_not_exported_is_found(expression: str, text: str, stranger: str) -> None:
    assert list(strangers(expression, text)) == [stranger]


def strangers(expression: str, text: str) -> Iterator[str]:
    """Metrics and labels in an expression, or in a text about its result, that no run exports."""
    described, recorded = {one.name: one for one in METRICS}, {one["record"] for one in rules() if "record" in one}
    yield from (name for name in re.findall(r"windrow:[\w:]+", expression) if name not in recorded)
    known = OF_PROMETHEUS | {"pipeline"}
    if recorded & set(re.findall(r"windrow:[\w:]+", expression)):
        known |= {"partition"}
    for name, selectors in re.findall(r"\b(windrow_\w+)(?:\{([^}]*)\})?", f"{expression} {text}"):
        metric = described.get(name) or described.get(re.sub("_(bucket|sum|count)$", "", name))
        if metric is None or (metric.name != name) != (metric.kind == "histogram"):
            yield name
            continue
        own = {"pipeline", *OF_PROMETHEUS, *metric.labels, *(["le"] if name.endswith("_bucket") else [])}
        yield from (f"{name}{{{label}}}" for label in re.findall(r"(\w+)\s*=", selectors) if label not in own)
        known |= own
    lists = re.findall(r"\b(?:by|without|on|ignoring|group_left)\s*\(([\w, ]*)\)", expression)
    named = [label for one in lists for label in re.findall(r"\w+", one)]
    named += [
        "".join(found) for found in re.findall(r'\{\{(\w+)\}\}|\$labels\.(\w+)|\.Labels\.(\w+)|label "(\w+)"', text)
    ]
    yield from (label for label in named if label not in known)


def test_each_metric_is_on_the_dashboard() -> None:
    text = " ".join(expression for expression, _ in dashboard_expressions())
    assert [one.name for one in METRICS if not re.search(rf"\b{one.name}(_bucket|_sum|_count)?\b", text)] == []


def test_panels_are_placed_and_described() -> None:
    found = dashboard()["panels"]
    assert len({one["id"] for one in found}) == len(found)
    for one in panels():
        assert one["description"].endswith(".")
        assert one["fieldConfig"]["defaults"]["unit"]
        assert one["targets"]
        assert len({target["refId"] for target in one["targets"]}) == len(one["targets"])
        for asked in [one, *one["targets"]]:
            assert asked["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert all('pipeline="$pipeline"' in target["expr"] for target in one["targets"])
    for one, other in combinations([one["gridPos"] for one in found], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert beside or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    assert all(one["gridPos"]["x"] + one["gridPos"]["w"] <= 24 for one in found)
    assert [one["title"] for one in found if one["type"] == "row"] == ["Overview", "Time", "Steps", "State", "Alerts"]
    assert [one["name"] for one in dashboard()["templating"]["list"]] == ["datasource", "pipeline"]


def test_the_command_prints_them() -> None:
    assert output("grafana") == output("grafana", "--json") == DASHBOARD.read_text(encoding="utf-8")
    assert output("prometheus") == rules_text()
    linked = output("prometheus", "--runbooks", "https://wiki/alerts")
    assert yaml.safe_load(linked) == yaml.safe_load(
        rules_text().replace("docs/guides/alerts.md", "https://wiki/alerts")
    )
    assert json.loads(output("prometheus", "--json", "--runbooks", "https://wiki/alerts")) == yaml.safe_load(linked)


def output(*words: str) -> str:
    ran = CliRunner().invoke(main, ["monitoring", *words], catch_exceptions=False, standalone_mode=False)
    return ran.stdout
