"""The home directory that Spark starts in, and the archive of the classes that its JVM loads.

Java loads, verifies and links some 15,000 classes before the first row, which takes 2 of the 8 seconds of a small run.
With an archive (class-data sharing, JEP 350) it maps them instead. An archive fits one Java and one installation of
PySpark at one path. Home and archive are therefore in a folder of this Python environment that is named after a digest
of both, `share/windrow/spark-DIGEST`, and Java ignores an archive that does not fit. An archive has 180 MB and takes 20
s to create, once. The first run starts a background process for this when it ends; ``python -m
windrow.runtime.spark.home`` creates the archive immediately. The archive is created in a temporary folder, and moved to
the environment when complete. If the process that creates it is killed, its children end too. If the environment is
read-only, the home is a temporary folder without an archive.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from windrow.runtime.settings import MACHINE
from windrow.runtime.spark.jars import java

_PIPELINE = """\
name: classes
source: {log: {path: log}}
decode: {user_id: string, event_time: timestamp_millis, amount: "decimal(12,2)"}
time: {field: event_time, delay: 0s}
key: [user_id]
window: {tumbling: 5m}
aggregate: {total: sum(amount)}
emit: {lateness: 1h, late: each, mode: retract}
sink: {sqlite: {path: classes.db, table: classes}}
"""
_RECORD = '{"user_id": "u", "event_time": 1767225600000, "amount": "1.00"}\n'
_PLAIN = re.compile(r"[\w./-]+")
_SECONDS = 600
_POLL = 0.5
_CHUNK = 1 << 16
_HEADER = 4
"""Length in bytes of the magic number of an archive."""


@dataclass(frozen=True)
class SparkHome:
    """A Spark home in `folder`; `archive` is the path of its class archive, which may not exist yet, or None."""

    folder: Path
    archive: Path | None

    def java_options(self) -> str:
        """Return the options that make Java use the archive, after a space, or "" if the archive does not exist yet."""
        if self.archive is None or not self.archive.is_file() or not self.archive.stat().st_size:
            return ""
        return f" -XX:SharedArchiveFile={self.archive} -Xlog:cds*=off"

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Make Spark start in this home during the block; processes started later use their own home."""
        os.environ["SPARK_HOME"] = str(self.folder)
        try:
            yield
        finally:
            del os.environ["SPARK_HOME"]

    def archive_later(self) -> None:
        """Start a background process that creates the archive, unless it exists or an earlier attempt has failed."""
        if self.archive is None or self.archive.exists():
            return
        subprocess.Popen(
            [sys.executable, "-m", "windrow.runtime.spark.home"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def spark_home(scratch: Path, java_home: Path) -> SparkHome | None:
    """Return a home like that of the installed PySpark, but without PySpark's zip; None if PySpark has no jars.

    Spark puts that zip on the path of every Python process that it starts, and each of them would compile its imports
    from the zip again (0.6 s of CPU time instead of 0.1 s with the installed package, and a query starts six
    processes).
    """
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    # resolved: an environment with two paths has one archive
    installed = Path(spec.origin).resolve().parent
    if not (installed / "jars").is_dir():
        return None
    kept = Path(sys.prefix).resolve() / "share" / "windrow" / f"spark-{_digest(installed, java_home.resolve())}"
    # a path with other characters would need quotes in Spark's settings
    if _PLAIN.fullmatch(str(kept)):
        try:
            return SparkHome(_link(installed, kept / "home"), kept / "classes.jsa")
        except OSError:
            pass
    return SparkHome(_link(installed, scratch / "home"), None)


def _digest(installed: Path, java_home: Path) -> str:
    """Return a digest of the paths and installation times of PySpark's jars and Java, which an archive must fit."""
    files = [installed / "jars", java_home / "lib" / "modules"]
    facts = [(str(file), file.stat().st_mtime_ns if file.exists() else 0) for file in files]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:12]


def _link(installed: Path, home: Path) -> Path:
    """Create a folder with links to the files of a PySpark installation, except for its zip."""
    home.mkdir(parents=True, exist_ok=True)
    for entry in installed.iterdir():
        link = home / entry.name
        if entry.name != "python" and not link.is_symlink():
            try:
                link.symlink_to(entry)
            except FileExistsError:  # another process makes the links too
                continue
    return home


def make_archive(home: SparkHome) -> bool:
    """Create the class archive of a home from a small run; return True if it exists.

    One process creates it; others return immediately. An empty file records that it could not be created. Archives for
    another Java are removed.
    """
    archive = home.archive
    if archive is None or not archive.parent.is_dir():
        return False
    with (archive.parent / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        if not archive.exists():
            for other in archive.parent.parent.glob(f"spark-*/{archive.name}"):
                other.unlink()
            shutil.rmtree(archive.parent / "making", ignore_errors=True)  # of an older version that was killed
            draft = archive.with_name(f".{archive.name}.draft")
            try:
                _make(home, draft)
                draft.replace(archive)
            except (FileNotFoundError, ChildProcessError):  # the environment was removed, or the run was killed
                return False
    return archive.stat().st_size > 0


def _make(home: SparkHome, draft: Path) -> None:
    """Create an archive, or an empty file if that fails; raise ChildProcessError if the process was killed."""
    folder = Path(tempfile.mkdtemp(prefix="windrow-classes-"))
    try:
        archive = folder / "classes.jsa"
        _run(folder, archive, home.folder)
        header = b""
        if archive.is_file():
            with archive.open("rb") as file:
                header = file.read(_HEADER)
        # Java writes the header last: without it a file is half an archive
        if header.strip(b"\0"):
            shutil.copyfile(archive, draft)
        else:
            draft.touch()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(folder: Path, archive: Path, home: Path) -> None:
    """Run a small pipeline that writes the archive; remove the archive if the run fails."""
    log = folder / "log"
    log.mkdir()
    for partition in range(2):
        (log / f"partition-{partition}.jsonl").write_text(_RECORD * 100, encoding="utf-8")
    (folder / "classes.yaml").write_text(_PIPELINE, encoding="utf-8")
    options = f"{MACHINE['spark.driver.extraJavaOptions']} -XX:ArchiveClassesAtExit={archive} -Xlog:cds*=off"
    command = [sys.executable, "-m", "windrow", "run", "classes.yaml", "--until-end", "--checkpoint", "checkpoint"]
    command += ["--master", "local[2]", "--conf", f"spark.driver.extraJavaOptions={options}"]
    code = run_guarded(command, folder, os.environ | {"SPARK_HOME": str(home)})
    if code < 0:
        msg = f"it was killed by signal {-code}"
        raise ChildProcessError(msg)
    if code:
        archive.unlink(missing_ok=True)


def run_guarded(command: list[str], folder: Path, environment: Mapping[str, str]) -> int:
    """Run a command until it and its children have ended; return its exit code, which is negative if it was killed.

    Java writes the archive after Python has ended. Java is killed if Python was killed, or after `_SECONDS`. If this
    process is killed, its pipe to a guard process closes, and the guard kills Java and removes `folder`.
    """
    with subprocess.Popen(  # noqa: S603 - our own
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as run:
        guard = subprocess.Popen(  # noqa: S603 - the same
            ["/bin/sh", "-c", 'read _; kill -s KILL -- "-$1"; rm -rf -- "$2"', "sh", str(run.pid), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return _wait(run)
        finally:
            with suppress(ProcessLookupError):  # all have ended
                os.killpg(run.pid, signal.SIGKILL)
            guard.kill()
            guard.communicate()


def _wait(run: subprocess.Popen[bytes]) -> int:
    """Wait until a process has ended and no child holds its output open, or until it was killed.

    Return its exit code.
    """
    deadline = time.monotonic() + _SECONDS
    output = run.stdout
    while output is not None and time.monotonic() < deadline and (run.poll() or 0) >= 0:
        ready, _, _ = select.select([output], [], [], _POLL)
        if ready and not os.read(output.fileno(), _CHUNK):
            return run.wait()
    code = run.poll()
    return 1 if code in {None, 0} else code  # timeout


def main() -> int:
    """Create the archive with low priority; return 1 if that fails."""
    os.nice(10)
    with tempfile.TemporaryDirectory() as scratch:
        home = spark_home(Path(scratch), java().resolve().parent.parent)
        return 0 if home is not None and make_archive(home) else 1


if __name__ == "__main__":
    sys.exit(main())
