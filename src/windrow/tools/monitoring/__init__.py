"""External monitoring with the metrics of ``windrow run --listen``: Prometheus rules and a Grafana dashboard."""
