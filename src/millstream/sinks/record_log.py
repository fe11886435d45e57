"""A row of small records in a folder, each made once under the next number.

Whoever makes number n + 1 first has spoken; the other reads what was said. So a run that takes
a place by a record of its own shuts earlier runs out: their next record meets a taken number.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from typing import TYPE_CHECKING, Any

from millstream.errors import AlreadyRunning, Damaged, Fenced

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.sinks.spec import Opening

FOLDER = "_millstream"
FORMAT = 1
_NAMES = "[0-9]*.json"
Body = dict[str, Any]


class Records:
    """The records of one place, seen by one run of one job."""

    def __init__(self, place: Path, opening: Opening) -> None:
        self._place, self._opening = place, opening
        self.folder = place / FOLDER
        self.number = 0

    def take(self, **more: Any) -> list[Body]:
        """Put this run's own record at the end; gives all records before it.

        Raises:
            AlreadyRunning: the place is another job's, and it may not be taken over.
            Fenced: a newer run of this job has taken it.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        while True:
            found = read_all(self.folder)
            self._refuse(found[-1] if found else None)
            self.number = found[-1]["number"] if found else 0
            if self._made({"kind": "run", **more}):
                return found

    def add(self, **body: Any) -> None:
        """The next record.

        Raises:
            Fenced: somebody else has made it.
        """
        if not self._made(body):
            raise self.fenced()

    def check(self) -> None:
        """Raise Fenced if somebody else has added a record."""
        if self._newest() > self.number:
            raise self.fenced()

    def _made(self, body: Body) -> bool:
        """Make the next record; False if somebody else has, at that number or further on.

        Old records are removed, so a number may be free that was taken: a record that stands
        behind a gap is one of a run that slept, and goes.
        """
        if self._newest() > self.number:
            return False
        opening, number = self._opening, self.number + 1
        whole = {**body, "number": number, "pipeline": opening.pipeline, "job": opening.job,
                 "epoch": opening.epoch}  # fmt: skip
        if not _write_new(self._path(number), whole):
            return False
        if self._newest() > number:
            if not self._path(number + 1).exists():
                self._path(number).unlink(missing_ok=True)
            return False
        self.number = number
        return True

    def _newest(self) -> int:
        return max((int(path.stem) for path in self.folder.glob(_NAMES)), default=0)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:010d}.json"

    def _refuse(self, last: Body | None) -> None:
        if last is None:
            return
        opening = self._opening
        if last["job"] != opening.job:
            if not opening.take_over:
                raise AlreadyRunning(
                    f"one job at a time writes to {self._place}",
                    got=f"job {last['job'][:8]} of the pipeline {last['pipeline']!r}, "
                    "with another checkpoint",
                    do="name another folder, or say --take-over to end that job's writing",
                )
        elif last["epoch"] > opening.epoch:
            raise self.fenced()

    def fenced(self) -> Fenced:
        """The sentence of a run that has been shut out."""
        return Fenced(
            f"the job {self._opening.job[:8]} needs to be the only one writing to {self._place}",
            got="a newer run, which has taken it over",
            do="let that one work; this one stops, and nothing it had begun is visible",
        )

    def forget(self, before: int) -> None:
        """Remove records below a number: what they say is said again later."""
        for path in self.folder.glob(_NAMES):
            if int(path.stem) < before:
                path.unlink(missing_ok=True)


def read_all(folder: Path) -> list[Body]:
    """The records of a folder, in order, from the last one that says everything before it.

    Raises:
        Damaged: one of them is missing, cut short or changed.
    """
    found: list[Body] = []
    for path in sorted(folder.glob(_NAMES), reverse=True):
        body = read(path)
        if found and body["number"] != found[-1]["number"] - 1:
            break
        found.append(body)
        if body.get("full") is not None:
            break
    if found and found[-1]["number"] != 1 and found[-1].get("full") is None:
        missing = folder / f"{found[-1]['number'] - 1:010d}.json"
        raise _damaged(missing, "no such file, though a later one is there")
    return found[::-1]


def read(path: Path) -> Body:
    """One record's body."""
    try:
        header, text = path.read_text(encoding="utf-8").split("\n", 1)
        told = json.loads(header)
        text = text.removesuffix("\n")
        if told["format"] == FORMAT and told["sha256"] == _digest(text):
            body: Body = json.loads(text)
            return body
    except (ValueError, KeyError, TypeError):
        pass
    raise _damaged(path, "a record cut short or changed")


def _write_new(path: Path, body: Body) -> bool:
    """Make a file under a free name, whole or not at all; False if the name is taken."""
    text = json.dumps(body, separators=(",", ":"), sort_keys=True)
    header = json.dumps({"format": FORMAT, "sha256": _digest(text)})
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with draft.open("x", encoding="utf-8") as file:
            file.write(f"{header}\n{text}\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    sync(path.parent)
    return True


def sync(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _damaged(path: Path, got: str) -> Damaged:
    return Damaged(f"the job needs {path} as it was written", got=got,
                   do="restore it from a copy, or write to another folder")  # fmt: skip
