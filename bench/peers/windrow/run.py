"""windrow's main job, on its stream host or its batch host; or only up to the clock stage (decode, watermark)."""

from __future__ import annotations

from bench.discard import DiscardSink
from bench.peers.first_task import tell_ready
from bench.peers.job import DONE, TABLE, TABLE_ONLY, Job, tell, told
from bench.pipelines import from_kafka, main_job

from windrow.authoring.pipeline_file import parse_pipeline
from windrow.connectors.cuts import StreamPlan
from windrow.connectors.delta.connector import DeltaSink
from windrow.connectors.open_sinks import open_sinks
from windrow.connectors.open_sources import open_source
from windrow.connectors.parquet.connector import ParquetSink
from windrow.connectors.stream_reader import stream_of
from windrow.model import Graph, KafkaSink, PostgresSink
from windrow.runtime.batch.plan import BatchSettings
from windrow.runtime.batch.run import BatchRun
from windrow.runtime.run import RunSettings
from windrow.runtime.spark.rows import PACKET_DDL
from windrow.runtime.spark.session import spark_session
from windrow.runtime.spark.stages import stream_ingest
from windrow.runtime.spark.transport import TableTransport
from windrow.runtime.stream.run import StreamRun


def main(job: Job) -> None:
    """Run it to the end of the topic."""
    text = main_job(from_kafka(job.servers, job.topic), window=job.window)
    pipeline = parse_pipeline(text, "bench/peers/windrow/run.py")
    if job.postgres is not None:
        kept = not job.engine.endswith(TABLE_ONLY)
        sink = PostgresSink(job.postgres, TABLE, key=("window_start", "user_id"), changelog=kept)
        pipeline = pipeline.into(sink)
    if job.results is not None:
        pipeline = pipeline.into(KafkaSink(job.servers, job.results))
    if job.lake is not None:
        lake = str(job.folder / "lake")
        pipeline = pipeline.into(DeltaSink(lake, TABLE) if job.lake == "delta" else ParquetSink(lake, TABLE))
    tell_ready(spark_session(log=job.folder / "spark.log"))
    if job.engine == "clock":
        _clock(pipeline, job)
    else:
        is_dropped = job.postgres is None and job.results is None and job.lake is None
        opened = DiscardSink() if is_dropped else open_sinks(pipeline)
        if job.engine.startswith("batch"):
            BatchRun(pipeline, opened, BatchSettings(max_records=job.step)).run(lambda _: None)
        else:
            settings = RunSettings(job.folder / "checkpoint", until_end=True, max_records=job.step)
            StreamRun(pipeline, opened, settings).run(lambda _: None)
        opened.close()
    tell(DONE)


def _clock(pipeline: Graph, job: Job) -> None:
    spark, source = spark_session(), open_source(pipeline.sources[0].source)
    tasks = spark.sparkContext.defaultParallelism
    stage = stream_ingest(pipeline, tuple(source.partitions()), TableTransport())
    reader = source.reader(StreamPlan(stage, source.beginning(), tasks, job.step))
    packets = stream_of(spark, "windrow_clock", reader, PACKET_DDL)
    query = packets.writeStream.format("noop").option("checkpointLocation", str(job.folder / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(told())
