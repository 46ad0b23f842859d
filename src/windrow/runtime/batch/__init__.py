"""The batch host: replays a bounded range of the log as one Spark job, with the same operators as the other hosts.

It needs no state store.
"""
