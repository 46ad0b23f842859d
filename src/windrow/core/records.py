"""The columns that records carry beside their fields; a field's own name never begins with two underscores."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from windrow.core.schema import arrow_type
from windrow.expressions import computed
from windrow.model import AnyPipeline

PARTITION: Final = "__partition"
OFFSET: Final = "__offset"
TIME: Final = "__time"
WATERMARK: Final = "__watermark"
WINDOW: Final = "__window"
END: Final = "__end"
REVISION: Final = "__revision"


def record_schema(pipeline: AnyPipeline) -> pa.Schema:
    """Return the schema of good records on their way to a key group.

    Time and watermark are int64 microseconds; the watermark is the one at the record, as far as its own step moved it.
    Behind the decoded fields are those that expressions make of them.
    """
    return pa.schema(
        [
            pa.field(PARTITION, pa.int32()),
            pa.field(OFFSET, pa.int64()),
            pa.field(TIME, pa.int64()),
            pa.field(WATERMARK, pa.int64()),
            *(pa.field(field.name, arrow_type(field.type)) for field in pipeline.decode.fields),
            *(pa.field(one.name, arrow_type(one.expression.type)) for one in computed(pipeline)),
        ]
    )
