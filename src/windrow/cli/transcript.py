"""`windrow transcript`: run event-time test stories, on any host and with the log divided into steps in any way."""

from __future__ import annotations

import click

from windrow.errors import TranscriptError
from windrow.terminal.common import DIFFERENT, OK, complete_files, json_option, print_json
from windrow.testing.transcript import Story, read_story
from windrow.testing.transcript.story import HOSTS, load_play

_HELP = {
    "host": "Host that runs the stories.",
    "rebatch": "Also run each story N times with its log cut into random steps, once in a single step and once with "
    "one record per step; the results must be the same.",
}


@click.command("transcript")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, shell_complete=complete_files)
@click.option("--host", type=click.Choice(list(HOSTS)), default="memory", show_default=True, help=_HELP["host"])
@click.option("--rebatch", metavar="N", type=click.IntRange(min=1), help=_HELP["rebatch"])
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random steps.")
@json_option
def command(files: tuple[str, ...], *, host: str, rebatch: int | None, seed: int, as_json: bool) -> int:
    """Run event-time test stories.

    FILE is a story: a log in steps, and the changes, late records, dead letters and final table that it must produce.
    The command prints `ok` or `FAILED` for each story, followed by the differences. The exit code is 1 if a story has
    failed. If a file is not a story, nothing runs and the exit code is 2.
    """
    stories = _read(files)
    # imported here because they need pyarrow, which reading does not
    from windrow.testing.transcript.report import lines, to_json  # noqa: PLC0415
    from windrow.testing.transcript.run import check_story  # noqa: PLC0415

    play = load_play(host)
    results = []
    for story in stories:
        result = check_story(story, play, host=host, rebatch=rebatch or 0, seed=seed)
        results.append(result)
        if not as_json:
            click.echo("\n".join(lines(result)))
    if as_json:
        print_json(to_json(results))
    return OK if all(result.ok for result in results) else DIFFERENT


def _read(files: tuple[str, ...]) -> list[Story]:
    """Read all stories; if some files are not stories, raise one TranscriptError about all of them."""
    stories: list[Story] = []
    errors: list[TranscriptError] = []
    for file in files:
        try:
            stories.append(read_story(file))
        except TranscriptError as exc:
            errors.append(exc)
    if len(errors) > 1:
        message = "\n".join(map(str, errors))
        raise TranscriptError(message) from errors[0]
    if errors:
        raise errors[0]
    return stories
