"""`millstream plan FILE`: show a pipeline's steps and how they run, without Spark and Kafka."""

import sys

import typer

from millstream.cli.terminal.options import Shape, command
from millstream.cli.terminal.output import Output, print_json
from millstream.cli.terminal.pipelines import File, load
from millstream.viewing.escape import one_line


def register(app: typer.Typer) -> None:
    """Add `plan`."""
    command(app, "plan", "millstream plan hot.py", "millstream plan hot.py -o json")(plan)


def plan(file: File, output: Shape = Output.table) -> None:
    """Show a pipeline's steps, its stages, and how each lane runs them.

    Needs neither Spark nor Kafka. Marks steps that depend on the order of rows or on the clock.
    """
    from millstream.engine.inspection.physical import as_text, leaving, outlined
    from millstream.plan.explain.explain import describe

    _, pipeline = load(file)
    if output is Output.json:
        facts = describe(pipeline.name, pipeline.outputs, pipeline.dead)
        facts["mode"] = pipeline.mode
        print_json({**facts, "lanes": outlined(pipeline), "leaving": leaving(pipeline)})
        return
    for line in (pipeline.plan() + as_text(pipeline)).splitlines():
        sys.stdout.write(one_line(line) + "\n")
