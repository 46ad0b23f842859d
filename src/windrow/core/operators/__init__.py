"""The operators: packets and state in, changes out."""
