"""The session operator: groups records of a key that are less than a gap apart into windows.

In a step, records and stored sessions become fragments (`fragments`). Clusters of fragments that touch are merged, most
of them together as columns (`plan`), the others one by one (`merge`) while tracking their rows in the table (`rows`).
Their accumulators are merged accordingly and produce the changes (`sql`). `operator` runs a step and stores the
fragments.
"""
