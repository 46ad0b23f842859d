"""HTTP endpoints of a run: metrics for Prometheus, and liveness and readiness for Kubernetes and load balancers."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from windrow.telemetry.metrics import RunMetrics
from windrow.telemetry.reports import Fault, Lag, Observer, StepReport, counted
from windrow.terminal.listening import BoundedListener, listen

_PATHS = ["/metrics", "/healthz", "/readyz"]


class RunServer:
    """Serves ``/metrics``, ``/healthz`` and ``/readyz`` over HTTP, in its own threads, until the block ends.

    ``/metrics`` returns the metrics of the run of `pipeline` (`windrow.telemetry.metrics`). ``/healthz`` returns 503 if
    records have waited for `stalled_after` seconds without a commit, and else 200. ``/readyz`` returns 200 once the run
    takes steps. It returns 503 before that, while the run retries after a fault, and where ``/healthz`` does. The two
    probes return JSON: the state, the last epoch, the seconds since its commit, the lag in offsets, and the last fault
    or why the run is stalled. `every` is the time between the starts of two live steps, in microseconds.
    """

    def __init__(self, host: str, port: int, pipeline: str, stalled_after: float, every: int | None = None) -> None:
        self._stalled_after = stalled_after
        self.metrics = RunMetrics(pipeline, every)
        self._lock = threading.Lock()
        self._since: float | None = None
        self._waiting: float | None = None
        self._last: StepReport | None = None
        self._behind: int | None = None
        self._trouble: str | None = None
        self._server = _Server(listen(host, port), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, name="windrow-listen", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, stack: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def port(self) -> int:
        """The port on which the server listens."""
        return int(self._server.server_address[1])

    @property
    def observer(self) -> Observer:
        """The observer of the run's steps, faults and lag."""
        return Observer(self.on_step, self.on_trouble, self.on_ready, self.on_lag)

    def on_ready(self) -> None:
        """Record that the run has started to take steps, or takes them again after a fault."""
        with self._lock:
            self._since, self._trouble = time.monotonic(), None
        self.metrics.on_ready()

    def on_trouble(self, fault: Fault) -> None:
        """Record a fault."""
        with self._lock:
            self._trouble = fault
        self.metrics.on_trouble(fault)

    def on_step(self, report: StepReport) -> None:
        """Record a committed step."""
        with self._lock:
            now = time.monotonic()
            self._since, self._last, self._trouble, self._behind = now, report, None, report.behind
            self._waiting = now if report.behind else None
        self.metrics.on_step(report)

    def on_lag(self, lag: Lag) -> None:
        """Record how far the run is behind its log."""
        with self._lock:
            self._behind = lag.behind
            self._waiting = (self._waiting or time.monotonic()) if lag.behind else None
        self.metrics.on_lag(lag)

    def state(self) -> dict[str, Any]:
        """Return the status of the run as JSON values; it is ready in the state ``running``."""
        with self._lock:
            last, since, trouble, waiting = self._last, self._since, self._trouble, self._waiting
            behind = self._behind
        now = time.monotonic()
        ago = None if since is None else now - since
        if last is not None and last.only_offsets:
            waiting = since  # a realtime run reports each second, unless records wait
        if ago is None:
            state = "starting"
        elif trouble is not None:
            state = "retrying"
        elif waiting is not None and now - waiting > self._stalled_after:
            state = "stalled"
            what = "records wait" if behind is None else f"{counted(behind, 'record')} wait"
            trouble = f"no step has been committed for {now - waiting:.0f} s, although {what}"
        else:
            state = "running"
        return {
            "state": state,
            "epoch": None if last is None else last.epoch,
            "seconds_since_commit": None if last is None or ago is None else round(ago, 3),
            "behind": behind,
            "trouble": trouble,
        }


class _Server(ThreadingHTTPServer):
    """Serves the connections of a listening socket, each in a thread that the end of the process does not wait for."""

    daemon_threads = True
    socket: BoundedListener

    def __init__(self, listening: BoundedListener, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(listening.getsockname()[:2], handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening

    def service_actions(self) -> None:
        """Shut down overdue connections."""
        self.socket.close_overdue()

    def server_close(self) -> None:
        """Stop listening, and shut down all connections."""
        super().server_close()
        self.socket.end_all()

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing, because the client has left."""


def _handler(run: RunServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.wfile.write(self._begin())

        def do_HEAD(self) -> None:
            self._begin()

        def _begin(self) -> bytes:
            """Send the status and headers of the response, and return its body."""
            status = run.state()
            code, kind, body = 200, "application/json", json.dumps(status).encode()
            match self.path.partition("?")[0]:
                case "/metrics":
                    body, kind = run.metrics.page(self.headers.get("Accept", ""))
                case "/readyz":
                    code = 200 if status["state"] == "running" else 503
                case "/healthz":
                    code = 503 if status["state"] == "stalled" else 200
                case other:
                    code, body = 404, json.dumps({"error": f"{other} is not one of {_PATHS}"}).encode()
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            return body

        def log_message(self, *_: object) -> None:
            """Log nothing, because probes send a request every few seconds."""

    return Handler
