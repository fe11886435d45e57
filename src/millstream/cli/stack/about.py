"""`millstream version`: the installed versions."""

import platform
from importlib.metadata import PackageNotFoundError, version

import typer

from millstream.cli.terminal.options import Shape, command
from millstream.cli.terminal.output import Output, print_facts

PACKAGES = ("pyspark", "confluent-kafka", "pyarrow")


def register(app: typer.Typer) -> None:
    """Add `version`."""
    command(app, "version", "millstream version", "millstream version -o json")(show_version)


def show_version(output: Shape = Output.table) -> None:
    """Show the versions of Millstream, Python and the main dependencies."""
    facts = {"millstream": installed("millstream"), "python": platform.python_version()}
    facts.update({name.replace("-", "_"): installed(name) for name in PACKAGES})
    print_facts(facts, output)


def installed(package: str) -> str | None:
    """The version of an installed package, read without importing it."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
