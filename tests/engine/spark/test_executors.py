"""Errors of Spark about its workers, as one sentence."""

from __future__ import annotations

import pytest

from millstream.engine.spark.executors import check_version, lacking
from millstream.errors import SetupFailed

VERSIONS = (
    "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: "
    "3.11, PySpark cannot run with different minor versions."
)
MESSAGES = {
    "ModuleNotFoundError: No module named 'millstream'": "no module named 'millstream'",
    VERSIONS: "Python 3.12 on an executor and 3.11 on the driver",
    'java.io.IOException: Cannot run program "python9": error=2': "no program 'python9'",
}


@pytest.mark.parametrize("message", MESSAGES)
def test_what_a_worker_lacks_is_named(message: str) -> None:
    found = lacking(f"Job aborted: Lost task 0.3:\n{message}\n\tat org.apache")
    assert isinstance(found, SetupFailed)
    assert f"; got {MESSAGES[message]}" in str(found)
    assert "\n" not in str(found)


def test_other_errors_are_not_about_workers() -> None:
    assert lacking("Python worker exited unexpectedly (crashed)") is None


def test_workers_with_another_version_of_the_package_are_refused() -> None:
    with pytest.raises(SetupFailed, match=r"got millstream 0\.0\.9 on an executor and "):
        check_version("0.0.9")
