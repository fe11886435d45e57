"""Queries on a job's state, as of its last commit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.errors import InvalidInput
from millstream.jobs.registry import JobRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.engine.inspection.inspect import States
    from millstream.jobs.folders import StackFolder

_TRIES = 5


def state(stack: StackFolder, name: str) -> dict[str, Any]:
    """Return the size of each step's state as of the job's last commit.

    Raises:
        NotFound: no such job, or it has no checkpoint yet.
    """
    from millstream.engine.inspection.inspect import open_checkpoint, states

    found = states(open_checkpoint(_checkpoint(stack, name)))
    return {
        "job": name,
        "batch": found.batch,
        "at": _text(found.at),
        "steps": _plain(found.steps),
    }


def state_of_key(stack: StackFolder, name: str, step: str, key: Sequence[str]) -> dict[str, Any]:
    """Return one step's state for one key; `key` has `NAME=VALUE` for each key column.

    A step with a single key column accepts the bare value too.

    Raises:
        NotFound: no such job or step.
        InvalidInput: these are not the step's key columns.
    """
    from millstream.engine.inspection.inspect import of_key, open_checkpoint, spec_on_disk, states

    checkpoint = open_checkpoint(_checkpoint(stack, name))
    known = [row["step"] for row in states(checkpoint).steps]
    wanted = pairs(key, spec_on_disk(checkpoint, step)["keys"] if step in known else [])
    found = _while_it_runs(lambda: of_key(checkpoint, step, wanted))
    return {"job": name, "step": step, "key": wanted, "batch": found.batch, "at": _text(found.at),
            "rows": _plain(found.steps)}  # fmt: skip


def _while_it_runs(ask: Callable[[], States]) -> States:
    """Retry when a running job has deleted a file between its listing and its reading."""
    for _ in range(_TRIES):
        try:
            return ask()
        except FileNotFoundError:
            continue
    return ask()


def pairs(texts: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Parse `NAME=VALUE` texts into a mapping.

    >>> pairs(["auction=7"], ["auction"]), pairs(["a=b"], ["page"])
    ({'auction': '7'}, {'page': 'a=b'})
    """
    wanted: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if len(names) == 1 and (not equals or name not in names):
            name, value = names[0], text
        elif not equals:
            raise InvalidInput(f"key needs NAME=VALUE for {', '.join(names)}", got=repr(text))
        if name in wanted:
            raise InvalidInput("key needs each name once", got=repr(text))
        wanted[name] = value
    return wanted


def _checkpoint(stack: StackFolder, name: str) -> Path:
    with JobRegistry(stack.registry, read_only=True) as registry:
        return Path(registry.job(name).checkpoint)


def _plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: _text(value) for name, value in row.items()} for row in rows]


def _text(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
