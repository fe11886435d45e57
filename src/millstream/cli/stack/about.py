"""`millstream version`: what is installed."""

import platform
from importlib.metadata import PackageNotFoundError, version

import typer

from millstream.cli.terminal.options import Shape, command
from millstream.cli.terminal.output import Output, print_facts

PARTS = ("pyspark", "confluent-kafka", "pyarrow")


def register(app: typer.Typer) -> None:
    """Adds `version`."""
    command(app, "version", "millstream version", "millstream version -o json")(show_version)


def show_version(output: Shape = Output.table) -> None:
    """Show the versions of Millstream and of what it stands on."""
    facts = {"millstream": installed("millstream"), "python": platform.python_version()}
    facts.update({name.replace("-", "_"): installed(name) for name in PARTS})
    print_facts(facts, output)


def installed(package: str) -> str | None:
    """The version of an installed package, read without importing it."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
