from __future__ import annotations

import logging
import os
import signal
from typing import Any

import click
import pytest

from windrow.cli.common import echo_error
from windrow.interactive.interrupts import stopping


def test_a_second_signal_in_the_midst_of_the_words_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the run: said within themselves, the words would be an error of Python's streams."""
    said, asked = list[str](), list[bool]()

    def echo(text: str, **more: Any) -> None:  # noqa: ANN401 - click's own
        del more
        assert not said, "the words come twice"
        said.append(text)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(click, "echo", echo)
    before = signal.getsignal(signal.SIGINT)
    try:
        with stopping(echo_error) as on_start:
            on_start(lambda: asked.append(True))
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
    finally:
        logging.disable(logging.NOTSET)
    assert (said, asked) == (["stopping after this step (again to stop at once)"], [True])
    assert signal.getsignal(signal.SIGINT) == before
