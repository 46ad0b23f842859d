"""The process operator: a user's function for each record of a key, with state and timers for each key.

`operator` makes the calls, `context` is what the function sees, `state` is what is kept of a key between calls.
"""
