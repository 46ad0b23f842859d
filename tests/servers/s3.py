"""An S3 server in this process, on loopback: moto's."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs
from werkzeug.serving import WSGIRequestHandler

BUCKET = "checkpoints"


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """Run a server with an empty bucket `BUCKET`; yield the environment in which it is found."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    patch = pytest.MonkeyPatch()
    # it says "100 Continue" twice, once as a server of HTTP and once as one of WSGI; Hadoop takes the second for all
    patch.setattr(WSGIRequestHandler, "handle_expect_100", lambda _: True)
    server.start()
    try:
        host, port = server.get_host_and_port()
        environment = {
            "AWS_ACCESS_KEY_ID": "user",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        }
        store = fs.S3FileSystem(
            access_key="user",
            secret_key="secret",  # noqa: S106 - any will do
            region="us-east-1",
            endpoint_override=environment["AWS_ENDPOINT_URL"],
            allow_bucket_creation=True,
        )
        store.create_dir(BUCKET)
        yield environment
    finally:
        server.stop()
        patch.undo()


@contextmanager
def environment_of(server: dict[str, str]) -> Iterator[None]:
    """Let this process, and those that it starts, find a server."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in server.items():
            patch.setenv(name, value)
        yield
