"""The dashboard over HTTP: twins, events, and who may ask for what."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from graphlib import TopologicalSorter
from http.client import HTTPResponse
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlencode, urlsplit

import pytest
from tests.servers.hostile import half_open, sending_slowly
from tests.telemetry.test_history import STEP, T0
from tests.tools.dashboard.conftest import EVENTS, Served, serving
from tests.waiting import wait_until

from windrow.authoring.load import open_pipeline
from windrow.connectors.open_sinks import open_sinks
from windrow.errors import SinkError, StoppedError
from windrow.runtime.memory import MemoryRun
from windrow.telemetry.history import HistoryWriter, RunRecord, history_of
from windrow.terminal import listening
from windrow.terminal.listening import CONNECTIONS
from windrow.tools.dashboard.app import _VIEWS, STATIC, _name
from windrow.tools.dashboard.tables import _EXPLAINING
from windrow.tools.dashboard.views import HISTORY_VIEWS
from windrow.tools.dashboard.watch import WatchedRun

TOKEN = "0123456789abcdef-of-a-test"  # noqa: S105 - of a test
LETTERS = "windrow.tools.dashboard.app.redrive_letters"


def ask(
    served: Served, path: str, *, method: str = "GET", body: str | None = None, **headers: str
) -> tuple[HTTPResponse, bytes]:
    """Ask, and read the answer; `_` in the name of a header is `-`."""
    connection = http.client.HTTPConnection(urlsplit(served.address).netloc, timeout=30)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, sent)
    with closing(connection):
        answer = connection.getresponse()
        return answer, answer.read()


def twin(served: Served, view: str, **query: str) -> dict[str, Any]:
    answer, body = ask(served, f"/api/{view}?{urlencode(query)}")
    assert answer.status == 200, body
    made: dict[str, Any] = json.loads(body)
    return made


@pytest.mark.parametrize("view", [*_VIEWS])
def test_each_view_has_a_twin(served: Served, view: str) -> None:
    assert twin(served, view)["run"] == "user-spend"


def test_twins_have_what_the_run_did(served: Served) -> None:
    over = twin(served, "overview")
    assert over["totals"]["events"] == EVENTS
    assert over["state"] == "ended"
    dead, late, revised = (twin(served, view) for view in ("dead", "late", "revisions"))
    assert dead["total"] == over["totals"]["dead"] == sum(one["letters"] for one in dead["reasons"]) > 0
    assert late["total"] == over["totals"]["expired"] > 0
    assert len(revised["revisions"]) == min(200, over["totals"]["revisions"]) > 0
    for one in revised["revisions"]:
        assert one["changed"] == [name for name in revised["values"] if one["before"][name] != one["after"][name]] != []
    reason = dead["reasons"][0]["reason"]
    chosen = twin(served, "dead", reason=reason, partition="1")
    assert {row["partition"] for row in chosen["rows"]} == {1}
    assert all(row["reason"].startswith(reason) for row in chosen["rows"])
    assert f"--reason {reason} --partition 1" in chosen["redrive"]["command"]


def test_an_answer_is_not_sent_again_while_it_is_true(served: Served) -> None:
    answer, _ = ask(served, "/api/overview")
    tag = answer.headers["ETag"]
    again, body = ask(served, "/api/overview", If_None_Match=tag)
    assert (again.status, body) == (304, b"")
    other, _ = ask(served, "/api/lateness?delay=1h", If_None_Match=tag)
    assert other.status == 200


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/api/nothing", 404, "unknown view 'nothing'"),
        ("/api/overview?run=other", 400, "unknown run 'other': choose one of user-spend"),
        ("/api/overview?span=2h", 400, "unknown span='2h'; choose one of 10m, 1h, all"),
        ("/api/lateness?delay=soon", 400, "soon"),
        ("/api/lateness?delay=99999999999d", 400, "delay=99999999999d is longer than a hundred years (36500d)"),
        ("/api/dead?partition=x", 400, "is not the number of a partition"),
        ("/api/dead?partition=9999999999999999999", 400, "is not the number of a partition"),
        ("/api/dead?sink=x", 400, "the pipeline has no sink 'x': it has a single sink, so leave this out"),
        ("/api/late?sink=other", 400, "the pipeline has no sink 'other'"),
    ],
)
def test_wrong_requests_are_explained(served: Served, path: str, status: int, says: str) -> None:
    answer, body = ask(served, path)
    assert answer.status == status
    assert says in json.loads(body)["error"]["message"]


def test_a_database_that_fails_is_no_fault_of_the_asker(recorded: WatchedRun) -> None:
    with serving(recorded) as served:
        with mock.patch(
            "windrow.connectors.sqlite.tables.SqliteDatabase.snapshot", side_effect=SinkError("it is locked")
        ):
            answer, body = ask(served, "/api/late")
        assert (answer.status, json.loads(body)) == (503, {"error": {"message": "it is locked"}})
        assert twin(served, "late")["rows"]  # and is asked again


def test_a_defect_is_said_as_json_too(recorded: WatchedRun) -> None:
    with serving(recorded) as served:
        with mock.patch("windrow.tools.dashboard.watch.Watch.answer", side_effect=KeyError("column")):
            answer, body = ask(served, "/api/late")
        said = {"error": {"message": "internal error of windrow: KeyError: 'column'"}}
        assert (answer.status, json.loads(body)) == (500, said)


def test_a_step_is_told_at_once(tmp_path: Path) -> None:
    run = WatchedRun("spend", tmp_path / "spend")
    record = RunRecord.here("spend", "stream")
    with serving(run) as served:
        connection = http.client.HTTPConnection(urlsplit(served.address).netloc, timeout=30)
        connection.request("GET", "/events")
        events = connection.getresponse()
        assert events.headers["Content-Type"].startswith("text/event-stream")

        def version() -> int:
            while not (line := events.readline()).startswith(b"data: "):
                assert line
            number: int = json.loads(line[6:])["version"]
            return number

        first = version()
        assert twin(served, "overview")["answers"][0]["headline"] == "No step yet"
        with HistoryWriter(history_of(run.checkpoint), record, pytest.fail) as history:
            history.on_step(replace(STEP, epoch=7, committed=T0))
            # the record of the process may come before its first step
            while twin(served, "overview")["epoch"] != 7:
                assert version() > first
        connection.close()


def test_several_runs_are_told_apart(recorded: WatchedRun, tmp_path: Path) -> None:
    other = WatchedRun("other", tmp_path)
    with serving(other, recorded) as served:
        _, body = ask(served, "/api/runs")
        found = json.loads(body)
        assert [(one["name"], one["state"]) for one in found["runs"]] == [("other", None), ("user-spend", "ended")]
        assert twin(served, "overview", run="user-spend")["totals"]["events"] == EVENTS
        answer, body = ask(served, "/api/dead")
        assert answer.status == 400
        assert b"give its file on the command line" in body


# who may ask


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8990", 200),
        ("localhost", 200),
        ("[::1]:80", 200),
        ("LOCALHOST:1", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example:8990", 421),
        ("localhost.evil.example", 421),
        ("", 421),
    ],
)
def test_without_a_token_only_loopback_is_answered(served: Served, host: str, status: int) -> None:
    for path in ("/", "/api/overview", "/static/dashboard.js"):
        assert ask(served, path, Host=host)[0].status == status


def test_names_in_hosts_are_read() -> None:
    assert [_name(text) for text in ("a:1", "A", "[::1]:2", "", "[::1")] == ["a", "a", "::1", "", "::1"]


def test_without_a_token_nothing_is_written(served: Served) -> None:
    with mock.patch(LETTERS) as redrive:
        answer, body = ask(served, "/api/redrive", method="POST", body="{}", Content_Type="application/json")
    assert answer.status == 403
    assert b"start it with --token" in body
    redrive.assert_not_called()
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
        assert ask(served, "/api/overview", method=method)[0].status == 405
    assert ask(served, "/api/overview", method="POST")[0].status == 405


def test_with_a_token_each_request_needs_it(recorded: WatchedRun) -> None:
    with serving(recorded, token=TOKEN) as served:
        port = urlsplit(served.address).port
        for path in ("/api/overview", "/api/runs", "/events", "/api/nothing", "/docs"):
            assert ask(served, path)[0].status == 401
            assert ask(served, path, Authorization="Bearer wrong")[0].status == 401
            for value in ("wrong", TOKEN, ""):
                assert ask(served, path, Cookie=f"windrow_session_{port}={value}")[0].status == 401
        assert ask(served, "/api/overview?token=wrong")[0].status == 401
        answer, _ = ask(served, "/")
        assert (answer.status, answer.headers["Location"]) == (303, "/login")
        assert ask(served, "/login")[0].status == ask(served, "/static/dashboard.css")[0].status == 200
        assert ask(served, "/api/overview", Authorization=f"Bearer {TOKEN}")[0].status == 200
        # the name that a proxy is reached by
        assert ask(served, "/api/overview", Authorization=f"Bearer {TOKEN}", Host="dash.example.com")[0].status == 200


def test_a_session_begins_with_the_token(recorded: WatchedRun) -> None:
    def form(token: str) -> tuple[HTTPResponse, bytes]:
        return ask(
            served, "/login", method="POST", body=urlencode({"token": token}),
            Content_Type="application/x-www-form-urlencoded",
        )  # fmt: skip

    with serving(recorded, token=TOKEN) as served:
        wrong, _ = form("wrong")
        assert (wrong.headers["Location"], wrong.headers["Set-Cookie"]) == ("/login?wrong=1", None)
        right, _ = form(TOKEN)
        assert (right.status, right.headers["Location"]) == (303, "/")
        by_address, _ = ask(served, f"/?view=late&token={TOKEN}")
        assert (by_address.status, by_address.headers["Location"]) == (303, "/?view=late")
        for answer in (right, by_address):
            cookie = answer.headers["Set-Cookie"]
            assert TOKEN not in cookie
            assert {"HttpOnly", "SameSite=strict"} <= set(cookie.split("; "))
            assert ask(served, "/api/overview", Cookie=cookie.partition(";")[0])[0].status == 200
        assert ask(served, "/login", method="POST", body="x" * 100_000)[0].status == 400


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://{host}"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Content_Type": "text/plain"}, 415),
        ({"Authorization": "Bearer wrong"}, 401),
    ],
)
def test_only_the_page_itself_redrives(recorded: WatchedRun, headers: dict[str, str], status: int) -> None:
    with serving(recorded, token=TOKEN) as served, mock.patch(LETTERS, return_value={"total": 0}) as redrive:
        host = urlsplit(served.address).netloc
        sent = {"Authorization": f"Bearer {TOKEN}", "Content_Type": "application/json"} | headers
        sent = {name: value.format(host=host) for name, value in sent.items()}
        answer, _ = ask(served, "/api/redrive", method="POST", body='{"all": true}', **sent)
    assert answer.status == status
    assert redrive.called == (status == 200)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "choose a reason or a partition, or all"),
        ('{"all": 1}', "choose a reason or a partition, or all"),
        ('{"partition": true}', "partition the number of a partition"),
        ('{"partition": 99999999999999999999}', "partition the number of a partition"),
        ('{"partition": -1}', "partition the number of a partition"),
        ('{"all": true}', "there is no checkpoint in"),
    ],
)
def test_redrives_are_checked(recorded: WatchedRun, body: str, says: str) -> None:
    with serving(recorded, token=TOKEN) as served:
        answer, read = ask(
            served, "/api/redrive", method="POST", body=body, Authorization=f"Bearer {TOKEN}",
            Content_Type="application/json",
        )  # fmt: skip
    assert answer.status == 400
    assert says in json.loads(read)["error"]["message"]


@pytest.mark.parametrize(("asked", "is_dry"), [({}, True), ({"dry_run": True}, True), ({"dry_run": False}, False)])
def test_a_redrive_is_dry_unless_told(recorded: WatchedRun, asked: dict[str, bool], is_dry: bool) -> None:  # noqa: FBT001
    with (
        serving(recorded, token=TOKEN) as served,
        mock.patch("windrow.tools.redrive.copies.redrive", return_value=[]) as made,
    ):
        answer, body = ask(
            served, "/api/redrive", method="POST", body=json.dumps({"reason": "null", **asked}),
            Authorization=f"Bearer {TOKEN}", Content_Type="application/json",
        )  # fmt: skip
    assert answer.status == 200
    assert json.loads(body) == {"dry_run": is_dry, "outcomes": {}, "letters": [], "total": 0}
    assert made.call_args.kwargs["dry_run"] is is_dry
    assert made.call_args.args[1].reasons == ("null",)


def test_no_script_but_the_pages_own_runs(served: Served) -> None:
    answer, body = ask(served, "/")
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert (answer.headers["X-Content-Type-Options"], answer.headers["X-Frame-Options"]) == ("nosniff", "DENY")
    for file in STATIC.glob("*.html"):
        page = file.read_text()
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=|https?://", page)
    assert b"/static/dashboard.js" in body


@pytest.mark.parametrize("path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/uplot/../../app.py"])
def test_only_the_pages_files_are_served(served: Served, path: str) -> None:
    assert ask(served, path)[0].status == 404


def test_a_view_is_made_once_for_all_who_ask(recorded: WatchedRun) -> None:
    made: list[str] = []

    def counting(name: str, make: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        def view(*args: Any) -> dict[str, Any]:  # noqa: ANN401
            made.append(name)
            return make(*args)

        return view

    views = {name: counting(name, make) for name, make in HISTORY_VIEWS.items()}
    with mock.patch.dict("windrow.tools.dashboard.app._VIEWS", views), serving(recorded) as served:
        for _ in range(10):
            twin(served, "overview")
            twin(served, "lateness", delay="1h")
    assert sorted(made) == ["lateness", "overview"]


def test_all_that_became_of_a_key_is_shown(served: Served) -> None:
    assert twin(served, "key") | {"rows": []} == twin(served, "key")
    revised = twin(served, "revisions")["revisions"][0]
    user = revised["key"]["user_id"]
    found = twin(served, "key", **{"key.user_id": user, "window_start": revised["key"]["window_start"]})
    (row,) = found["rows"]
    assert {name: row[name] for name in revised["after"]} == revised["after"] or row["revision"] > revised["revision"]
    assert [one["op"] for one in found["changes"]][:3] == ["insert", "update_before", "update_after"]
    everything = twin(served, "key", **{"key.user_id": user})
    assert {one["user_id"] for one in everything["rows"] + everything["changes"]} == {user}
    assert len(everything["rows"]) > 1
    late = twin(served, "late")["rows"][0]
    other = json.loads(late["record"])["user_id"]
    assert late in twin(served, "key", **{"key.user_id": other})["late"]
    # as a person types the time of a window
    start = late["window_start"].removesuffix(":00Z").replace("T", " ")
    assert late in twin(served, "key", **{"key.user_id": other, "window_start": start})["late"]
    answer, body = ask(served, "/api/key?key.user_id=a&window_start=noon")
    assert (answer.status, b"is a time, such as" in body) == (400, True)


def ran(folder: Path, decode: str, key: str, *records: dict[str, object]) -> WatchedRun:
    """A run by a key, in which the last of some records has expired."""
    (folder / "log").mkdir()
    made = ({**one, "at": seconds * 1_000} for one, seconds in zip(records, (0, 100, 0), strict=True))
    (folder / "log" / "partition-0.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in made))
    file = folder / "keyed.yaml"
    file.write_text(f"""\
name: keyed
source: {{log: {{path: {folder}/log}}}}
decode: {{{decode}, at: timestamp_millis}}
time: {{field: at, delay: 0s}}
key: [{key}]
window: {{tumbling: 10s}}
aggregate: {{events: count()}}
sink: {{sqlite: {{path: {folder}/keyed.db, table: keyed}}}}
""")
    pipeline = open_pipeline(str(file)).runnable()
    sinks = open_sinks(pipeline)
    MemoryRun(pipeline, sinks, 10).run(lambda _: None)
    sinks.close()
    return WatchedRun(pipeline.name, folder / "no_checkpoint", pipeline, str(file))


@pytest.mark.parametrize(
    ("decode", "value", "asked"),
    [
        ("timestamp", "2026-01-01T10:00:00+01:00", "2026-01-01 09:00"),
        ("long", 1_767_225_600_000, "1767225600000"),
        ("boolean", True, "true"),
        ("'decimal(12,2)'", "1.5", "1.50"),
    ],
)
def test_expired_records_of_a_key_of_any_type_are_found(decode: str, value: object, asked: str, tmp_path: Path) -> None:
    with serving(ran(tmp_path, f"of: {decode}", "of", *[{"of": value}] * 3)) as served:
        (late,) = twin(served, "key", **{"key.of": asked})["late"]
        assert late["offset"] == 2
        assert twin(served, "key", **{"key.of": asked, "window_start": "1970-01-01 00:00:10"})["late"] == []


def test_that_expired_records_lack_a_computed_key_is_said(tmp_path: Path) -> None:
    user: dict[str, object] = {"user": "ann"}
    with serving(ran(tmp_path, "user: string", '{letter: "user[1]"}', *[user] * 3)) as served:
        found = twin(served, "key", **{"key.letter": "a"})
    assert (found["rows"][0]["letter"], found["late"]) == ("a", [])
    assert found["late_why_not"].startswith(
        "expired records are stored without letter, so they cannot be matched to a key"
    )


def test_a_row_is_explained_by_its_records(served: Served) -> None:
    assert twin(served, "why")["explanation"] is None
    revised = twin(served, "revisions")["revisions"][0]["key"]
    query = {"key.user_id": revised["user_id"], "window_start": revised["window_start"]}
    found = twin(served, "why", **query)["explanation"]
    (row,) = twin(served, "key", **query)["rows"]
    assert found["row"] == row
    assert found["differences"] == []
    assert found["counts"]["late"] > 0
    assert found["counts"]["on_time"] + found["counts"]["late"] == row["events"]
    answer, body = ask(served, "/api/why?key.user_id=nobody&window_start=2026-01-01T00:00:00Z")
    assert (answer.status, b"has no such row" in body) == (400, True)


def test_one_row_is_explained_at_a_time(served: Served) -> None:
    revised = twin(served, "revisions")["revisions"][1]["key"]
    path = f"/api/why?{urlencode({'key.user_id': revised['user_id'], 'window_start': revised['window_start']})}"
    with mock.patch("windrow.tools.why.explain.explain_row") as made:
        with _EXPLAINING:
            answer, body = ask(served, path)
        assert (answer.status, b"another row is being explained" in body) == (400, True)
        # nor by a page of another site, which may send what reads
        assert ask(served, path, Sec_Fetch_Site="cross-site")[0].status == 403
        assert not made.called
    assert ask(served, path)[0].status == 200


def test_an_explanation_stops_when_its_client_leaves(served: Served) -> None:
    revised = twin(served, "revisions")["revisions"][2]["key"]
    path = f"/api/why?{urlencode({'key.user_id': revised['user_id'], 'window_start': revised['window_start']})}"
    begun, left = threading.Event(), threading.Event()

    def explain(*_: object, is_stopped: Callable[[], bool], **__: object) -> None:
        begun.set()
        deadline = time.monotonic() + 20
        while not is_stopped() and time.monotonic() < deadline:
            left.wait(0.01)
        if is_stopped():
            left.set()
        raise StoppedError

    with mock.patch("windrow.tools.why.explain.explain_row", explain):
        at = urlsplit(served.address)
        with closing(socket.create_connection((at.hostname, at.port))) as client:
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            assert begun.wait(20)
        assert left.wait(20)
    assert ask(served, path)[0].status == 200


def test_streams_of_events_end_when_the_server_stops(recorded: WatchedRun, caplog: pytest.LogCaptureFixture) -> None:
    with serving(recorded) as served:
        connection = http.client.HTTPConnection(urlsplit(served.address).netloc, timeout=30)
        connection.request("GET", "/events")
        events = connection.getresponse()
        assert events.readline().startswith(b"id: ")
    with closing(connection):
        assert events.read().endswith(b"\r\n\r\n")
    assert [one.getMessage() for one in caplog.records if one.name.startswith("uvicorn")] == []


def test_the_scripts_of_the_page_import_one_way() -> None:
    scripts = {file.name: file.read_text() for file in STATIC.glob("*.js")}
    imports = {name: re.findall(r'from "\./([^"]+)"', text) for name, text in scripts.items()}
    assert imports["dashboard.js"]
    list(TopologicalSorter(imports).static_order())


def test_clients_that_send_nothing_keep_nobody_from_the_page(recorded: WatchedRun) -> None:
    with serving(recorded) as served:
        port = urlsplit(served.address).port or 0
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/events")
        events = connection.getresponse()
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - quick
        with half_open(port, 300) as clients:
            for _ in range(3):
                assert twin(served, "overview")["totals"]["events"] == EVENTS
                assert len(os.listdir("/proc/self/fd")) <= before + len(clients) + CONNECTIONS + 2  # noqa: PTH208 - quick
        assert events.readline().startswith(b"id: ")  # a stream that was admitted is not shut down
        connection.close()


@pytest.mark.parametrize(
    "start", [b"", b"GET / HTTP/1.1\r\nX: ", b"POST /login HTTP/1.1\r\nContent-Length: 9000\r\n\r\n"]
)
def test_a_client_that_sends_a_byte_now_and_then_is_shut_down(
    start: bytes, recorded: WatchedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "SECONDS", 0.5)
    with serving(recorded, token=TOKEN) as served, half_open(urlsplit(served.address).port or 0, 1) as (client,):
        wait_until(sending_slowly(client, start), "the end of the connection", seconds=10)
