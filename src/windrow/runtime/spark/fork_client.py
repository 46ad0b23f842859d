"""Stands in for Python beside a fork server: ``fork_client.py SERVER PYTHON -m MODULE ARGUMENT...``.

A process forked from the server does the work of PYTHON, and this process ends when it does. If the server refuses,
this process becomes PYTHON. It is run by its path, without site-packages, because it must start quickly.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys

STANDARD = (0, 1, 2)
"""Standard input, output and error."""


def main() -> None:
    """Ask the server for a fork, and wait until the fork ends."""
    server, python, *words = sys.argv[1:]
    if not _is_done(server, words):
        os.execv(python, [python, *words])  # noqa: S606 - as Spark would


def _is_done(server: str, words: list[str]) -> bool:
    with socket.socket(socket.AF_UNIX) as asked:
        try:
            asked.connect(server)
            socket.send_fds(asked, [b"?"], STANDARD)
            # Java raises the limit of open files for its processes
            files = resource.getrlimit(resource.RLIMIT_NOFILE)
            asked.sendall(json.dumps((words, dict(os.environ), os.getcwd(), files)).encode())  # noqa: PTH109 - quick to load
            asked.shutdown(socket.SHUT_WR)
            fork = int.from_bytes(asked.recv(4))
        except OSError:
            return False
        if not fork:
            return False
        signal.signal(signal.SIGTERM, lambda *_: os.kill(fork, signal.SIGTERM))  # by which Spark ends processes
        for number in STANDARD:  # else the other ends of the pipes would not notice the end of the fork
            os.close(number)
        asked.recv(1)  # nothing, once the fork ends
    return True


if __name__ == "__main__":
    main()
