"""windrow's main job, on its stream host or its batch host; or only up to the clock stage (decode, watermark)."""

from __future__ import annotations

from dataclasses import replace

from bench.peers.first_task import tell_ready
from bench.peers.job import DONE, TABLE, TABLE_ONLY, Job, tell, told
from bench.pipelines import from_kafka, main_job

from windrow.api.yaml import parse_pipeline
from windrow.hosts.batch.run import BatchRun
from windrow.hosts.batch.settings import BatchSettings
from windrow.hosts.stream.carrier import Carrier
from windrow.hosts.stream.run import Settings, StreamRun
from windrow.hosts.stream.session import spark_session
from windrow.hosts.stream.stages import clock_stage
from windrow.hosts.stream.wire import PACKET_DDL
from windrow.model import Pipeline, PostgresSink
from windrow.sinks import open_sink
from windrow.sinks.discard import DiscardSink
from windrow.sources import open_source
from windrow.sources.spark import stream_of


def main(job: Job) -> None:
    """Run it to the end of the topic."""
    text = main_job(from_kafka(job.servers, job.topic), window=job.window)
    pipeline = parse_pipeline(text, "bench/peers/windrow/run.py")
    if job.postgres is not None:
        kept = not job.engine.endswith(TABLE_ONLY)
        sink = PostgresSink(job.postgres, TABLE, key=("window_start", "user_id"), changelog=kept)
        pipeline = replace(pipeline, sink=sink)
    tell_ready(spark_session(log=job.folder / "spark.log"))
    if job.engine == "clock":
        _clock(pipeline, job)
    else:
        opened = DiscardSink() if job.postgres is None else open_sink(pipeline)
        if job.engine.startswith("batch"):
            BatchRun(pipeline, opened, BatchSettings(max_records=job.step)).run(lambda _: None)
        else:
            settings = Settings(job.folder / "checkpoint", until_end=True, max_records=job.step)
            StreamRun(pipeline, opened, settings).run(lambda _: None)
        if job.postgres is not None:
            opened.close()
    tell(DONE)


def _clock(pipeline: Pipeline, job: Job) -> None:
    spark, source = spark_session(), open_source(pipeline.source)
    tasks = spark.sparkContext.defaultParallelism
    reader = source.reader(clock_stage(pipeline, Carrier()), source.beginning(), tasks=tasks, max_records=job.step)
    packets = stream_of(spark, "windrow_clock", reader, PACKET_DDL)
    query = packets.writeStream.format("noop").option("checkpointLocation", str(job.folder / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(told())
