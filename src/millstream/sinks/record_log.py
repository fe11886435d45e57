"""A folder of numbered records; each number is created once.

Exactly one run can create record n + 1; every other run then finds the number taken. A run that
claims the folder with a record thereby fences earlier runs: their next record meets a taken number.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from typing import TYPE_CHECKING, Any

from millstream.errors import Damaged, Fenced
from millstream.sinks.ownership import claimed_by, fenced
from millstream.toolchain.folders import sync_folder

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.sinks.spec import Opening

FOLDER = "_millstream"
FORMAT = 1
_NAMES = "[0-9]*.json"
Body = dict[str, Any]


class Records:
    """The records of one target, as one run of one job sees them."""

    def __init__(self, target: Path, opening: Opening) -> None:
        self._target, self._opening = target, opening
        self.folder = target / FOLDER
        self.number = 0

    def claim(self, **more: Any) -> list[Body]:
        """Append a record of this run, and return all earlier records.

        Raises:
            AlreadyRunning: the target belongs to another job and may not be taken over.
            Fenced: a newer run of this job has claimed it.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        while True:
            found = read_all(self.folder)
            self._check_owner(found[-1] if found else None)
            self.number = found[-1]["number"] if found else 0
            if self._append({"kind": "run", **more}):
                return found

    def append(self, **body: Any) -> None:
        """Append a record.

        Raises:
            Fenced: another run has created that number.
        """
        if not self._append(body):
            raise self._fenced()

    def check(self) -> None:
        """Raise `Fenced` if another run has appended a record."""
        if self._newest() > self.number:
            raise self._fenced()

    def _append(self, body: Body) -> bool:
        """Create the next record; False if another run has created it or a later one.

        Because old records are removed, a number that was once taken may be free. A record that
        follows a gap was created by a run that was suspended meanwhile, and is removed.
        """
        if self._newest() > self.number:
            return False
        opening, number = self._opening, self.number + 1
        record = {**body, "number": number, "pipeline": opening.pipeline, "job": opening.job,
                  "epoch": opening.epoch}  # fmt: skip
        if not _create(self._path(number), record):
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

    def _check_owner(self, last: Body | None) -> None:
        if last is None:
            return
        opening = self._opening
        if last["job"] == opening.job:
            if last["epoch"] > opening.epoch:
                raise self._fenced()
        elif not opening.take_over:
            raise claimed_by(last["job"], last["pipeline"], str(self._target),
                             other="choose another folder")  # fmt: skip

    def _fenced(self) -> Fenced:
        return fenced(self._opening.job, str(self._target))

    def remove_before(self, number: int) -> None:
        """Remove records below a number that a later full record repeats."""
        for path in self.folder.glob(_NAMES):
            if int(path.stem) < number:
                path.unlink(missing_ok=True)


def read_all(folder: Path) -> list[Body]:
    """Return the records of a folder in order, starting with the last full record.

    Raises:
        Damaged: a record is missing, truncated or changed.
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
        raise _damaged(missing, "no such file, although a later record exists")
    return found[::-1]


def read(path: Path) -> Body:
    """Return the body of one record."""
    try:
        first_line, text = path.read_text(encoding="utf-8").split("\n", 1)
        header = json.loads(first_line)
        text = text.removesuffix("\n")
        if header["format"] == FORMAT and header["sha256"] == _digest(text):
            body: Body = json.loads(text)
            return body
    except (ValueError, KeyError, TypeError):
        pass
    raise _damaged(path, "a truncated or changed record")


def _create(path: Path, body: Body) -> bool:
    """Create a complete file atomically; False if the name is taken."""
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
    sync_folder(path.parent)
    return True


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _damaged(path: Path, got: str) -> Damaged:
    return Damaged(f"the job needs {path} unchanged", got=got,
                   do="restore it from a backup, or write to another folder")  # fmt: skip
