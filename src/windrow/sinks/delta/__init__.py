"""Delta tables: a folder for each table of a pipeline."""

from windrow.errors import SetupError

try:
    import deltalake  # noqa: F401 - to say what is missing
except ModuleNotFoundError as exc:
    missing = f"a sink of Delta tables needs the package {exc.name}: pip install 'windrow[delta]'"
    raise SetupError(missing) from exc

from windrow.sinks.delta.sink import DeltaTables

__all__ = ["DeltaTables"]
