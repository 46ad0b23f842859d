"""The errors of Spark, and what is said of them."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # it has no types

from windrow.errors import EngineError
from windrow.runtime.spark.errors import java_message, translate_spark_error


class _Gone:
    """Stands in for Java's exception after Java has ended: each call to it fails."""

    _target_id = "o1"

    def __getattr__(self, name: str) -> object:
        raise ConnectionRefusedError(111, f"Connection refused: {name}")


def test_an_error_whose_message_java_can_no_longer_give() -> None:
    error = Py4JJavaError("An error occurred while calling o1.start.", _Gone())
    assert java_message(error) == "Spark's Java process has ended"
    translated = translate_spark_error(error)
    assert isinstance(translated, EngineError)
    assert str(translated).startswith("the stream stopped: Spark's Java process has ended")
