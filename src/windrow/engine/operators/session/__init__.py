"""The session operator: windows of a key's records that are less than a gap apart.

In a step, records and stored sessions become fragments (`fragments`); clusters of fragments that touch are merged, most
of them at once in columns (`plan`), the others one by one (`merge`) against the rows of the table (`rows`); their
accumulators are merged accordingly, and make the changes (`sql`). `operator` runs a step and stores the fragments.
"""
