"""A page that shows runs: their history, summed up once for all who look at it, and the tables that they write."""
