"""Small durable records: written once, checked when read.

A record is two lines of JSON: a header with format version, kind and checksum, and the
body. It appears under its name complete or not at all; a second writer of the same name gets
False.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO

from millstream.engine.checkpoint.fault_points import reached
from millstream.errors import Damaged, MillstreamError
from millstream.toolchain.folders import sync_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FORMAT = 1
_DRAFT_SECONDS = 600.0


def write_new(path: Path, kind: str, body: dict[str, Any]) -> bool:
    """Write a record under an unused name; False if the name is taken.

    When it returns, file and folder are on disk. A writer that is killed leaves a draft, whose
    name begins with a dot, so that no reader takes it for a record.
    """
    return create(path, _encoded(kind, body), f"in the middle of writing {kind}")


def create(path: Path, content: bytes, point: str) -> bool:
    """Write a file that appears complete or not at all; False if its name is taken.

    `point` is the fault point between its content and its name.
    """
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        _write(draft, content)
        reached(point, 0)
        try:
            os.link(draft, path)
        except (FileExistsError, FileNotFoundError):  # taken, or so slow that the draft was removed
            return False
    except OSError as error:
        raise write_failed(path, error) from error
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(path.parent)
    return True


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write under an unused name, which is on disk after the block; on an error of the
    disk it is removed."""
    try:
        with path.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise write_failed(path, error) from error
    sync_folder(path.parent)


def replace(path: Path, kind: str, body: dict[str, Any]) -> None:
    """Replace a record atomically."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        _write(draft, _encoded(kind, body))
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise write_failed(path, error) from error
    sync_folder(path.parent)


def _encoded(kind: str, body: dict[str, Any]) -> bytes:
    text = json.dumps(body, separators=(",", ":"), sort_keys=True)
    header = {"format": FORMAT, "kind": kind, "sha256": _digest(text)}
    return f"{json.dumps(header)}\n{text}\n".encode()


def _write(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sweep_drafts(folder: Path) -> None:
    """Remove drafts older than ten minutes, which killed writers have left."""
    for draft in folder.glob(".*"):
        with suppress(FileNotFoundError):
            if time.time() - draft.stat().st_mtime > _DRAFT_SECONDS:
                draft.unlink()


def read(path: Path, kind: str) -> dict[str, Any]:
    """The body of a record.

    Raises:
        Damaged: it is missing, truncated, changed, of another kind or of an unknown format.
    """
    try:
        header_text, text = path.read_text(encoding="utf-8").split("\n", 1)
        header = json.loads(header_text)
        text = text.removesuffix("\n")
        found = (header["format"], header["kind"], header["sha256"])
    except FileNotFoundError as error:
        raise damaged(path, "no such file") from error
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(path, "a truncated or changed record") from error
    if found[0] != FORMAT:
        raise damaged(path, f"format {found[0]}; this version reads {FORMAT}")
    if found[1] != kind or found[2] != _digest(text):
        raise damaged(path, "a record whose checksum does not match")
    body: dict[str, Any] = json.loads(text)
    return body


def damaged(path: Path, got: str) -> Damaged:
    """The error for a damaged file."""
    back = (path.suffix in (".intent", ".prepared", ".commit", ".arrow")
            or "segments" in (path.name, path.parent.name))  # fmt: skip
    return Damaged(
        f"the checkpoint needs {path.name} to be intact",
        got=got,
        do=f"restore {path} from a copy, "
        + ("rewind to a commit before it with `millstream rewind`, " if back else "")
        + "or start with a fresh --checkpoint",
    )


def write_failed(path: Path, error: OSError) -> MillstreamError:
    """The error for a file that could not be written."""
    return MillstreamError(
        f"writing {path} needs a writable disk with free space",
        got=str(error.strerror or error),
        do="free some space or fix the permissions, then start again: nothing is lost",
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
