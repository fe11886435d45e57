"""What Spark's Python workers need, and an error as one sentence when they lack it."""

from __future__ import annotations

import re
import sys

from millstream.errors import SetupFailed

_NEED = "Spark's Python workers need the Python and the packages of the driver"
_DO = (
    "install millstream on every machine and name that Python by spark.pyspark.python or "
    "PYSPARK_PYTHON; send modules of your own with spark.submit.pyFiles"
)
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")
_VERSIONS = re.compile(
    r"Python in worker has different version:? \(?([\d., ]+?)\)? (?:than|from) that in "
    r"driver:? \(?([\d., ]+?)\)?,"
)
_NO_PYTHON = re.compile(r'Cannot run program "([^"]+)"')


def lacking(text: str) -> SetupFailed | None:
    """What workers lack according to an error of Spark; None if the error is another one."""
    if missing := _MISSING.search(text):
        return needs(f"no module named {missing[1]!r}")
    if versions := _VERSIONS.search(text):
        worker, driver = (found.replace(", ", ".") for found in versions.groups())
        return needs(f"Python {worker} on an executor and {driver} on the driver")
    if program := _NO_PYTHON.search(text):
        return needs(f"no program {program[1]!r} on an executor")
    return None


def version() -> str:
    """The version of this package in this process; a copy sent to executors has no metadata."""
    return str(sys.modules["millstream"].__version__)


def check_version(found: str) -> None:
    """Refuse workers with another version of the package.

    Raises:
        SetupFailed: names both versions.
    """
    if found != version():
        raise needs(f"millstream {found} on an executor and {version()} on the driver")


def needs(got: str) -> SetupFailed:
    """The error of workers that lack something."""
    return SetupFailed(_NEED, got=got, do=_DO)
