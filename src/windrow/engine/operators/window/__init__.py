"""The window operator: tumbling, hopping, cumulate, calendar and global windows.

`operator` runs a step. `assigner` assigns windows and verdicts to each record. `panes` and `early` store panes and
write changes, without and with early panes. `late` counts late records, `slices` stores the parts that overlapping
windows share, `triggers` decides when an early pane is due, and `sql` has the queries. `changelog` and `running` are
the operators for rows that change, with and without windows.
"""
