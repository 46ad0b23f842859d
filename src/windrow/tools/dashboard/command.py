"""`windrow dashboard`: a web page that shows runs."""

from __future__ import annotations

import ipaddress
import json
import threading
import webbrowser
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import click

from windrow import model as m
from windrow.errors import InputError, needs_extra
from windrow.telemetry.folders import Folder, default_checkpoint
from windrow.telemetry.history import FILES
from windrow.terminal.common import OK, complete_files, json_option
from windrow.terminal.listening import listen
from windrow.terminal.options import ADDRESS, STATE_FOLDER
from windrow.terminal.pipelines import only_option, open_pipelines, variable_options

if TYPE_CHECKING:
    from windrow.tools.dashboard.watch import WatchedRun

_SHORTEST = 16
_HELP = {
    "listen": "Address to listen on; --token is required unless it is a loopback address.",
    "checkpoint": "Checkpoint directory of the run, or its URL, for a single PIPELINE.  [default: .windrow/NAME]",
    "token": "Secret of at least 16 characters that each request must carry; it also permits redriving dead letters.",
    "open": "Open the page in the browser.",
}


@click.command("dashboard")
@click.argument("pipelines", metavar="[PIPELINE]...", nargs=-1, shell_complete=complete_files)
@only_option
@variable_options
@click.option("--listen", "listen_at", type=ADDRESS, default="127.0.0.1:8990", show_default=True, help=_HELP["listen"])
@click.option("--checkpoint", type=STATE_FOLDER, metavar="DIR", help=_HELP["checkpoint"])
@click.option("--token", envvar="WINDROW_DASHBOARD_TOKEN", show_envvar=True, metavar="TEXT", help=_HELP["token"])
@click.option("--open", "open_", is_flag=True, help=_HELP["open"])
@json_option
def command(
    *,
    pipelines: tuple[str, ...],
    listen_at: tuple[str, int],
    checkpoint: Folder | None,
    token: str | None,
    open_: bool,
    as_json: bool,
) -> int:
    """Show runs on a web page: whether they make progress, what holds them back, and what other settings would do.

    Each PIPELINE is YAML or SQL, or FILE.py[:VARIABLE] for a pipeline written in Python. Without a PIPELINE the page
    shows all runs with a checkpoint in .windrow, but not what needs a pipeline: settings, graph and tables. The page
    reads the history beside the checkpoint, on the machine of the run, and the tables of the sink. It does not contact
    the running process, which may have ended. Each view is also available as JSON at /api/VIEW.

    Without --token the page is read-only and only for this machine. With it each request needs the token, for which the
    page asks. The token is sent unencrypted: put a proxy with TLS in front of the page, or use it through ssh -L.

    Needs the packages of windrow[dashboard].
    """
    host, port = listen_at
    _check_token(token, host)
    dashboard = _dashboard()
    runs = _runs(pipelines, checkpoint)
    with listen(host, port) as socket:
        app, address = dashboard.create_app(runs, token), dashboard.address_of(socket)
        names = [run.name for run in runs]
        if as_json:
            click.echo(json.dumps({"address": address, "runs": names}, ensure_ascii=False))
        else:
            click.echo(f"{', '.join(names)}: {address} (stop with Ctrl-C)")
        if open_:
            webbrowser.open(address)
        dashboard.server(app, socket).run()
    return OK


def _dashboard() -> ModuleType:
    """Return the module `windrow.tools.dashboard.app`; raise SetupError if packages that it needs are missing."""
    with needs_extra("dashboard", "the dashboard"):
        from windrow.tools.dashboard import app  # noqa: PLC0415 - an extra, and help needs none of it
    return app


@contextmanager
def dashboard_beside(graph: m.Graph, file: Path, checkpoint: Path) -> Iterator[str]:
    """Serve the dashboard of a run in a thread, on a free port of this machine, until the block ends; yield its URL."""
    from windrow.tools.dashboard.watch import WatchedRun  # noqa: PLC0415 - as above

    dashboard = _dashboard()
    with listen("127.0.0.1", 0) as socket:
        run = WatchedRun(graph.name, checkpoint, graph, str(file))
        server = dashboard.server(dashboard.create_app([run]), socket)
        thread = threading.Thread(target=server.run, name="windrow-dashboard")
        thread.start()
        try:
            yield dashboard.address_of(socket)
        finally:
            server.should_exit = True
            thread.join()


def _check_token(token: str | None, host: str) -> None:
    """Raise InputError if the token is too short, or if it is missing and other machines can reach the page."""
    if token is not None and len(token) < _SHORTEST:
        msg = f"--token has {len(token)} characters: use at least {_SHORTEST}, for example from `openssl rand -hex 16`"
        raise InputError(msg)
    if token is None and not _is_loopback(host):
        msg = f"--listen {host} lets other machines read records: give a --token, or listen on 127.0.0.1"
        raise InputError(msg)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _runs(pipelines: tuple[str, ...], checkpoint: Folder | None) -> list[WatchedRun]:
    """Return the runs that the command line selects; raise InputError if there are none or two have the same name."""
    from windrow.tools.dashboard.watch import WatchedRun  # noqa: PLC0415 - help needs none of it

    if checkpoint is not None and len(pipelines) > 1:
        msg = f"--checkpoint is for a single run, but {len(pipelines)} pipelines are given: leave it out, or give one"
        raise InputError(msg)
    if checkpoint is not None and not pipelines:
        return [WatchedRun(Path(str(checkpoint)).name, checkpoint)]
    if not pipelines:
        paths = sorted(Path(".windrow").glob(f"*/{FILES[0]}"))
        if not paths:
            msg = "there is no checkpoint in .windrow here: give the pipeline or its --checkpoint"
            raise InputError(msg)
        return [WatchedRun(path.parent.name, path.parent) for path in paths]
    runs = []
    for file in pipelines:
        opened = [pipeline.runnable() for pipeline in open_pipelines(file)]
        if checkpoint is not None and len(opened) > 1:
            msg = f"--checkpoint is for a single run, but {file} has {len(opened)} pipelines: choose one with --only"
            raise InputError(msg)
        runs += [WatchedRun(graph.name, checkpoint or default_checkpoint(graph.name), graph, file) for graph in opened]
    name, count = Counter(run.name for run in runs).most_common(1)[0]
    if count > 1:
        msg = f"two of the pipelines are called {name!r}, so they would share a checkpoint: give only one of them"
        raise InputError(msg)
    return runs
