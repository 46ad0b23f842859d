"""A Spark standalone cluster on loopback, whose workers are machines of their own as far as files and addresses go.

Each worker has a mount namespace: an empty temporary folder, no checkout and no environment but its own, and of the
cluster's folder only its own part and what is shared. So a path that only the driver has is not there. Each has an
address of its own: with one for all, Spark reads a neighbour's shuffle files from the disk of "the same host".
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import windrow
from windrow.runtime.spark.jars import java
from windrow.testing.servers.process import ServerProcess, free_port

_START_SECONDS = 120.0
_SITE = Path("lib/python{}.{}/site-packages".format(*sys.version_info[:2]))
_CHECKOUT = Path(windrow.__file__).parents[2]
_TMP = Path(tempfile.gettempdir())
_DRIVER = "127.0.0.1"


def why_no_cluster() -> str | None:
    """Why no cluster can be started here, None if one can."""
    unshare = shutil.which("unshare")
    tried = unshare and subprocess.run(
        [unshare, "-m", "mount", "--make-rprivate", "/"], check=False, capture_output=True
    )
    return None if tried and tried.returncode == 0 else "mount namespaces need root (CAP_SYS_ADMIN)"


class Cluster:
    """A master, and workers whose executors run the Python `environment`; use it from the main thread.

    What all machines see is below `shared`. `private` is the driver's alone.
    """

    def __init__(self, workers: int = 2, cores: int = 1, memory: str = "1500m") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="windrow-cluster-"))
        self.shared = self.folder / "shared"
        self.private = self.folder / "driver"
        self.environment = self.folder / "environment"
        self._logs = self.folder / "logs"
        for one in (self.shared, self.private, self._logs):
            one.mkdir()
        make_environment(self.environment)
        self._settings = cores, memory
        self._port = free_port()
        self._master: ServerProcess | None = None
        self._workers: dict[str, ServerProcess] = {}
        self._count = workers
        self._started = 0

    @property
    def url(self) -> str:
        """The master URL."""
        return f"spark://{_DRIVER}:{self._port}"

    @property
    def workers(self) -> list[str]:
        """The addresses of the workers that run."""
        return list(self._workers)

    @property
    def options(self) -> list[str]:
        """Options of a command that runs on this cluster, with the Python that its executors have."""
        conf = {
            "spark.pyspark.python": str(self.environment / "bin/python"),
            "spark.driver.host": _DRIVER,
            "spark.executor.memory": "1g",
        }
        return ["--master", self.url, *(word for name, value in conf.items() for word in ("--conf", f"{name}={value}"))]

    def start(self) -> None:
        """Start the master and the workers, and wait until they know each other."""
        words = ["--host", _DRIVER, "--port", str(self._port), "--webui-port", "0"]
        self._master = self._process("master", "org.apache.spark.deploy.master.Master", words, _DRIVER)
        self._master.wait_until(lambda: "I have been elected leader" in self._log("master"), _START_SECONDS)
        for _ in range(self._count):
            self.add_worker()

    def add_worker(self) -> str:
        """Start one more worker; return its address."""
        self._started += 1
        address, name = f"127.0.0.{self._started + 1}", f"worker-{self._started}"
        own = self.folder / name
        own.mkdir()
        cores, memory = self._settings
        words = ["--host", address, "--cores", str(cores), "--memory", memory, "--work-dir", str(own)]
        words += ["--webui-port", "0", self.url]
        process = self._process(name, "org.apache.spark.deploy.worker.Worker", words, address, sees=own)
        process.wait_until(lambda: "Successfully registered with master" in self._log(name), _START_SECONDS)
        self._workers[address] = process
        return address

    def kill_worker(self, address: str) -> None:
        """End a worker with its executors at once, as if its machine had lost power."""
        process = self._workers.pop(address)
        for pid in _tree(process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.kill()

    def stop(self) -> None:
        """End all, and remove its files."""
        for address in self.workers:
            self.kill_worker(address)
        if self._master is not None:
            self._master.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _log(self, name: str) -> str:
        path = self._logs / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _process(
        self, name: str, program: str, words: list[str], address: str, sees: Path | None = None
    ) -> ServerProcess:
        # not java itself: spark-class says which Scala it is, without which a worker starts no executor
        command = ["bash", str(self._spark_home / "bin/spark-class"), program, *words]
        if sees is not None:
            command = ["unshare", "-m", "sh", "-ec", f'{self._hidden(sees)}\ncd {sees}\nexec "$@"', "sh", *command]
        env = {
            "PATH": os.environ["PATH"],
            "JAVA_HOME": str(java().resolve().parent.parent),
            "SPARK_HOME": str(self._spark_home),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_IP": address,
        }
        return ServerProcess(["env", "-i", *(f"{k}={v}" for k, v in env.items()), *command], self._logs / f"{name}.log")

    @property
    def _spark_home(self) -> Path:
        return self.environment / _SITE / "pyspark"

    def _hidden(self, own: Path) -> str:
        """Return the commands after which a worker sees no more than it should."""
        binds = [self.environment, self.shared, own]
        lines = ["mount --make-rprivate /", f"mount --bind {self.folder} /mnt", f"mount -t tmpfs tmpfs {_TMP}"]
        if not _CHECKOUT.is_relative_to(_TMP):
            lines.append(f"mount -t tmpfs tmpfs {_CHECKOUT}")
        for one in binds:
            lines += [f"mkdir -p {one}", f"mount --bind /mnt/{one.name} {one}"]
        return "\n".join([*lines, "mount -t tmpfs tmpfs /mnt"])


def make_environment(folder: Path) -> None:
    """Make an environment with windrow, and what it needs, as another machine would have it: not editable."""
    site = folder / _SITE
    site.mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "bin/python").symlink_to(Path(sys.executable).resolve())
    (folder / "pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix) / 'bin'}\n")
    shutil.copytree(Path(windrow.__file__).parent, site / "windrow", ignore=shutil.ignore_patterns("__pycache__"))
    for one in _closure(distribution("windrow")):
        for file in one.files or ():
            source, target = Path(str(one.locate_file(file))), site / file
            is_in = ".." not in file.parts and "__editable__" not in file.name and file.name != "direct_url.json"
            if is_in and file.suffix != ".pyc" and source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                _link(source, target)


def _link(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError:  # on another file system
        shutil.copy2(source, target)


def _closure(root: Distribution) -> Iterator[Distribution]:
    """Go through a package and all that it needs."""
    found, left = {root.name: root}, [root]
    while left:
        one = left.pop()
        yield one
        for requirement in one.requires or ():
            name, _, marker = requirement.partition(";")
            match = re.match(r"[\w.-]+", name)
            if match is None or ("extra ==" in marker and "binary" not in marker) or match[0] in found:
                continue
            try:
                needed = distribution(match[0])
            except ImportError:  # for another platform
                continue
            found[match[0]] = needed
            left.append(needed)


def _tree(pid: int) -> list[int]:
    """Return a process and all that it started."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found
