"""The window operator: tumbling, hopping, cumulate, calendar and global windows.

`assigner` gives each record its windows and its verdicts, `panes` and `early` keep the panes and write the changes
(without and with early panes), `late` counts late records, `slices` holds the parts that overlapping windows share,
`triggers` says when an early pane is due, `sql` holds the queries. `operator` runs a step.
"""
