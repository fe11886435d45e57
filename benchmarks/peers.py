"""Engines with their own environments, created once in the cache folder.

They ask for other versions of our libraries; those never meet.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from millstream.toolchain import ivy
from millstream.toolchain.folders import cache_folder

VERSIONS = {"apache-flink": "2.2.1", "bytewax": "0.21.1", "quixstreams": "3.28.1",
            "pathway": "0.33.0"}  # fmt: skip
_NEEDS = {
    "flink": (f"apache-flink=={VERSIONS['apache-flink']}", "psutil"),
    "bytewax": (f"bytewax[kafka]=={VERSIONS['bytewax']}", "orjson", "psutil"),
    "quix": (f"quixstreams=={VERSIONS['quixstreams']}", "psutil"),
    "pathway": (f"pathway=={VERSIONS['pathway']}", "psutil"),
}


def interpreter(module: str) -> str:
    """The Python that runs an engine's module."""
    return str(environment(module) / "bin" / "python") if module in _NEEDS else sys.executable


def hindrance(engine: str) -> str:
    """Why the environment of an engine cannot be created here; empty if it exists."""
    try:
        interpreter(engine.partition("-")[0])
    except subprocess.CalledProcessError as failed:
        said = [line for line in failed.stderr.splitlines() if line.startswith("ERROR: ")]
        return f"cannot be installed: {said[-1].removeprefix('ERROR: ') if said else failed}"
    return ""


def connector() -> Path:
    """Flink's Kafka connector, fetched by its coordinates."""
    folder = environment("flink") / "jars"
    if not folder.exists():
        with tempfile.TemporaryDirectory() as scratch:
            ivy.fetch(Path(__file__).parent / "peers.xml", ["flink"], Path(scratch), print)
            shutil.copytree(Path(scratch) / "flink", folder)
    return next(folder.glob("*.jar"))


def environment(module: str) -> Path:
    """The folder of an engine's environment, created if missing."""
    folder = cache_folder() / "peers" / "-".join((module, *_NEEDS[module][0].split("==")[1:]))
    if not (folder / "made").exists():
        print(f"making an environment for {' and '.join(_NEEDS[module])} …", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        _done(sys.executable, "-m", "venv", str(folder))
        _done(str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check",
              *_NEEDS[module])  # fmt: skip
        (folder / "made").touch()
    return folder


def _done(*command: str) -> None:
    subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True)
