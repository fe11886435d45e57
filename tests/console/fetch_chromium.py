"""`make browser` without root: a Chromium from npm in the cache folder, with its libraries."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.console.browsing import cached_chromium

if TYPE_CHECKING:
    from types import ModuleType

PACKAGE = "@sparticuz/chromium@147.0.0"
_UNPACK = """
const { createReadStream, createWriteStream } = require("node:fs");
const { createBrotliDecompress } = require("node:zlib");
const { pipeline } = require("node:stream/promises");
const [from, to] = process.argv.slice(1);
const unpacked = ([name, made]) => pipeline(
  createReadStream(`${from}/${name}.br`),
  createBrotliDecompress(),
  createWriteStream(`${to}/${made}`),
);
const swift = "swiftshader.tar", libraries = "al2023.tar";
Promise.all([["chromium", "program"], [libraries, libraries], [swift, swift]].map(unpacked))
  .catch((error) => { console.error(String(error)); process.exit(1); });
"""
_STARTER = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "$here/program" "$@"
"""


def fetch() -> Path:
    """Install the browser atomically; return its path."""
    place = cached_chromium()
    if place.exists():
        return place
    place.parent.parent.mkdir(parents=True, exist_ok=True)
    node, npm = _build_hook()._node()
    path = os.pathsep.join([str(Path(node).parent), os.environ.get("PATH", "")])
    with tempfile.TemporaryDirectory(dir=place.parent.parent) as folder:
        work, made = Path(folder), Path(folder) / "chromium"
        made.mkdir()
        _run([*npm, "install", "--ignore-scripts", "--no-fund", "--no-audit", "--no-save",
              "--prefix", str(work), PACKAGE], path)  # fmt: skip
        packed = work / "node_modules" / "@sparticuz" / "chromium" / "bin"
        _run([node, "-e", _UNPACK, str(packed), str(made)], path)
        for archive in ("al2023.tar", "swiftshader.tar"):
            _run(["tar", "-xf", str(made / archive), "-C", str(made)], path)
            (made / archive).unlink()
        (made / "chromium").write_text(_STARTER)
        for program in ("chromium", "program"):
            (made / program).chmod(0o755)
        made.rename(place.parent)
    return place


def _build_hook() -> ModuleType:
    """The build hook, which finds Node."""
    file = Path(__file__).parent.parent.parent / "hatch_build.py"
    spec = importlib.util.spec_from_file_location("hatch_build", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _run(command: list[str], path: str) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PATH": path}
    )
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise SystemExit(f"{PACKAGE} needs to be fetched once; got {said[-1:]}; check the network")


if __name__ == "__main__":
    sys.stdout.write(f"{fetch()}\n")
