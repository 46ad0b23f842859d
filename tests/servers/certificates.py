"""Certificates that a test makes for itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from windrow.testing.servers.process import ServerError

HERE = "IP:127.0.0.1,DNS:localhost"


def make_certificates(folder: Path, names: str = HERE) -> Path:
    """Write a new authority `ca.pem`, and a key with its certificate for these names: `server.key` and `server.pem`.

    Return the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "san.txt").write_text(f"subjectAltName={names}\n")
    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl(folder, *new, "-x509", "-days", "2", "-subj", "/CN=windrow tests", "-keyout", "ca.key", "-out", "ca.pem")
    openssl(folder, *new, "-subj", "/CN=windrow", "-keyout", "server.key", "-out", "server.csr")
    openssl(
        folder,
        *("x509", "-req", "-days", "2", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key"),
        *("-CAcreateserial", "-extfile", "san.txt", "-out", "server.pem"),
    )
    return folder


def openssl(folder: Path, *arguments: str) -> None:
    """Run the openssl command in a folder."""
    program = shutil.which("openssl")
    if program is None:
        message = "openssl is not installed"
        raise ServerError(message)
    subprocess.run([program, *arguments], cwd=folder, check=True, capture_output=True)
