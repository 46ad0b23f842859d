"""A query of examples/nexmark on windrow's stream host, over topics in place of folders."""

from __future__ import annotations

import os
import re

from bench.discard import DiscardSink
from bench.peers.first_task import tell_ready
from bench.peers.job import DONE, tell
from bench.peers.measure import ROOT
from bench.peers.nexmark_job import NexmarkJob

from windrow.authoring.pipeline_file import read_document
from windrow.connectors.open_sinks import open_sinks
from windrow.connectors.sink import SinkGroup
from windrow.model import Graph
from windrow.runtime.run import RunSettings
from windrow.runtime.spark.session import spark_session
from windrow.runtime.stream.run import StreamRun


def graph_of(job: NexmarkJob) -> Graph:
    """Return the query over topics."""
    file = ROOT / "examples" / "nexmark" / f"{job.query}.yaml"
    topic = rf"{{kafka: {{servers: '{job.servers}', topic: {job.topic}-\1}}}}"
    text = re.sub(r"\{log: \{path: data/nexmark/(\w+)\}\}", topic, file.read_text())
    graph = read_document(text, str(file)).pipeline
    if not isinstance(graph, Graph):
        raise TypeError(graph)
    return graph


def main(job: NexmarkJob) -> None:
    """Run it to the end of the topics."""
    graph = graph_of(job)
    os.chdir(job.folder)
    tell_ready(spark_session(log=job.folder / "spark.log"))
    names = [sink.name for sink in graph.sinks]
    sinks = open_sinks(graph) if job.rows else SinkGroup((names, DiscardSink()))
    settings = RunSettings(job.folder / "checkpoint", until_end=True, max_records=job.step)
    StreamRun(graph, sinks, settings).run(lambda _: None)
    tell(DONE)


if __name__ == "__main__":
    main(NexmarkJob.told())
