"""What the command line, a Python program and a notebook do alike: run pipelines, read their tables, and show both.

`windrow.client.pipeline` gives it to pipelines as their methods; commands of the same names print it.
"""
