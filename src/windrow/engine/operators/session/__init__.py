"""The session operator: windows of a key's records that are less than a gap apart.

A step goes: records and what is stored become fragments (`fragments`); clusters of fragments that touch are merged,
most of them at once in columns, the others one by one (`merge`) against the rows that the table has (`rows`);
accumulators are brought together accordingly, and changes made of them (`sql`). `operator` runs a step and stores what
is left.
"""
