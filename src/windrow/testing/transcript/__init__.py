"""Event-time stories: a log in steps, and the expected results of a pipeline.

Each story is a YAML file:

::

    name: the worked example
    pipeline:                    # like a pipeline file, without name, source, decode and sink
      time: {field: t, delay: 1m}
      key: [user]
      window: {tumbling: 5m}
      aggregate: {total: sum(amount)}
      emit: {lateness: 10m}
    steps:
      - records:                 # one step; `p` is the partition (default 0); offsets count up in each partition
          - {user: A, t: "10:00", amount: 5}
          - {p: 1, raw: "no json"}
          - {user: B, t: "10:06", amount: 1, _log_time: "10:05"}
      - tick: "12:00:05"         # a step without records, at this processing time (for `idle` and timed early panes)
      - crash: before_commit     # kill the run and repeat the last step, which was not yet committed, or had already
                                 # been committed (after_commit)
      - watermark: "10:05"       # with `time: {field: t, punctuated: w}`: a record with only `w`, in every partition of
                                 # the story, or in those of {0: "10:05"}; it takes an offset and is a step
      - expect:                  # all changes since the last `expect`: [op, pane, window, key..., values...]
          - [insert, on_time, "10:00", A, 5]
      - late: []                 # all expired records since the last `late`: [partition, offset, window]
      - dead:                    # all dead letters since the last `dead`: [partition, offset, beginning of the reason]
          - [1, 0, malformed]
      - end: fire                # end of the input: open windows `fire`, or `hold`; expectations may follow
    final:                       # the whole table at the end: [window, key..., values...]
      - ["10:00", A, 5]
      - ["10:05", B, 1]

Times are ``HH:MM[:SS[.ffffff]]`` on 2026-01-01, UTC, or start with a date (``2026-03-29 02:30``). A window is written
as its start, a session as ``start/end``, and the global window as ``global``. A result may be ``null``, a string, a
boolean or a time, and a key may be derived (`derive:` in `pipeline`).

The types of fields are inferred from the records: text is a string, 5 a long, 5.25 a decimal of 18 digits with the
largest scale, and true a boolean. The time field and the punctuation's field are times in microseconds. A field has the
same type throughout a story, and every record has every field. Exceptions are marks (records with only the
punctuation's field) and `raw` records, which are lines of the log as they are. `_log_time` is the log timestamp. It
counts as a difference if a dead letter is not expected by any `dead` step.
"""

from windrow.testing.transcript.reader import parse_story, read_story
from windrow.testing.transcript.story import Story

__all__ = ["Story", "parse_story", "read_story"]
