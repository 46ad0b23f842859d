"""S3 connection settings from the environment variables that the AWS tools use."""

from __future__ import annotations

import os


def s3_endpoint() -> tuple[str | None, str | None]:
    """Return the endpoint URL, or None for Amazon's own, and the region, or None if unknown."""
    environment = os.environ
    return environment.get("AWS_ENDPOINT_URL"), environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")


def hadoop_settings() -> dict[str, str]:
    """Return the Spark settings that select the same S3 endpoint as in this process."""
    endpoint, region = s3_endpoint()
    if endpoint is None:
        return {}
    return {
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": region or "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": str(not endpoint.startswith("http://")).lower(),
    }
