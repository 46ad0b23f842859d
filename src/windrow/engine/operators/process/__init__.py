"""The process operator: calls a user's function for each record of a key, with state and timers for each key."""
