"""`windrow monitoring`: what watches runs from outside, over the metrics of `windrow run --listen`."""

from __future__ import annotations

from importlib.resources import files
from typing import Literal

import click
import yaml

from windrow.terminal.common import OK, json_option, print_json

_RUNBOOKS = "docs/runbooks"
_HELP = {"runbooks": "Where the runbooks are: alerts link to URL/NAME.md.  [default: docs/runbooks]"}


@click.command("monitoring")
@click.argument("system", metavar="prometheus|grafana", type=click.Choice(["prometheus", "grafana"]))
@click.option("--runbooks", metavar="URL", default=_RUNBOOKS, help=_HELP["runbooks"])
@json_option
def command(*, system: Literal["prometheus", "grafana"], runbooks: str, as_json: bool) -> int:
    """Print alerts for Prometheus, or a dashboard for Grafana.

    Both are over the metrics of `windrow run --listen`. Write them to a file: `windrow monitoring prometheus >
    windrow.rules.yml`, for `rule_files` of Prometheus, or `windrow monitoring grafana > windrow.json`, to be imported.
    """
    folder = files("windrow.tools.monitoring")
    if system == "grafana":
        click.echo((folder / "windrow.dashboard.json").read_text(encoding="utf-8"), nl=False)
        return OK
    rules = (folder / "windrow.rules.yml").read_text(encoding="utf-8")
    rules = rules.replace(f"runbook_url: {_RUNBOOKS}/", f"runbook_url: {runbooks.rstrip('/')}/")
    if as_json:
        print_json(yaml.safe_load(rules))
    else:
        click.echo(rules, nl=False)
    return OK
