"""The window operator: tumbling, hopping, cumulate, calendar and global windows.

`assigner` gives each record its windows and its verdicts, `panes` and `early` store the panes and write the changes
(without and with early panes), `late` counts late records, `slices` stores the parts that overlapping windows share,
`triggers` says when an early pane is due, `sql` has the queries. `operator` runs a step; `changelog` and `running` are
the operators of rows that change, in windows and without.
"""
