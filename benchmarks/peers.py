"""Peers that need an environment of their own: made once in the cache folder, by their names.

Flink's Python package asks for other versions of our libraries; it never meets them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from millstream.toolchain import ivy
from millstream.toolchain.folders import cache_folder

FLINK = "2.2.1"
_NEEDS = {"flink": (f"apache-flink=={FLINK}", "psutil")}


def interpreter(module: str) -> str:
    """The Python that runs an engine's module."""
    return str(environment(module) / "bin" / "python") if module in _NEEDS else sys.executable


def connector() -> Path:
    """Flink's Kafka connector, fetched by its coordinates."""
    folder = environment("flink") / "jars"
    if not folder.exists():
        with tempfile.TemporaryDirectory() as scratch:
            ivy.fetch(Path(__file__).parent / "peers.xml", ["flink"], Path(scratch), print)
            shutil.copytree(Path(scratch) / "flink", folder)
    return next(folder.glob("*.jar"))


def environment(module: str) -> Path:
    """The folder of a peer's environment, made if it is not there."""
    folder = cache_folder() / "peers" / "-".join((module, *_NEEDS[module][0].split("==")[1:]))
    if not (folder / "made").exists():
        print(f"making an environment for {' and '.join(_NEEDS[module])} …", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin" / "pip", "install", "--quiet",
                        "--disable-pip-version-check", *_NEEDS[module]], check=True)  # fmt: skip
        (folder / "made").touch()
    return folder
