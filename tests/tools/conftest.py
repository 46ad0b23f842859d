"""The logs and stores that the runs of these tests have."""

from tests.runtime.conftest import files, make_log, make_store, runner, store

__all__ = ["files", "make_log", "make_store", "runner", "store"]
