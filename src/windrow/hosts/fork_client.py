"""What Spark runs as Python where a fork server runs: ``fork_client.py SERVER PYTHON -m MODULE ARGUMENT...``.

It has a process forked from the server do what PYTHON would do, and ends with it; where the server does not, it becomes
PYTHON. It is run by its path, without site-packages, as it must begin at once.
"""

from __future__ import annotations

import json
import os
import socket
import sys

STANDARD = (0, 1, 2)
"""Standard input, output and error."""


def main() -> None:
    """Ask, and wait."""
    server, python, *words = sys.argv[1:]
    if not _is_done(server, words):
        os.execv(python, [python, *words])  # noqa: S606 - as Spark would


def _is_done(server: str, words: list[str]) -> bool:
    with socket.socket(socket.AF_UNIX) as asked:
        try:
            asked.connect(server)
            socket.send_fds(asked, [b"?"], STANDARD)
            asked.sendall(json.dumps((words, dict(os.environ), os.getcwd())).encode())  # noqa: PTH109 - quick to load
            asked.shutdown(socket.SHUT_WR)
            is_taken = bool(asked.recv(1))
            for number in STANDARD:  # whoever is at their other ends looks whether any process has them
                if is_taken:
                    os.close(number)
            while is_taken and asked.recv(1):
                pass
        except OSError:
            return False
    return is_taken


if __name__ == "__main__":
    main()
