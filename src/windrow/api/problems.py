"""Problems of one pipeline, told all at once."""

from __future__ import annotations

from collections.abc import Sequence

from windrow.errors import PipelineError


class ManyProblemsError(PipelineError):
    """Several things are wrong with a pipeline; `errors` holds them one by one, in the order of the file."""

    def __init__(self, errors: Sequence[PipelineError]) -> None:
        super().__init__("\n".join(str(error) for error in errors))
        self.errors = tuple(errors)
        self.place = errors[0].place


def each_error(error: PipelineError) -> tuple[PipelineError, ...]:
    """Return the single problems that an error tells of."""
    return error.errors if isinstance(error, ManyProblemsError) else (error,)


def joined(errors: Sequence[PipelineError]) -> PipelineError:
    """Return one error for several, in the order of the file; there must be at least one."""
    single = [one for error in errors for one in each_error(error)]
    if len(single) == 1:
        return single[0]
    return ManyProblemsError(sorted(single, key=lambda error: error.place.line if error.place else 0))
