"""Watches a run for alerts and sends them, in threads of its own: no step waits for them, and none can end the run."""

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
from windrow.telemetry.history import RunRecord, history_of, read_alerts, read_runs, read_saved
from windrow.telemetry.reports import Alert, Fault, Lag, Observer, StepReport, now_micros
from windrow.tools.alerts.conditions import AlertEvaluator, Past

_EVERY: Final = 1.0
"""Seconds between two looks at the alerts."""
_TIMEOUT: Final = 10.0
"""Seconds that a webhook or a command has for an alert."""
_PAUSES: Final = (1.0, 5.0, 25.0)
"""Seconds before an alert that could not be sent is sent again."""
_LEAVE: Final = 5.0
"""Seconds that the end of a run waits for what is being sent."""
_WAITING: Final = 1_000
"""Alerts that may wait to be sent; more are left out."""
_WEEK: Final = 7 * 86_400_000_000


@contextmanager
def watch_run(graph: m.Graph, options: RunSettings, record: RunRecord) -> Iterator[Observer]:
    """Raise the alerts of a live run until the block ends (`windrow.runtime.launch.RunSettings.watch`)."""
    past = partial(read_past, history_of(options.checkpoint), record)
    with AlertWatch(
        graph, options.every, past, options.on_alert, options.on_warning, commands=options.commands
    ) as alerts:
        yield alerts.observer


class AlertWatch:
    """Raises and resolves the alerts of a run from what is reported of it, until the block ends.

    It begins with `begin`, or when the run is ready. `on_alert` is called with each alert that is raised or resolved,
    before it is sent to the webhook and the command; `on_warning` with why one could not be sent. `past` is called in
    the thread, when it begins; `commands` are those that alerts advise.
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
        self._pipeline = graph
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
        for warning in _unreachable(self._pipeline.alerts):
            self._on_warning(warning)
        for sender in self._senders:
            sender.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, stack: TracebackType | None
    ) -> None:
        if isinstance(value, WindrowError):
            self._tell(lambda alerts: alerts.add_end(value))
        self._coming.put(None)
        self._thread.join(_LEAVE)
        for sender in self._senders:
            sender.end()
        until = time.monotonic() + _LEAVE
        for sender in self._senders:
            sender.join(max(0.0, until - time.monotonic()))

    def begin(self) -> None:
        """Begin: the run takes steps, or resumes from a checkpoint of its own."""
        if not self._has_begun.is_set():
            self._has_begun.set()
            self._coming.put(lambda _: None)

    @property
    def observer(self) -> Observer:
        """Callbacks that have looked at what they are called with."""
        return Observer(self.on_step, self.on_trouble, self.on_ready, self.on_lag, self.begin)

    def on_step(self, report: StepReport) -> None:
        """Have a step looked at."""
        now = now_micros()
        self._tell(lambda alerts: alerts.add_step(report, now))

    def on_lag(self, lag: Lag) -> None:
        """Have a lag looked at."""
        self._tell(lambda alerts: alerts.add_lag(lag))

    def on_trouble(self, fault: Fault) -> None:
        """Have a fault looked at after which the run goes on."""
        now = now_micros()
        self._tell(lambda alerts: alerts.add_fault(fault, now))

    def on_ready(self) -> None:
        """Take that the run takes steps, for the first time or after a fault."""
        self.begin()
        self._tell(AlertEvaluator.add_ready)

    def _tell(self, what: Callable[[AlertEvaluator], None]) -> None:
        if self._has_begun.is_set() and not self._has_failed.is_set():
            self._coming.put(what)

    def _watch(self) -> None:
        try:
            if self._coming.get() is None:
                return  # it never began
            evaluator = AlertEvaluator(
                self._pipeline, every=self._every, now=now_micros(), past=self._past(), commands=self._commands
            )
            for _ in self._turns(evaluator):
                for alert in evaluator.evaluate(now_micros()):
                    self._on_alert(alert)
                    for sender in self._senders:
                        sender.send(alert)
        except Exception as exc:  # noqa: BLE001 - a defect here must not end the run, nor be kept quiet
            self._has_failed.set()
            self._on_warning(f"alerts are not raised any more: {type(exc).__name__}: {exc}")

    def _turns(self, evaluator: AlertEvaluator) -> Iterator[None]:
        """Pass on what is reported; yield once a second, and at the end."""
        until = time.monotonic() + _EVERY
        while True:
            try:
                what = self._coming.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                yield
                until = time.monotonic() + _EVERY
                continue
            if what is None:
                yield
                return
            what(evaluator)


class _Sender:
    """Sends alerts to one receiver, in the order in which they come; `called` says in messages which one it is."""

    def __init__(self, called: str, send: Callable[[bytes], None], on_warning: Callable[[str], None]) -> None:
        self._called = called
        self._send = send
        self._on_warning = on_warning
        self._coming: queue.Queue[Alert | None] = queue.Queue(_WAITING)
        self._is_leaving = threading.Event()
        self._thread = threading.Thread(target=self._work, name="windrow-alerts-sender", daemon=True)

    @staticmethod
    def all_of(alerts: m.Alerts, on_warning: Callable[[str], None]) -> list[_Sender]:
        """Return a sender for the webhook and one for the command, if there are any."""
        found = []
        if alerts.webhook is not None:
            found.append(
                _Sender(f"the webhook {mask_webhook(alerts.webhook)}", partial(_post, alerts.webhook), on_warning)
            )
        if alerts.command:
            called = f"the command {mask_arguments(alerts.command)[0]}"
            found.append(_Sender(called, partial(_run, alerts.command), on_warning))
        return found

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def send(self, alert: Alert) -> None:
        """Have an alert sent; returns at once."""
        try:
            self._coming.put_nowait(alert)
        except queue.Full:
            self._on_warning(f"the alert {alert.name} is not sent to {self._called}: {_WAITING:,} others wait to be")

    def end(self) -> None:
        """Have it end when it has sent what it is sending, or has failed to."""
        self._is_leaving.set()
        with suppress(queue.Full):
            self._coming.put_nowait(None)

    def join(self, seconds: float) -> None:
        """Wait for it to end."""
        self._thread.join(seconds)

    def _work(self) -> None:
        while (alert := self._coming.get()) is not None:
            body = f"{json.dumps(alert.plain(), default=str)}\n".encode()
            for pause in (*_PAUSES, None):
                why = self._try(body)
                # a secret that is not there does not come
                if why is None or isinstance(why, InputError) or pause is None or self._is_leaving.wait(pause):
                    break
            if why is not None:
                said = str(why) or type(why).__name__
                self._on_warning(f"the alert {alert.name} could not be sent to {self._called}: {said}")

    def _try(self, body: bytes) -> Exception | None:
        """Send it; return why it was not taken, None if it was."""
        try:
            self._send(body)
        except (OSError, ValueError, HTTPException, InputError, subprocess.SubprocessError) as exc:
            return exc
        return None


def _unreachable(alerts: m.Alerts) -> Iterator[str]:
    """Yield why alerts cannot reach a receiver, as far as that is known before one is sent."""
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
                yield f"no alert will reach the command: there is no program {shown!r} here"


def _post(url: str, body: bytes) -> None:
    """Send a JSON body by POST; raise OSError, HTTPException, ValueError or InputError if it is not taken.

    No message has a part of the URL in it, which may be a secret.
    """
    url = resolve_references(url, "alerts.webhook", lambda text: quote(text, safe=""))
    try:
        parts = urlsplit(url)
        is_good = parts.hostname is not None and (parts.port is None or parts.port > 0)
    except ValueError:
        is_good = False
    else:
        if parts.scheme not in {"http", "https"}:
            msg = "it is not a URL that begins with https:// or http://"
            raise ValueError(msg)
    if not is_good or any(letter.isspace() or not letter.isprintable() for letter in url):
        msg = "its URL cannot be read: percent-encode odd letters (an @ is %40, a slash %2F)"
        raise ValueError(msg)
    headers = {"Content-Type": "application/json"}
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = f"Basic {b64encode(login.encode()).decode()}"
        url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    request = urllib.request.Request(url, body, headers, method="POST")  # noqa: S310
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310 - the scheme was checked
        # a redirect is followed by GET, without the body
        if answer.geturl() != url:
            msg = "it redirects to another URL: give that one"
            raise ValueError(msg)


def _run(command: tuple[str, ...], body: bytes) -> None:
    """Run a command with a JSON body on stdin; raise OSError or InputError if it fails.

    No message has what a reference in the command names, which may be a secret.
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
        said = redact(done.stderr.decode(errors="replace"), secrets).strip().partition("\n")[0]
        msg = f"it ended with exit code {done.returncode}{f': {said}' if said else ''}"
        raise OSError(msg)


def read_past(path: Path, record: RunRecord) -> Past:
    """Return what a history has of the time before the process of `record`."""
    now = now_micros()
    try:
        runs = [run for run in read_runs(path) if (run.machine, run.pid, run.began) != _process(record)]
        active = tuple(alert for alert in read_alerts(path) if alert.is_active)
        saved = read_saved(path)
    except InputError:
        return Past(began=now)
    totals = [run.totals for run in runs if run.totals is not None]
    week = [run.totals for run in runs if run.totals is not None and run.seen > now - _WEEK]
    return Past(
        events=sum(one["events"] - one["dead"] for one in week),
        late=sum(one["late"] for one in week),
        reasons=frozenset(kind for total in totals for kind in total.get("dead_reasons", {})),
        saved=saved,
        began=min((run.began for run in runs), default=now),
        active=active,
    )


def _process(record: RunRecord) -> tuple[str, int, int]:
    return record.machine, record.pid, record.began
