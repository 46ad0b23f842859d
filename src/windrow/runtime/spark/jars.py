"""Java, and additional jars beside Spark's own, fetched with the Ivy that PySpark contains.

`ivy.xml` has their versions, and `jars.lock` the SHA-256 of each (as `sha256sum` prints it, with `SET/FILE` as the
name). A jar with a different digest is not used. Each set of jars is in a folder `SET-DIGEST`, which is created
completely or not at all.

Environment variables: WINDROW_JARS is the folder of the sets (default: `share/windrow/jars` of this Python
environment), and WINDROW_IVY_SETTINGS an Ivy settings file that specifies a mirror.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from windrow.errors import SetupError

_HERE = Path(__file__).parent
_IVY = _HERE / "ivy.xml"
_LOCK = _HERE / "jars.lock"
_FETCH_SECONDS = 1800


def broker_jars() -> list[Path]:
    """Return the class path of a Kafka broker, fetching its jars as `jar_set` does."""
    return jar_set("broker")


def broker_folder() -> Path:
    """Return the folder of the broker's jars, which does not exist until they have been fetched."""
    return _folder("broker", _locked("broker"))


def jar_set(name: str) -> list[Path]:
    """Return the jars of one configuration of `ivy.xml`, sorted by name; fetch them first if they are missing.

    No run of windrow needs them: "broker" is for a broker of `testing/servers`, and "spark" for plain PySpark in the
    comparison of `bench/peers`. Raise SetupError if the jars cannot be fetched or do not match `jars.lock`.
    """
    sums = _locked(name)
    folder = _folder(name, sums)
    if not folder.is_dir():
        with _fetching(folder.parent):
            if not folder.is_dir():  # another process may have fetched it while this one waited
                _fetch(name, sums, folder)
    return [folder / file for file in sorted(sums)]


def _folder(name: str, sums: Mapping[str, str]) -> Path:
    digest = hashlib.sha256(repr(sorted(sums.items())).encode()).hexdigest()[:12]
    base = os.environ.get("WINDROW_JARS") or Path(sys.prefix) / "share" / "windrow" / "jars"
    return Path(base) / f"{name}-{digest}"


def _locked(name: str) -> dict[str, str]:
    sums = {}
    for line in _LOCK.read_text(encoding="utf-8").splitlines():
        digest, path = line.split()
        group, file = path.split("/")
        if group == name:
            sums[file] = digest
    if not sums:
        message = f"{_LOCK} has no jars named {name}; the names are the confs of {_IVY}"
        raise SetupError(message)
    return sums


@contextmanager
def _fetching(base: Path) -> Iterator[None]:
    """Let one process fetch at a time, and remove files that a killed process left behind."""
    try:
        base.mkdir(parents=True, exist_ok=True)
        lock = (base / ".lock").open("w")
    except OSError as error:
        message = f"cannot keep jars in {base} ({error.strerror}): set WINDROW_JARS to a writable folder"
        raise SetupError(message) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in base.glob(".part-*"):
            shutil.rmtree(left, ignore_errors=True)
        yield


def _fetch(name: str, sums: Mapping[str, str], folder: Path) -> None:
    part = Path(tempfile.mkdtemp(prefix=".part-", dir=folder.parent))
    try:
        _retrieve(name, part)
        _verify(part, sums)
        part.chmod(0o755)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _verify(folder: Path, sums: Mapping[str, str]) -> None:
    found = {file.name: _sum(file) for file in folder.iterdir()}
    if found == sums:
        return
    wrong = sorted(file for file in found.keys() | sums.keys() if found.get(file) != sums.get(file))
    message = (
        f"Ivy fetched jars that differ from those in {_LOCK}: {', '.join(wrong)}. "
        f"Remove {_cache()} and try again; if ivy.xml was changed, run `make lock`"
    )
    raise SetupError(message)


def _sum(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _cache() -> Path:
    """Return Ivy's download cache, shared by all environments of this user; not ~/.ivy2, as no POM is read here."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "windrow" / "ivy"


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec is not None and spec.origin else []
    if not found:
        message = "PySpark's jars do not include Ivy: install the pyspark version that pyproject.toml pins"
        raise SetupError(message)
    return found[-1]


def _retrieve(name: str, folder: Path) -> None:
    settings = os.environ.get("WINDROW_IVY_SETTINGS") or str(_HERE / "ivysettings.xml")
    command = [str(java()), "-cp", str(_ivy_jar()), "org.apache.ivy.Main", "-warn"]
    command += ["-settings", settings, "-ivy", str(_IVY), "-cache", str(_cache()), "-confs", name]
    command += ["-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
    advice = "is the network available? (behind a mirror, set WINDROW_IVY_SETTINGS to an Ivy settings file)"
    try:
        ran = subprocess.run(  # noqa: S603 - the person's own Java
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_FETCH_SECONDS
        )
    except (OSError, subprocess.SubprocessError) as error:
        message = f"cannot fetch the {name} jars ({error}): {advice}"
        raise SetupError(message) from error
    if ran.returncode != 0:
        tail = "\n".join(f"  {line}" for line in (ran.stdout + ran.stderr).strip().splitlines()[-12:])
        message = f"cannot fetch the {name} jars: {advice}; Ivy said:\n{tail}"
        raise SetupError(message)


def _lock(names: list[str]) -> None:
    """Write a new `jars.lock` from `ivy.xml`."""
    lines = []
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            _retrieve(name, Path(folder))
            lines += [f"{_sum(file)}  {name}/{file.name}\n" for file in sorted(Path(folder).iterdir())]
    _LOCK.write_text("".join(lines), encoding="utf-8")


def main(arguments: list[str]) -> int:
    """`python -m windrow.runtime.spark.jars SET...` fetches sets of jars; `--lock` first makes it write `jars.lock`."""
    try:
        match arguments:
            case ["--lock", *names]:
                _lock(names)
            case names:
                for name in names:
                    jar_set(name)
    except SetupError as error:
        sys.stderr.write(f"windrow: {error}\n")
        return error.exit_code
    return 0


LEAST = 17

_ADVICE = (
    f"install a Java {LEAST} runtime (Debian, Ubuntu: `apt-get install openjdk-17-jre-headless`) "
    "and put it on PATH, or set JAVA_HOME"
)


def java() -> Path:
    """Return the `java` that Spark will use: the one in JAVA_HOME, or else the one on PATH.

    Raise SetupError if there is none, if it does not run, or if it is older than Java 17.
    """
    home, found = _named_java()
    where = f"JAVA_HOME is {home}" if home else "java on PATH"
    if found is None:
        message = f"no java on PATH, and JAVA_HOME is not set: {_ADVICE}"
        raise SetupError(message)
    try:
        ran = subprocess.run([found, "-version"], capture_output=True, text=True, check=True, timeout=60)  # noqa: S603 - the person's own Java
    except (OSError, subprocess.SubprocessError) as error:
        message = f"{where}, but `{found} -version` failed ({error}): {_ADVICE}"
        raise SetupError(message) from error
    match = re.search(r'version "(?:1\.)?(\d+)', ran.stderr + ran.stdout)
    if match is None or int(match[1]) < LEAST:
        version = "of an unknown version" if match is None else f"Java {match[1]}"
        message = f"{where}, and {found} is {version}; Spark needs Java {LEAST} or newer: {_ADVICE}"
        raise SetupError(message)
    return Path(found)


def _named_java() -> tuple[str | None, str | None]:
    home = os.environ.get("JAVA_HOME")
    return home, shutil.which("java") if not home else str(Path(home) / "bin" / "java")


def java_version() -> str | None:
    """Return the version of the Java that Spark will use, without starting it, or None if there is no Java.

    The version is read from Java's `release` file.
    """
    _, found = _named_java()
    if found is None or not Path(found).exists():
        return None
    release = Path(found).resolve().parent.parent / "release"
    match = re.search(r'JAVA_VERSION="([^"]+)"', release.read_text()) if release.is_file() else None
    return "of an unknown version" if match is None else match[1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
