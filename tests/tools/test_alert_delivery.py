"""Where alerts go: the log, the history, a webhook and a command; none of them can harm the run, or hold up a step."""

from __future__ import annotations

import sys
import time
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.engine.pipelines import main as main_pipeline
from tests.graphs import as_graph
from tests.runtime.receivers import appending, lines, webhook
from tests.telemetry.test_history import T0, writer
from tests.tools.test_alerts import BASE, only
from tests.waiting import wait_until

from windrow.errors import CheckpointError
from windrow.model import Alerts
from windrow.telemetry.history import RunRecord, note_savepoint, read_alerts, read_last_savepoint
from windrow.telemetry.reports import Alert, Lag, now_micros
from windrow.telemetry.status import RunStatus
from windrow.tools.alerts import delivery as alert_delivery
from windrow.tools.alerts.conditions import AlertEvaluator, Past
from windrow.tools.alerts.delivery import AlertWatch, read_past

NEW = replace(BASE, dead=1, dead_reasons={"missing: amount": 1})
"""A step that raises `dead-letters` at once."""
DEAD = only(dead_letters={"share": 0.9, "for": "1h"})


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often, and try again soon."""
    monkeypatch.setattr(alert_delivery, "_EVERY", 0.02)
    monkeypatch.setattr(alert_delivery, "_PAUSES", (0.02, 0.02, 0.02))
    monkeypatch.setattr(alert_delivery, "_TIMEOUT", 5.0)


class Watched:
    """A watch of a run without Spark."""

    def __init__(self, alerts: Alerts, past: Callable[[], Past] = Past) -> None:
        self.said: list[Alert] = []
        self.warnings: list[str] = []
        graph = replace(as_graph(main_pipeline()), alerts=alerts)
        self.watch = AlertWatch(graph, 1_000_000, past, self.said.append, self.warnings.append)
        self.on_step = self.watch.observer.on_step

    def step(self) -> None:
        self.on_step(replace(NEW, committed=now_micros()))


def to(webhook: str | None = None, command: list[str] | None = None) -> Alerts:
    return replace(DEAD, webhook=webhook, command=tuple(command or ()))


def test_an_alert_goes_to_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "alerts.jsonl"
    with webhook() as hook:
        monkeypatch.setenv("ALERTS_URL", hook.url)
        watched = Watched(to("${ALERTS_URL}", appending(file)))
        with watched.watch:
            watched.watch.observer.on_ready()
            watched.step()
            wait_until(lambda: hook.bodies and lines(file), "both deliveries")
    (alert,) = watched.said
    assert hook.bodies == lines(file) == [alert.plain()]
    body = hook.bodies[0]
    assert (body["pipeline"], body["name"], body["state"]) == ("user-spend", "dead-letters", "raised")
    assert body["runbook"] == "docs/guides/alerts.md#dead-letters"
    assert "a reason that is new in this pipeline: missing: amount (1)." in body["message"]
    assert watched.warnings == []


def test_a_webhook_that_fails_is_tried_again() -> None:
    with webhook(500, 503) as hook:
        watched = Watched(to(hook.url))
        with watched.watch:
            watched.watch.begin()
            watched.step()
            wait_until(lambda: hook.bodies, "a delivery")
    assert hook.asked == 3
    assert watched.warnings == []


FAILING: dict[str, tuple[Callable[[str], Alerts], str]] = {
    "nobody listens": (
        lambda _: to("http://127.0.0.1:9/hunter2"),
        "the webhook http://127.0.0.1:9/***: <urlopen error",
    ),
    "no secret": (lambda _: to("${NO_SUCH_URL}"), "the environment variable NO_SUCH_URL is not set"),
    "a redirect": (to, "/***: it redirects to another URL: use that URL"),
    "no program": (lambda _: to(command=["/nowhere/notify"]), "the command /nowhere/notify: [Errno 2] No such file"),
    "exit code": (
        lambda _: to(command=[sys.executable, "-c", "raise SystemExit('no network')"]),
        "it ended with exit code 1: no network",
    ),
}


@pytest.mark.parametrize("kind", FAILING)
def test_what_cannot_be_sent_is_a_warning(kind: str) -> None:
    make, message = FAILING[kind]
    at_once = {"no secret", "no program"} & {kind}
    with webhook(*[301] * 9) as hook:
        watched = Watched(make(hook.url))
        with watched.watch:
            assert len(watched.warnings) == len(at_once), "what is known before an alert is a warning then"
            watched.watch.begin()
            watched.step()
            wait_until(lambda: len(watched.warnings) > len(at_once), "a warning")
    *before, warning = watched.warnings
    assert all(one.startswith("no alert will reach the ") for one in before)
    assert warning.startswith("the alert dead-letters could not be sent to ")
    assert message in warning
    assert not any(path in one for one in watched.warnings for path in ("hooks/secret", "hunter2"))
    assert [one.name for one in watched.said] == ["dead-letters"]


def test_a_command_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert_delivery, "_TIMEOUT", 0.2)
    watched = Watched(to(command=[sys.executable, "-c", "import threading; threading.Event().wait()"]))
    with watched.watch:
        watched.watch.begin()
        watched.step()
        wait_until(lambda: watched.warnings, "a warning")
    assert "timed out after 0.2 seconds" in watched.warnings[0]


def test_a_login_in_the_url_is_sent_and_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGIN", "hunt@er/2")
    with webhook() as hook:
        watched = Watched(to(hook.url.replace("http://", "http://me:${LOGIN}@")))
        with watched.watch:
            watched.watch.begin()
            watched.step()
            wait_until(lambda: hook.bodies or watched.warnings, "a delivery")
    assert watched.warnings == []
    assert (len(hook.bodies), hook.login) == (1, f"Basic {b64encode(b'me:hunt@er/2').decode()}")


@pytest.mark.parametrize(
    "make",
    [
        lambda: to("http://me:hunt@er2/hunter2@h/x"),
        lambda: to("${SECRET}"),
        lambda: to("http://127.0.0.1:9/hunter2 hunter2"),
        lambda: to(command=["/nowhere/${SECRET}"]),
        lambda: to(command=[sys.executable, "-c", "import sys; sys.exit(sys.argv[1])", "${SECRET}"]),
        lambda: to(command=[sys.executable, "-c", "import threading; threading.Event().wait()", "${SECRET}"]),
    ],
)
def test_no_failure_says_a_secret(make: Callable[[], Alerts], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hunt:er2/hunter2@hunter2")
    monkeypatch.setattr(alert_delivery, "_TIMEOUT", 0.5)
    monkeypatch.setattr(alert_delivery, "_PAUSES", ())
    watched = Watched(make())
    with watched.watch:
        watched.watch.begin()
        watched.step()
        wait_until(lambda: any("could not be sent" in one for one in watched.warnings), "a warning")
    assert not any("hunt" in one or "er2" in one for one in watched.warnings)


def test_no_step_waits_for_a_webhook_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert_delivery, "_LEAVE", 0.2)
    with webhook() as hook:
        hook.held.clear()
        watched = Watched(to(hook.url))
        began = time.monotonic()
        with watched.watch:
            watched.watch.begin()
            for _ in range(1_000):
                watched.step()
            wait_until(lambda: watched.said, "an alert")
        assert time.monotonic() - began < 10
        assert hook.bodies == []


def test_a_defect_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Any:  # noqa: ANN401 - it returns nothing
        raise ZeroDivisionError

    monkeypatch.setattr(AlertEvaluator, "evaluate", broken)
    watched = Watched(DEAD)
    with watched.watch:
        watched.watch.begin()
        watched.step()
        wait_until(lambda: watched.warnings, "a warning")
        watched.step()
    assert watched.warnings == ["alerts are no longer raised: ZeroDivisionError: "]


def end(watched: Watched, begin: Callable[[], None]) -> None:
    """A run that fails."""
    with watched.watch:
        begin()
        watched.step()
        msg = "the disk is full"
        raise CheckpointError(msg)


def test_a_run_that_never_began_raises_nothing() -> None:
    watched = Watched(only(checkpoint={}), past=lambda: pytest.fail("nothing is read"))
    with pytest.raises(CheckpointError):
        end(watched, lambda: None)
    assert watched.said == []
    assert watched.warnings == []


def test_a_run_that_fails_says_so_before_it_ends() -> None:
    watched = Watched(only(checkpoint={}))
    with pytest.raises(CheckpointError):
        end(watched, watched.watch.begin)
    assert [one.name for one in watched.said] == ["checkpoint"]


def alert(name: Any, raised: int, resolved: int | None = None) -> Alert:  # noqa: ANN401 - a name of an alert
    return Alert("spend", name, f"{name} holds", raised - 5, raised, resolved, {"share": 0.5})


def test_alerts_are_kept_with_the_history(tmp_path: Path) -> None:
    path = tmp_path / "progress.sqlite"
    with writer(path) as history:
        history.begin()
        history.note_alert(alert("lag", T0))
        history.note_alert(alert("hot-key", T0 + 1))
        history.note_alert(alert("lag", T0, T0 + 9))
    assert read_alerts(path) == [alert("lag", T0, T0 + 9), alert("hot-key", T0 + 1)]
    status = RunStatus.read(path, now_micros())
    assert [(one["name"], one["state"]) for one in status.plain()["alerts"]] == [
        ("lag", "resolved"),
        ("hot-key", "raised"),
    ]


def test_a_process_knows_those_before_it(tmp_path: Path) -> None:
    path = tmp_path / "progress.sqlite"
    with writer(path) as history:
        history.on_step(replace(NEW, records=200, late=8))
        history.on_lag(Lag(T0, {0: 1}))
        history.note_alert(alert("hot-key", T0 + 1))
        history.note_alert(alert("lag", T0, T0 + 9))
    record = RunRecord.here("spend", "stream")
    past = read_past(path, record)
    assert (past.events, past.late, past.reasons) == (200, 8, frozenset({"missing: amount"}))
    assert past.active == (alert("hot-key", T0 + 1),)
    assert past.saved is read_last_savepoint(path) is None
    assert past.began is not None
    note_savepoint(path, tmp_path / "spend-3")
    assert record.began <= (read_last_savepoint(path) or 0) == read_past(path, record).saved
    nothing = read_past(tmp_path / "none.sqlite", record)
    assert (nothing.events, nothing.active) == (0, ())
