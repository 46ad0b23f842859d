"""Watches a run for alerts and sends them, in separate threads that neither delay its steps nor end the run."""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import threading
import time
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from windrow import model as m
from windrow.deadline import TimeLimit
from windrow.errors import InputError, WindrowError
from windrow.model.references import (
    mask_arguments,
    mask_webhook,
    redact,
    referenced_values,
    resolve_arguments,
    resolve_references,
)
from windrow.runtime.run import PLACEHOLDER, CommandLines, OnAlert, RunSettings
from windrow.telemetry.history import RunRecord, history_of, read_alerts, read_last_savepoint, read_runs
from windrow.telemetry.reports import Alert, Observer, now_micros
from windrow.tools.alerts.conditions import AlertEvaluator, Past

_EVERY: Final = 1.0
"""Seconds between two evaluations."""
_TIMEOUT: Final = 10.0
"""Timeout in seconds of the webhook and the command."""
_PAUSES: Final = (1.0, 5.0, 25.0)
"""Pauses in seconds between the attempts to send an alert."""
_LEAVE: Final = 5.0
"""Seconds that the end of a run waits for alerts that are being sent."""
_WAITING: Final = 1_000
"""Alerts that may wait to be sent; further ones are dropped."""
_WEEK: Final = 7 * 86_400_000_000


@contextmanager
def watch_run(graph: m.Graph, options: RunSettings, record: RunRecord) -> Iterator[Observer]:
    """Raise the alerts of a live run until the block ends (see `windrow.runtime.launch.RunSettings.watch`)."""
    past = partial(read_past, history_of(options.checkpoint), record)
    with AlertWatch(
        graph, options.every, past, options.on_alert, options.on_warning, commands=options.commands
    ) as alerts:
        yield alerts.observer


class AlertWatch:
    """Context manager that evaluates a run's reports in a thread and raises and resolves its alerts.

    It starts with `begin`, or when the run is ready. `on_alert` is called with each alert that is raised or resolved,
    before the alert is sent to the webhook and the command. `on_warning` is called with the reason if an alert could
    not be sent. `past` is called once in the thread when it starts. `commands` supplies the command lines quoted in
    messages.
    """

    def __init__(
        self,
        graph: m.Graph,
        every: int,
        past: Callable[[], Past],
        on_alert: OnAlert,
        on_warning: Callable[[str], None],
        *,
        commands: CommandLines = PLACEHOLDER,
    ) -> None:
        self._graph = graph
        self._commands = commands
        self._every = every
        self._past = past
        self._on_alert = on_alert
        self._on_warning = on_warning
        self._coming: queue.SimpleQueue[Callable[[AlertEvaluator], None] | None] = queue.SimpleQueue()
        self._has_begun = threading.Event()
        self._has_failed = threading.Event()
        self._senders = _Sender.all_of(graph.alerts, on_warning)
        self._thread = threading.Thread(target=self._watch, name="windrow-alerts", daemon=True)

    def __enter__(self) -> Self:
        for warning in _unreachable(self._graph.alerts):
            self._on_warning(warning)
        for sender in self._senders:
            sender.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, stack: TracebackType | None
    ) -> None:
        if isinstance(value, WindrowError):
            self._pass(AlertEvaluator.add_end, value)
        self._coming.put(None)
        self._thread.join(_LEAVE)
        for sender in self._senders:
            sender.end()
        until = time.monotonic() + _LEAVE
        for sender in self._senders:
            sender.join(max(0.0, until - time.monotonic()))

    def begin(self) -> None:
        """Start evaluating: the run processes steps, or resumes from its own checkpoint."""
        if not self._has_begun.is_set():
            self._has_begun.set()
            self._coming.put(lambda _: None)

    @property
    def observer(self) -> Observer:
        """Callbacks that pass their arguments to the evaluator."""
        return Observer(
            on_step=lambda report: self._pass(AlertEvaluator.add_step, report, now_micros()),
            on_trouble=lambda fault: self._pass(AlertEvaluator.add_fault, fault, now_micros()),
            on_ready=self._ready,
            on_lag=lambda lag: self._pass(AlertEvaluator.add_lag, lag),
            on_resume=self.begin,
        )

    def _ready(self) -> None:
        self.begin()
        self._pass(AlertEvaluator.add_ready)

    def _pass(self, call: Callable[..., None], *values: object) -> None:
        """Queue a call of an evaluator method for the thread."""
        if self._has_begun.is_set() and not self._has_failed.is_set():
            self._coming.put(lambda alerts: call(alerts, *values))

    def _watch(self) -> None:
        try:
            if self._coming.get() is None:
                return  # it never started
            evaluator = AlertEvaluator(
                self._graph, every=self._every, now=now_micros(), past=self._past(), commands=self._commands
            )
            for _ in self._turns(evaluator):
                for alert in evaluator.evaluate(now_micros()):
                    self._on_alert(alert)
                    for sender in self._senders:
                        sender.send(alert)
        except Exception as exc:  # noqa: BLE001 - a defect here must not end the run, and is reported
            self._has_failed.set()
            self._on_warning(f"alerts are no longer raised: {type(exc).__name__}: {exc}")

    def _turns(self, evaluator: AlertEvaluator) -> Iterator[None]:
        """Make the queued calls; yield once a second, and at the end."""
        until = time.monotonic() + _EVERY
        while True:
            try:
                call = self._coming.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                yield
                until = time.monotonic() + _EVERY
                continue
            if call is None:
                yield
                return
            call(evaluator)


class _Sender(threading.Thread):
    """Thread that sends alerts to one receiver in order; `called` is the receiver's name in messages."""

    def __init__(self, called: str, send: Callable[[bytes], None], on_warning: Callable[[str], None]) -> None:
        super().__init__(name="windrow-alerts-sender", daemon=True)
        self._called = called
        self._send = send
        self._on_warning = on_warning
        self._coming: queue.Queue[Alert | None] = queue.Queue(_WAITING)
        self._is_leaving = threading.Event()

    @staticmethod
    def all_of(alerts: m.Alerts, on_warning: Callable[[str], None]) -> list[_Sender]:
        """Return a sender for each of the webhook and the command that is configured."""
        found = []
        if alerts.webhook is not None:
            found.append(
                _Sender(
                    f"the webhook {mask_webhook(alerts.webhook)}",
                    partial(_post, TimeLimit(1), alerts.webhook),
                    on_warning,
                )
            )
        if alerts.command:
            called = f"the command {mask_arguments(alerts.command)[0]}"
            found.append(_Sender(called, partial(_run, alerts.command), on_warning))
        return found

    def send(self, alert: Alert) -> None:
        """Queue an alert to be sent, without blocking."""
        try:
            self._coming.put_nowait(alert)
        except queue.Full:
            self._on_warning(f"the alert {alert.name} is not sent to {self._called}: {_WAITING:,} are already waiting")

    def end(self) -> None:
        """Ask the thread to end after the alert that it is sending."""
        self._is_leaving.set()
        with suppress(queue.Full):
            self._coming.put_nowait(None)

    def run(self) -> None:
        """Send queued alerts until the thread is asked to end."""
        while (alert := self._coming.get()) is not None:
            body = f"{json.dumps(alert.plain(), default=str)}\n".encode()
            for pause in (*_PAUSES, None):
                why = self._try(body)
                # a missing secret stays missing
                if why is None or isinstance(why, InputError) or pause is None or self._is_leaving.wait(pause):
                    break
            if why is not None:
                reason = str(why) or type(why).__name__
                self._on_warning(f"the alert {alert.name} could not be sent to {self._called}: {reason}")

    def _try(self, body: bytes) -> Exception | None:
        """Send an alert; return the error, or None."""
        try:
            self._send(body)
        except (OSError, ValueError, HTTPException, InputError, subprocess.SubprocessError) as exc:
            return exc
        return None


def _unreachable(alerts: m.Alerts) -> Iterator[str]:
    """Yield each reason, known before the first alert, why alerts cannot reach a receiver."""
    if alerts.webhook is not None:
        try:
            resolve_references(alerts.webhook, "alerts.webhook", str)
        except InputError as exc:
            yield f"no alert will reach the webhook {mask_webhook(alerts.webhook)}: {exc}"
    if alerts.command:
        try:
            program = resolve_arguments(alerts.command, "alerts.command")[0]
        except InputError as exc:
            yield f"no alert will reach the command: {exc}"
        else:
            if shutil.which(program) is None:
                shown = mask_arguments(alerts.command)[0]
                yield f"no alert will reach the command: the program {shown!r} was not found"


def _post(limit: TimeLimit[None], url: str, body: bytes) -> None:
    """Send a JSON body by POST; raise OSError, HTTPException, ValueError or InputError if that fails or takes too long.

    Error messages contain no part of the URL, because it may hold a secret.
    """
    url = resolve_references(url, "alerts.webhook", lambda text: quote(text, safe=""))
    try:
        parts = urlsplit(url)
        is_good = parts.hostname is not None and (parts.port is None or parts.port > 0)
    except ValueError:
        is_good = False
    else:
        if parts.scheme not in {"http", "https"}:
            msg = "its URL does not begin with https:// or http://"
            raise ValueError(msg)
    if not is_good or any(letter.isspace() or not letter.isprintable() for letter in url):
        msg = "its URL is invalid: percent-encode special characters (an @ is %40, a slash %2F)"
        raise ValueError(msg)
    headers = {"Content-Type": "application/json"}
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = f"Basic {b64encode(login.encode()).decode()}"
        url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    request = urllib.request.Request(url, body, headers, method="POST")  # noqa: S310
    limit.call(_TIMEOUT, partial(_send, request))


def _send(request: urllib.request.Request) -> None:
    url = request.full_url
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310 - the scheme was checked
        # a redirect is followed by GET, without the body
        if answer.geturl() != url:
            msg = "it redirects to another URL: use that URL"
            raise ValueError(msg)


def _run(command: tuple[str, ...], body: bytes) -> None:
    """Run a command with a JSON body on stdin; raise OSError or InputError if it fails.

    Error messages never contain the values of references in the command, because they may be secret.
    """
    argv = resolve_arguments(command, "alerts.command")
    secrets = referenced_values(command)
    try:
        done = subprocess.run(argv, input=body, timeout=_TIMEOUT, capture_output=True, check=False)  # noqa: S603 - the user's own
    except subprocess.TimeoutExpired:
        msg = f"it timed out after {_TIMEOUT:g} seconds"
        raise OSError(msg) from None
    except (OSError, ValueError) as exc:
        raise OSError(redact(str(exc), secrets)) from None
    if done.returncode:
        line = redact(done.stderr.decode(errors="replace"), secrets).strip().partition("\n")[0]
        msg = f"it ended with exit code {done.returncode}{f': {line}' if line else ''}"
        raise OSError(msg)


def read_past(path: Path, record: RunRecord) -> Past:
    """Read from a history what is known about runs before the process of `record`."""
    now, process = now_micros(), (record.machine, record.pid, record.began)
    try:
        runs = [run for run in read_runs(path) if (run.machine, run.pid, run.began) != process]
        active = tuple(alert for alert in read_alerts(path) if alert.is_active)
        saved = read_last_savepoint(path)
    except InputError:
        return Past(began=now)
    totals = [run.totals for run in runs if run.totals is not None]
    week = [run.totals for run in runs if run.totals is not None and run.seen > now - _WEEK]
    return Past(
        events=sum(total["events"] - total["dead"] for total in week),
        late=sum(total["late"] for total in week),
        reasons=frozenset(kind for total in totals for kind in total.get("dead_reasons", {})),
        saved=saved,
        began=min((run.began for run in runs), default=now),
        active=active,
    )
