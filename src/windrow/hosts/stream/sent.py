"""Pipelines on their way to Spark's Python workers.

A pipeline may hold Python functions. A worker that unpickles it for each task would get new functions each time, which
equal no earlier ones, and would build anew what it keeps for the pipeline; so it unpickles each only once.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

from pyspark import cloudpickle

from windrow.errors import PipelineError
from windrow.model import AnyPipeline


def send(pipeline: AnyPipeline) -> bytes:
    """Pickle a pipeline, with the functions in it that a worker cannot import.

    Raise PipelineError if one of them holds something that cannot be sent, such as an open file.
    """
    with ExitStack() as held:
        # what somebody has registered stays so
        known = cloudpickle.list_registry_pickle_by_value()  # type: ignore[no-untyped-call] # it has no types
        for module in [module for module in _out_of_reach() if module.__name__ not in known]:
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call] # it has no types
            held.callback(cloudpickle.unregister_pickle_by_value, module)
        try:
            return cloudpickle.dumps(pipeline)  # type: ignore[no-any-return, no-untyped-call]
        except (pickle.PicklingError, TypeError, AttributeError) as exc:
            msg = (
                f"the functions of the pipeline {pipeline.name!r} cannot be sent to Spark's workers ({exc}); let them "
                "use nothing that lives in one process only, such as an open file, a lock or a connection"
            )
            raise PipelineError(msg) from exc


@lru_cache(maxsize=4)
def received(sent: bytes) -> AnyPipeline:
    """Return a pipeline that was sent: the same object each time in one process."""
    pipeline: AnyPipeline = pickle.loads(sent)  # noqa: S301 - the driver of this run pickled it
    return pipeline


def _out_of_reach() -> Iterator[ModuleType]:
    """Go through the loaded modules that a worker would not find, such as those beside a pipeline's file."""
    homes = {sys.prefix, sys.base_prefix}
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    # a worker does not run in this folder
    path = [entry for entry in sys.path if entry in given or (entry and Path(entry) != Path.cwd())]
    found: dict[str, bool] = {}
    for name, module in list(sys.modules.items()):
        file, top = getattr(module, "__file__", None), name.partition(".")[0]
        if isinstance(file, str) and top != "__main__" and not any(file.startswith(home) for home in homes):
            if top not in found:
                found[top] = PathFinder.find_spec(top, path) is not None
            if not found[top]:
                yield module
