"""`millstream check FILE`: check columns, types and the fit with the checkpoint."""

from typing import TYPE_CHECKING, Any

import typer

from millstream.cli.terminal.options import Shape, command
from millstream.cli.terminal.output import Output, print_json, print_table, say
from millstream.cli.terminal.pipelines import Checkpoint, File, libraries_print_to, load_file
from millstream.errors import InvalidSpec, UserCodeFailed

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.api.pipeline import Pipeline


def register(app: typer.Typer) -> None:
    """Add `check`."""
    command(
        app, "check", "millstream check hot.py", "millstream check hot.py --checkpoint jobs/hot"
    )(check)


def check(file: File, checkpoint: Checkpoint = None, output: Shape = Output.table) -> None:
    """Check a file's pipelines: columns, types (by Spark), and the fit with the checkpoint.

    Each step is kept, new, dropped or refused. Runs nothing and changes nothing. The exit code
    is 3 if a pipeline is invalid or a step is refused.
    """
    from millstream.toolchain.folders import home_folder

    loaded, name = load_file(file)
    loaded.for_spark()
    pipelines = loaded.all() if name is None else [loaded.one(name)]
    say("starting Spark to check the types …")
    with libraries_print_to(home_folder() / "check.log"):
        found = [_check(pipeline, checkpoint) for pipeline in pipelines]
    if output is Output.json:
        print_json(found)
    else:
        for facts in found:
            _print(facts)
    refused = [row["step"] for facts in found for row in facts["steps"]
               if row["verdict"] == "refused"]  # fmt: skip
    if refused:
        raise InvalidSpec(
            "the checkpoint needs steps with the same specs",
            got=f"another spec for {', '.join(refused)}",
            do="give the step a new name= to start it empty, or use another --checkpoint",
        )


def _check(pipeline: "Pipeline", checkpoint: "Path | None") -> dict[str, Any]:
    from millstream.engine.checkpoint.folders import checkpoint_folder
    from millstream.engine.inspection.inspect import verdicts
    from millstream.engine.inspection.types import analysed
    from millstream.engine.spark.session import session

    try:
        typed = analysed(pipeline, session())
    except UserCodeFailed as error:
        raise InvalidSpec(error.need, got=error.got, do=error.do) from error
    folder = checkpoint or checkpoint_folder(pipeline.name)
    return {
        "pipeline": pipeline.name,
        "mode": pipeline.mode,
        "checkpoint": str(folder),
        "steps": verdicts(folder, pipeline.name, typed),
        "outputs": [
            {"output": output.name, "columns": _columns(typed, stage)}
            for stage in typed.stages.stages
            for output in stage.outputs
        ],
    }


def _columns(typed: Any, stage: Any) -> str:
    """The columns a stage sends to its outputs, with types."""
    import pyarrow as pa

    from millstream.schema import Schema

    visible = pa.schema([field for field in typed.output(stage) if not field.name.startswith("_")])
    return Schema.from_arrow(visible).ddl().replace("`", "")


def _print(facts: dict[str, Any]) -> None:
    say(f"{facts['pipeline']}, {facts['mode']} mode, checkpoint {facts['checkpoint']}")
    if facts["steps"]:
        print_table(["step", "verdict", "why"],
                    [[row[word] for word in ("step", "verdict", "why")]
                     for row in facts["steps"]])  # fmt: skip
    print_table(["output", "columns"],
                [[row["output"], row["columns"]] for row in facts["outputs"]])  # fmt: skip
