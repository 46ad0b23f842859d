"""Monitoring from outside, over the metrics of ``windrow run --listen``: rules for Prometheus, Grafana's dashboard."""
