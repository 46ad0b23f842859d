"""What the command line, a Python program and a notebook do alike: run pipelines, read their tables, and show both.

`windrow.methods` gives it to pipelines as their methods; commands of the same names print it.
"""
