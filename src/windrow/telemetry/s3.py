"""The S3 endpoint in the environment, as Amazon's own tools read it."""

from __future__ import annotations

import os


def s3_endpoint() -> tuple[str | None, str | None]:
    """Return the URL of the store, None for Amazon's, and its region, None if unknown."""
    environment = os.environ
    return environment.get("AWS_ENDPOINT_URL"), environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")


def hadoop_settings() -> dict[str, str]:
    """Return the settings by which Spark finds the same store of S3 as this process."""
    endpoint, region = s3_endpoint()
    if endpoint is None:
        return {}
    return {
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": region or "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": str(not endpoint.startswith("http://")).lower(),
    }
