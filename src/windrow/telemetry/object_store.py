"""Object stores accessed through `pyarrow.fs`, as universal_pathlib paths."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import fsspec  # type: ignore[import-untyped] # it has no types
from fsspec.implementations.arrow import ArrowFSWrapper  # type: ignore[import-untyped] # the same
from pyarrow import fs
from upath import UPath

from windrow.errors import CheckpointError
from windrow.model.references import mask_urls
from windrow.telemetry.s3 import s3_endpoint


def open_folder(url: str) -> UPath:
    """Return the folder for a URL, without sending a request."""
    return UPath(url)


class _Store(ArrowFSWrapper):  # type: ignore[misc] # it has no types
    """A pyarrow file system that raises CheckpointError for all errors except missing files."""

    def __init__(self, store: str, **options: Any) -> None:  # noqa: ANN401 - fsspec's
        with _translate_errors(store):
            super().__init__(self._open_store(store), store=store, **options)

    @staticmethod
    def _open_store(bucket: str) -> fs.FileSystem:
        raise NotImplementedError

    @staticmethod
    def _get_kwargs_from_urls(url: str) -> dict[str, str]:
        return {"store": urlsplit(url).netloc}  # universal_pathlib gives `bucket` a meaning of its own

    @classmethod
    def _parent(cls, path: str) -> str:  # universal_pathlib asks the class
        return str(cls._strip_protocol(path)).rpartition("/")[0]

    def info(self, path: str, **options: Any) -> Any:  # noqa: ANN401 - fsspec's
        """Return the kind and size of a path."""
        with _translate_errors(path):
            return super().info(path, **options)

    def ls(self, path: str, *, detail: bool = False, **options: Any) -> Any:  # noqa: ANN401 - fsspec's
        """List a folder."""
        with _translate_errors(path):
            return super().ls(path, detail=detail, **options)


class _S3(_Store):
    @staticmethod
    def _open_store(bucket: str) -> fs.FileSystem:
        endpoint, region = s3_endpoint()
        if region is None and endpoint is None:
            region = fs.resolve_s3_region(bucket)
        # a small file is one request
        return fs.S3FileSystem(endpoint_override=endpoint, region=region, allow_delayed_open=True)


class _Google(_Store):
    @staticmethod
    def _open_store(bucket: str) -> fs.FileSystem:
        del bucket
        return fs.GcsFileSystem()


fsspec.register_implementation("s3a", _S3, clobber=True)
fsspec.register_implementation("gs", _Google, clobber=True)


@contextmanager
def _translate_errors(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as exc:
        msg = (
            f"cannot access {path} in the object store: {mask_urls(str(exc))}; check its address, and the credentials "
            "in the environment"
        )
        raise CheckpointError(msg) from exc
