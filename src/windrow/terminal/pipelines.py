"""The PIPELINE argument of commands, and the options for reading its file."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable
from functools import partial
from importlib.abc import MetaPathFinder
from typing import Any, TypeVar

import click

from windrow.authoring import load
from windrow.authoring.load import OpenedPipeline
from windrow.authoring.variables import PROFILE_VARIABLE, PROFILES, Given
from windrow.errors import HIDDEN_VALUES, InputError
from windrow.runtime.run import CommandLines
from windrow.telemetry.folders import Folder, default_checkpoint
from windrow.terminal.common import complete_files

F = TypeVar("F", bound=Callable[..., Any])

_META = "windrow.pipelines."
"""Prefix of an option's name in the context's `meta`."""
_HELP = {
    "only": "Name of the pipeline, if the file has several.",
    "var": "Value of ${NAME} in the file; may be repeated.",
    "profile": f"Profile with values of ${{NAME}}, in {PROFILES} beside the file.  [env var: {PROFILE_VARIABLE}]",
}


def pipeline_argument(function: F) -> F:
    """Add the argument PIPELINE, which the function receives as `pipeline` and passes to `open_pipeline`.

    Also add ``--only`` and the options of `variable_options`, which `open_pipeline` uses.
    """
    argument = click.argument("pipeline", metavar="PIPELINE", shell_complete=complete_files)
    return argument(only_option(variable_options(function)))


def only_option(function: F) -> F:
    """Add ``--only``, which `open_pipeline` uses."""
    return click.option("--only", metavar="NAME", help=_HELP["only"], expose_value=False, callback=_keep)(function)


def variable_options(function: F) -> F:
    """Add ``--var`` and ``--profile``, which `open_pipeline` uses."""
    option = partial(click.option, expose_value=False, callback=_keep)
    profile = option("--profile", metavar="NAME", help=_HELP["profile"])
    return option("--var", metavar="NAME=VALUE", multiple=True, help=_HELP["var"])(profile(function))


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:  # noqa: ANN401 - of any option
    context.meta[f"{_META}{parameter.name}"] = value


def given() -> Given:
    """Return the command's options for pipeline files; raise InputError if they are invalid."""
    context = click.get_current_context(silent=True)
    meta = {} if context is None else context.meta
    only, var, profile = (meta.get(f"{_META}{name}") for name in ("only", "var", "profile"))
    variables: dict[str, str] = {}
    for text in var or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            msg = f"--var {name!r} is not a variable: write --var NAME=VALUE"
            raise InputError(msg)
        variables[name] = value
    return Given(variables, profile, only)


def open_pipeline(spec: str) -> OpenedPipeline:
    """Read the pipeline of a file with the command's options; raise PipelineError if it cannot be read."""
    return load.open_pipeline(spec, given())


def open_pipelines(spec: str) -> list[OpenedPipeline]:
    """Read all pipelines of a file, or the one that ``--only`` chooses; raise PipelineError if this fails."""
    return load.open_pipelines(spec, given())


def defer_pandas(opened: Iterable[OpenedPipeline]) -> None:
    """Keep Arrow from importing pandas (0.2 s) when it creates its first array, to recognise a Series.

    Arrow still imports pandas to make a DataFrame. From now on it reads a Series like any other sequence, with NaN in
    place of null. So this function does nothing if a pipeline is written in Python, because its code could create a
    Series.
    """
    if "pandas" in sys.modules or any(pipeline.document is None for pipeline in opened):
        return
    import pyarrow as pa  # noqa: PLC0415 - not all commands use it

    hiding = _Hiding()
    sys.meta_path.insert(0, hiding)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(hiding)


class _Hiding(MetaPathFinder):
    """Makes imports of pandas fail, even if it is installed."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Raise ModuleNotFoundError for pandas; leave other modules to other finders."""
        del path, target
        if fullname == "pandas":
            raise ModuleNotFoundError(name=fullname)


def checkpoint_of(name: str, checkpoint: Folder | None, *, is_alone: bool) -> Folder:
    """Return the checkpoint of a pipeline: the folder from the command line, or the default.

    If there are several pipelines, each has a subfolder of that folder.
    """
    if checkpoint is None:
        return default_checkpoint(name)
    return checkpoint if is_alone else checkpoint / name


def command_lines(spec: str, checkpoint: object = "", only: str = "") -> CommandLines:
    """Return command lines for a pipeline file, with the options of this command.

    The value of a variable that may be a secret, or is hidden, is not written. The command line takes it from the
    environment of the shell, and fails if it is not set there.
    """
    current = given()
    options = [("--only", only or current.only), ("--profile", current.profile)]
    words = [f"{name} {shlex.quote(text)}" for name, text in options if text]
    secret = load.variables_of_secrets(spec) if current.variables else set()
    for name, value in current.variables.items():
        is_shown = name not in secret and not HIDDEN_VALUES.are_in(value)
        words.append("--var " + (shlex.quote(f"{name}={value}") if is_shown else f'{name}="${{{name}:?}}"'))
    return CommandLines(spec, str(checkpoint), " ".join(words))
