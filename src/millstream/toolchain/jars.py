"""The jars: fetched once, pinned by hash, and checked before each use.

    jars.xml   the required jars, by coordinates
    jars.lock  the pins: name, SHA-256 and size of each file
    <cache>/jars/<digest of jars.xml>/<conf>/*.jar, and `checked`: sizes and times when last hashed

Jars appear by an atomic rename, so a reader never finds an incomplete jar. A jar that is missing,
truncated or changed is fetched again; if the fetched jar does not match its pin, it is refused.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from millstream.errors import SetupFailed
from millstream.toolchain.folders import cache_folder, written_in
from millstream.toolchain.ivy import QUIET, fetch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Conf = Literal["spark", "broker"]
CONFS: tuple[Conf, ...] = ("spark", "broker")
WANTED = Path(__file__).with_name("jars.xml")
LOCK = Path(__file__).with_name("jars.lock")
_CHECKED = "checked"


@dataclass(frozen=True, slots=True)
class Pin:
    """The pin of one jar."""

    conf: str
    name: str
    sha256: str
    size: int


def jars(conf: Conf, *, say: Callable[[str], None] | None = None) -> tuple[Path, ...]:
    """Return the jars of one class path, verified, in the order of their names.

    They are fetched on first use: then `say` is called with the progress every few seconds.
    Afterwards no network is needed.

    Raises:
        SetupFailed: they are missing and cannot be fetched, or do not match their pins.
    """
    return every_jar((conf,), say=say)[conf]


def every_jar(
    confs: Sequence[Conf] = CONFS, *, say: Callable[[str], None] | None = None
) -> dict[Conf, tuple[Path, ...]]:
    """As `jars`, for several class paths; all missing jars are fetched at once."""
    folder = cache_folder() / "jars" / digest()
    if any(unfit(folder / conf, conf) for conf in confs):
        with written_in(folder):
            _fetch_unfit(folder, confs, say or _silent)
    return {conf: tuple(folder / conf / pin.name for pin in pins(conf)) for conf in confs}


def digest() -> str:
    """A short digest of `jars.xml`, which names a set of jars."""
    return hashlib.sha256(WANTED.read_bytes()).hexdigest()[:16]


def pins(conf: Conf) -> list[Pin]:
    """The pinned jars of a class path, by name."""
    rows = (line.split() for line in LOCK.read_text().splitlines() if not line.startswith("#"))
    found = [Pin(row[0], row[1], row[2], int(row[3])) for row in rows]
    return sorted((pin for pin in found if pin.conf == conf), key=lambda pin: pin.name)


def unfit(folder: Path, conf: Conf) -> list[Pin]:
    """The jars of `conf` that are missing or changed in `folder`.

    A file with the size and time of its last hash is assumed to be unchanged; others are hashed.
    """
    checked = _checked(folder)
    now: dict[str, list[int]] = {}
    bad = []
    for pin in pins(conf):
        file = folder / pin.name
        mark = _mark(file)
        if mark is None or mark[0] != pin.size:
            bad.append(pin)
        elif checked.get(pin.name) == mark or sha256(file) == pin.sha256:
            now[pin.name] = mark
        else:
            bad.append(pin)
    if now != checked and not bad:
        with suppress(OSError):
            _replace(folder / _CHECKED, json.dumps(now, indent=0).encode())
    return bad


def sha256(file: Path) -> str:
    """The SHA-256 of a file in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _fetch_unfit(folder: Path, confs: Sequence[Conf], say: Callable[[str], None]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder, say), _scratch(folder) as scratch:
        lacking = [conf for conf in confs if unfit(folder / conf, conf)]
        if not lacking:
            return
        started = time.monotonic()
        say(f"fetching jars: {' and '.join(lacking)}, {_megabytes(lacking)} MB, once")
        fetch(WANTED, lacking, scratch, say)
        for conf in lacking:
            _accept(scratch / conf, folder / conf, conf)
        say(f"fetching jars: done in {time.monotonic() - started:.0f} s")


def _accept(fetched: Path, folder: Path, conf: Conf) -> None:
    wanted = {pin.name: pin for pin in pins(conf)}
    came = {file.name for file in fetched.glob("*.jar")}
    if came != set(wanted):
        odd = sorted(came ^ set(wanted))
        raise _refused(conf, f"{len(came)} of {len(wanted)} files, with a difference in {odd[0]}")
    for name, pin in wanted.items():
        if (fetched / name).stat().st_size != pin.size or sha256(fetched / name) != pin.sha256:
            raise _refused(conf, f"other bytes in {name}")
    folder.mkdir(exist_ok=True)
    for name in wanted:
        (fetched / name).replace(folder / name)
    unfit(folder, conf)


def _refused(conf: Conf, got: str) -> SetupFailed:
    return SetupFailed(
        f"the jars of {conf} need to match jars.lock",
        got=f"{got} from the registry",
        do="run it again; if it fails again, check your mirror or proxy (nothing was stored)",
    )


@contextmanager
def _alone(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Let one process fetch; the others wait for it and then find the jars."""
    with (folder / "lock").open("w") as lock:
        spoken = time.monotonic()
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.1)
            if time.monotonic() - spoken >= QUIET:
                spoken = time.monotonic()
                say("fetching jars: waiting for another process that fetches them")
        yield


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    for left in folder.glob("fetching-*"):  # left by a killed process; this process has the lock
        shutil.rmtree(left, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix="fetching-", dir=folder))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _checked(folder: Path) -> dict[str, list[int]]:
    try:
        marks = json.loads((folder / _CHECKED).read_text())
    except (OSError, ValueError):
        return {}
    return marks if isinstance(marks, dict) else {}


def _mark(file: Path) -> list[int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns]


def _replace(file: Path, content: bytes) -> None:
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    fresh.write_bytes(content)
    fresh.replace(file)


def _megabytes(confs: Sequence[Conf]) -> int:
    return round(sum(pin.size for conf in confs for pin in pins(conf)) / 1_000_000)


def _silent(line: str) -> None:
    """Report no progress."""
