"""`millstream doctor`: check whether this machine is ready."""

import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import requires
from pathlib import Path
from typing import Literal

import typer

from millstream.cli.stack.about import installed
from millstream.cli.terminal.options import Kafka, Shape, command
from millstream.cli.terminal.output import Output, cell, painted, print_json, say
from millstream.errors import MillstreamError

State = Literal["ok", "warn", "fail"]
LOW_DISK, NO_DISK = 2_000_000_000, 200_000_000
LOW_MEMORY = 1_500_000_000
_STYLE: dict[State, str] = {"ok": "32", "warn": "33", "fail": "31"}


@dataclass(frozen=True)
class Finding:
    """One line of the report: the check, its result, what to do."""

    check: str
    state: State
    found: str
    do: str | None = None


def register(app: typer.Typer) -> None:
    """Add `doctor`."""
    command(app, "doctor", "millstream doctor", "millstream doctor -o json")(doctor)


def doctor(kafka: Kafka = None, output: Shape = Output.table) -> None:
    """Check whether this machine is ready.

    Checks Python, Java, jars, Spark, folders, disk, memory and Kafka. Changes and downloads
    nothing. Each line is ok, warn or fail and says what to do; one fail makes the exit code 1.
    """
    findings = [finding for check in _checks(kafka) for finding in _run_check(*check)]
    _show(findings, output)
    failed = sum(finding.state == "fail" for finding in findings)
    if failed:
        say(f"{failed} of {len(findings)} checks failed")
        raise typer.Exit(1)


def _show(findings: list[Finding], output: Output) -> None:
    if output is Output.json:
        print_json([asdict(finding) for finding in findings])
        return
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        state = painted(f"{finding.state:<4}", _STYLE[finding.state], sys.stdout)
        advice = f"; {finding.do}" if finding.do else ""
        sys.stdout.write(f"{state}  {finding.check:<{width}}  {cell(finding.found + advice)}\n")


def _checks(kafka: str | None) -> Iterator[tuple[str, Callable[[], Iterator[Finding]]]]:
    yield "python", _python
    yield "java", _java
    yield "jars", _jars
    yield "packages", _packages
    yield "spark", _spark_home
    yield "folders", _folders
    yield "memory", _memory
    yield "kafka", lambda: _kafka(kafka)


def _run_check(name: str, check: Callable[[], Iterator[Finding]]) -> list[Finding]:
    """The findings of a check; a check that raises has failed with that error."""
    try:
        return list(check())
    except MillstreamError as error:
        got = f"{error.need}; got {error.got}" if error.got else error.need
        return [Finding(name, "fail", got, error.do)]


def _python() -> Iterator[Finding]:
    yield Finding("python", "ok", f"{platform.python_version()} on {platform.platform(terse=True)}")


def _java() -> Iterator[Finding]:
    from millstream.toolchain.java import find_java

    java = find_java()
    yield Finding("java", "ok", f"{java.version} at {java.executable} (from {java.origin})")


def _jars() -> Iterator[Finding]:
    from millstream.toolchain.folders import cache_folder
    from millstream.toolchain.jars import CONFS, digest, pins, unfit

    for conf in CONFS:
        wanted = pins(conf)
        missing = unfit(cache_folder() / "jars" / digest() / conf, conf)
        if not missing:
            yield Finding(f"jars of {conf}", "ok", f"{len(wanted)} files, as pinned")
            continue
        megabytes = sum(pin.size for pin in missing) / 1_000_000
        yield Finding(
            f"jars of {conf}",
            "warn",
            f"{len(missing)} of {len(wanted)} files are missing or not as pinned",
            f"they are downloaded at first use ({megabytes:.0f} MB)",
        )


def _packages() -> Iterator[Finding]:
    for line in requires("millstream") or []:
        match = re.fullmatch(r"(pyspark|confluent-kafka|pyarrow|pandas)\b\s*(\S*?)", line)
        if match is None:
            continue
        name, wanted = match.groups()
        found = installed(name)
        if found is None:
            yield Finding(name, "fail", "not installed", f"run pip install '{name}{wanted}'")
        elif wanted.startswith("==") and found != wanted[2:]:
            advice = f"run pip install '{name}{wanted}'"
            yield Finding(name, "fail", f"{found}, needs {wanted[2:]}", advice)
        else:
            yield Finding(name, "ok", found)


def _spark_home() -> Iterator[Finding]:
    home = os.environ.get("SPARK_HOME")
    if home:
        yield Finding(
            "SPARK_HOME",
            "warn",
            f"is set to {home}, so another Spark than the installed one may start",
            "unset it unless that is intended",
        )


def _folders() -> Iterator[Finding]:
    from millstream.toolchain.folders import cache_folder, home_folder

    yield from _disk("cache", cache_folder(), "MILLSTREAM_CACHE")
    yield from _disk("home", home_folder(), "MILLSTREAM_HOME")


def _disk(name: str, folder: Path, variable: str) -> Iterator[Finding]:
    if not os.access(folder, os.W_OK | os.X_OK):
        advice = f"make it writable or set {variable} to another folder"
        yield Finding(name, "fail", f"{folder} is not writable", advice)
        return
    free = shutil.disk_usage(folder).free
    state: State = "fail" if free < NO_DISK else "warn" if free < LOW_DISK else "ok"
    more = None if state == "ok" else f"free some space or set {variable} to another disk"
    yield Finding(name, state, f"{folder} with {_size(free)} free", more)


def _memory() -> Iterator[Finding]:
    import psutil

    free = psutil.virtual_memory().available
    if free < LOW_MEMORY:
        advice = "the broker takes 0.4 GB and Spark 1 GB: close something first"
        yield Finding("memory", "warn", f"{_size(free)} available", advice)
    else:
        yield Finding("memory", "ok", f"{_size(free)} available")


def _kafka(kafka: str | None) -> Iterator[Finding]:
    from millstream.kafka.local.running import running_address
    from millstream.kafka.settings import Cluster

    if kafka is None:
        address = running_address()
        if address is None:
            advice = "start it with `millstream up` or name another with --kafka"
            yield Finding("broker", "warn", "the local broker is not running", advice)
            return
        yield Finding("broker", "ok", f"running at {address}")
    cluster = Cluster.resolve(kafka)
    cluster.ping()
    yield Finding("kafka", "ok", f"{cluster.address} answers")


def _size(count: float) -> str:
    return f"{count / 1_000_000_000:.1f} GB"
