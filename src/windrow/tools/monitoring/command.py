"""`windrow monitoring`: alert rules and a dashboard for the metrics of `windrow run --listen`."""

from __future__ import annotations

from importlib.resources import files
from textwrap import fill, indent
from typing import Final, Literal

import click
import yaml

from windrow.telemetry.health import CONDITIONS, RUNBOOKS, Condition, runbook_of
from windrow.terminal.common import OK, json_option, print_json

_HEAD: Final = """\
# Prometheus alert rules for windrow, based on the metrics of `windrow run --listen`. The limits and the times in `for`
# are starting points: change them to what you promise.
groups:
  - name: windrow
    rules:
      # time of a run's last commit, or of its start
      - record: windrow:progress:timestamp_seconds
        expr: windrow_last_commit_timestamp_seconds or windrow_start_timestamp_seconds

      # age of the record read last, by its log timestamp; 0 if no records are waiting. If the log has no timestamps:
      # the time it takes to read the waiting records, at the rate of the last 5 minutes
      - record: windrow:lag:seconds
        expr: |
          max without (partition) (
            windrow_consumer_lag_seconds
            or (windrow_consumer_lag_records > 0) / rate(windrow_records_total[5m])
            or windrow_consumer_lag_records == 0
          )
"""
_HELP = {"runbooks": f"URL of the page on alerts; each alert links to URL#NAME.  [default: {RUNBOOKS}]"}


@click.command("monitoring")
@click.argument("system", metavar="prometheus|grafana", type=click.Choice(["prometheus", "grafana"]))
@click.option("--runbooks", metavar="URL", default=RUNBOOKS, help=_HELP["runbooks"])
@json_option
def command(*, system: Literal["prometheus", "grafana"], runbooks: str, as_json: bool) -> int:
    """Print alert rules for Prometheus, or a dashboard for Grafana.

    Both use the metrics of `windrow run --listen`. Redirect the output to a file: `windrow monitoring prometheus >
    windrow.rules.yml` for the `rule_files` of Prometheus, or `windrow monitoring grafana > windrow.json` to import into
    Grafana.
    """
    if system == "grafana":
        dashboard = files("windrow.tools.monitoring") / "windrow.dashboard.json"
        click.echo(dashboard.read_text(encoding="utf-8"), nl=False)
        return OK
    text = rules_text(runbooks)
    if as_json:
        print_json(yaml.safe_load(text))
    else:
        click.echo(text, nl=False)
    return OK


def rules_text(runbooks: str = RUNBOOKS) -> str:
    """Return the Prometheus rules as YAML; alerts link to their sections of the page `runbooks`."""
    return _HEAD + "".join(condition.fill(_rule_text(condition, runbooks)) for condition in CONDITIONS.values())


def _rule_text(condition: Condition, runbooks: str) -> str:
    promql = indent(condition.promql, " " * 10).lstrip()
    description = fill(condition.description, 108, break_long_words=False, break_on_hyphens=False)
    return f"""
      # {condition.note or condition.measure}
      - alert: {condition.rule}
        expr: |
          {promql}
        for: {condition.hold}
        labels: {{severity: {condition.severity}}}
        annotations:
          summary: >-
            {condition.summary}
          description: >-
            {indent(description, " " * 12).lstrip()}
          runbook_url: {runbook_of(condition.name, runbooks)}
"""
