"""Names of pipelines, steps and outputs: what they may be, and that they are told apart."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from millstream.errors import InvalidSpec
from millstream.plan.graph import Output, Read, Stateful, ancestry

if TYPE_CHECKING:
    from collections.abc import Sequence

_PIPELINE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")


def check_pipeline_name(name: str) -> None:
    """Refuse what could not be part of a topic and a folder name."""
    if not isinstance(name, str) or not _PIPELINE.match(name):
        raise InvalidSpec(
            "a pipeline's name needs 1 to 100 letters, digits, dots, dashes or underscores, "
            "beginning with a letter or digit",
            got=repr(name),
        )


def unique(names: Sequence[str], what: str, do: str) -> None:
    """Refuse two things of one kind under one name."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidSpec(f"each {what} needs a name of its own", got=f"{name!r} twice", do=do)
        seen.add(name)


def step_names(outputs: Sequence[Output]) -> dict[Stateful | Read, str]:
    """Each read and stateful step by its name: kind and keys, and its place among equals."""
    names: dict[Stateful | Read, str] = {}
    counts: dict[str, int] = {}
    for node in ancestry(outputs):
        if isinstance(node, Stateful | Read):
            label = node.label if isinstance(node, Stateful) else node.name
            counts[label] = counts.get(label, 0) + 1
            names[node] = label if counts[label] == 1 else f"{label}#{counts[label]}"
    return names


def folder_name(step: str) -> str:
    """A step's name as the name of a folder: readable, safe, never shared by two steps."""
    return "".join(c if c.isalnum() or c in "._-" else f"%{ord(c):x}%" for c in step)
