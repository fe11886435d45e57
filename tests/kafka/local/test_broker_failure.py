"""The reason of a failure is found in the log of a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.kafka.local.broker_failure import cause, last_error

if TYPE_CHECKING:
    from pathlib import Path

OLD = "2026-01-01T00:00:00.000Z ERROR of an earlier run (Kafka$)\n"
FAILED = """\
2026-01-01T00:00:01.000Z INFO  starting (Kafka$)
2026-01-01T00:00:02.000Z ERROR Exiting due to fatal exception (Kafka$)
java.lang.RuntimeException: wrapped
\tat kafka.Kafka.main(Kafka.scala)
Caused by: java.io.IOException: No space left on device
\tat java.base/sun.nio.ch.FileDispatcherImpl.write0(Native Method)
2026-01-01T00:00:03.000Z INFO  shut down (Kafka$)
"""


def test_the_last_error_is_quoted_with_its_root_cause(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(OLD + FAILED)
    assert last_error(tmp_path / "log", tmp_path / "out", since=len(OLD)) == (
        "Exiting due to fatal exception (Kafka$): java.io.IOException: No space left on device"
    )


def test_without_an_error_the_last_line_of_this_run_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(OLD + FAILED.splitlines()[0] + "\n\n")
    found = last_error(tmp_path / "log", tmp_path / "out", since=len(OLD))
    assert found == "starting (Kafka$)"


def test_the_output_of_java_is_quoted_if_nothing_was_logged(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("Error: Could not create the Java Virtual Machine.\n")
    (tmp_path / "log").write_text(OLD)
    found = last_error(tmp_path / "log", tmp_path / "out", since=len(OLD))
    assert found == "Error: Could not create the Java Virtual Machine."
    (tmp_path / "out").unlink()
    assert last_error(tmp_path / "log", tmp_path / "out", since=len(OLD)) == "no output"


def test_a_log_that_was_rotated_is_read_from_its_start(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(FAILED)
    assert "No space left" in last_error(tmp_path / "log", tmp_path / "out", since=10_000_000)


def test_the_cause_of_a_printed_failure_is_found_in_its_stack_trace() -> None:
    printed = 'Exception in thread "main" a.b.ConfigException: Invalid value\n\tat x.Y(Z.java:1)\n'
    assert cause(printed) == "a.b.ConfigException: Invalid value"
    assert cause("plain words\n\tat somewhere\n") == "plain words"
    assert cause("") is None
