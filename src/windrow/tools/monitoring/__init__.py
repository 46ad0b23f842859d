"""Monitoring of runs from outside: rules for Prometheus and a dashboard for Grafana.

Both are over the metrics of ``windrow run --listen`` (``windrow.telemetry.metrics``), and nothing here runs in a
pipeline.
"""
