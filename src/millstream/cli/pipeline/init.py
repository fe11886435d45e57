"""`millstream init [DIR]`: create a project with a pipeline and its test."""

import re
from pathlib import Path
from typing import Annotated

import typer

from millstream.cli.terminal.options import command
from millstream.cli.terminal.output import say
from millstream.errors import InvalidInput

_TEMPLATES = Path(__file__).parent / "project"
_FILES = {
    "pipeline.py": "pipeline.py.txt",
    "test_pipeline.py": "test_pipeline.py.txt",
    "pyproject.toml": "pyproject.toml.txt",
    "README.md": "README.md.txt",
    ".gitignore": "gitignore.txt",
}
_NOT_IN_A_NAME = re.compile(r"[^a-z0-9]+")
_LONGEST = 60
_DEFAULT_NAME = "views"


def register(app: typer.Typer) -> None:
    """Add `init`."""
    command(app, "init", "millstream init", "millstream init shop")(init)


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="The project's folder; created if missing.")
    ] = Path(),
) -> None:
    """Create a project: a pipeline, a test that runs it, pyproject, README.

    The pipeline is named after the folder. No file is overwritten: if one of them exists,
    nothing is written.
    """
    name = _named_after(folder)
    _refuse_to_overwrite(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for file, template in _FILES.items():
        text = (_TEMPLATES / template).read_text(encoding="utf-8").replace("@name@", name)
        with (folder / file).open("x", encoding="utf-8") as created:
            created.write(text)
    say(f"created the pipeline {name!r} in {folder}: {', '.join(_FILES)}")
    say(_next(folder, name))


def _named_after(folder: Path) -> str:
    """The folder's name, changed to a valid name for pipeline, topics and package."""
    words = _NOT_IN_A_NAME.sub("-", folder.resolve().name.lower()).strip("-")
    return words[:_LONGEST].rstrip("-") or _DEFAULT_NAME


def _refuse_to_overwrite(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise InvalidInput("init needs a folder", got=f"{folder}, which is a file",
                           do="name another")  # fmt: skip
    existing = [file for file in _FILES if (folder / file).exists() or (folder / file).is_symlink()]
    if existing:
        raise InvalidInput(
            f"init needs a folder without {', '.join(_FILES)}",
            got=f"{', '.join(existing)} in {folder.resolve()}",
            do="name another folder, as in `millstream init shop`; nothing was written",
        )


def _next(folder: Path, name: str) -> str:
    steps = [
        ("pytest", "its test (pip install pytest); needs no Kafka"),
        ("millstream check pipeline.py", "columns and types"),
        ("millstream up", "a real Kafka on this machine"),
        (f"millstream topics create {name}.views", "the topic it reads"),
        ("millstream run pipeline.py", "on Spark, until Ctrl-C"),
    ]
    if folder.resolve() != Path.cwd():
        steps.insert(0, (f"cd {folder}", ""))
    width = max(len(line) for line, _ in steps)
    return "\n".join(["next:", *(f"  {line:<{width}}  {why}".rstrip() for line, why in steps)])
