"""Updates the pins of the jars after `jars.xml` changed: `python -m millstream.toolchain.relock`.

It writes the jars that the registry has now to `jars.lock`; review the change like any other.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from millstream.errors import MillstreamError
from millstream.toolchain.ivy import fetch
from millstream.toolchain.jars import CONFS, LOCK, WANTED, digest, sha256


def relock() -> int:
    """Fetch every jar of `jars.xml` and write its pin; return their number."""
    with tempfile.TemporaryDirectory() as scratch:
        fetch(WANTED, CONFS, Path(scratch), _say)
        rows = [
            f"{conf} {jar.name} {sha256(jar)} {jar.stat().st_size}"
            for conf in CONFS
            for jar in sorted((Path(scratch) / conf).glob("*.jar"))
        ]
    LOCK.write_text("\n".join([f"# jars.xml {digest()}", "# conf name sha256 size", *rows, ""]))
    return len(rows)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    try:
        _say(f"pinned {relock()} jars in {LOCK}")
    except MillstreamError as error:
        _say(str(error))
        sys.exit(error.exit_code)
