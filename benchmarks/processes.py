"""Engines in separate processes: started with a spec, read, ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

WHEN_NAMED = ("bytewax", "quix", "pathway")
ENGINES = ("millstream", "millstream-driver", "spark-heap", "spark-rocksdb", "flink-heap",
           "flink-rocksdb", "duckdb", *WHEN_NAMED)  # fmt: skip


def work(
    engine: str,
    name: str,
    address: str,
    spec: dict[str, Any],
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Run one workload on an engine; return its report."""
    with working(engine, name, address, spec, environment) as engine_process:
        return engine_process.result()


class Working:
    """A running engine."""

    def __init__(self, name: str, process: subprocess.Popen[str], errors: IO[str]) -> None:
        self.pid = process.pid
        self._name, self._process, self._errors = name, process, errors

    def await_ready(self) -> None:
        """Wait until it reports that it is running."""
        self._said("ready")

    def stop(self) -> None:
        """Request that it ends its work and reports."""
        assert self._process.stdin is not None
        self._process.stdin.write("stop\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, Any]:
        """Wait for its end; return its figures."""
        figures: dict[str, Any] = self._said("figures")
        self._process.wait()
        return figures

    def _said(self, what: str) -> Any:
        """The next line of JSON with this key; other output is skipped."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(f'{{"{what}"'):
                return json.loads(line)[what]
        self._errors.seek(0)
        raise SystemExit(f"{self._name} ended without its {what}:\n{self._errors.read()[-4000:]}")


@contextmanager
def working(
    engine: str,
    name: str,
    address: str,
    spec: dict[str, Any],
    environment: Mapping[str, str] | None = None,
) -> Iterator[Working]:
    """Run an engine during the block; it is killed if it has not ended by then."""
    module, _, store = engine.partition("-")
    spec = {**spec, "store": store} if store else spec
    from benchmarks import peers

    if module == "flink":
        spec = {**spec, "connector": str(peers.connector())}
    command = [peers.interpreter(module), "-m", f"benchmarks.engines.{module}_engine",
               name, address, json.dumps(spec)]  # fmt: skip
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        try:
            yield Working(f"{engine} at {name}", process, errors)
        finally:
            process.kill()
            process.wait()


def main(works: Mapping[str, Any]) -> None:
    """The main function of an engine's module: `<work> <address> <json>`."""
    name, address, spec = sys.argv[1:]
    print(json.dumps({"figures": works[name](address, json.loads(spec))}), flush=True)


def ready() -> None:
    """Report, in an engine, that it is running."""
    print(json.dumps({"ready": True}), flush=True)


def wait_for_stop() -> None:
    """Wait, in an engine, for the request to end."""
    sys.stdin.readline()
