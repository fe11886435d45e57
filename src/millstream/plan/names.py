"""Names of pipelines, steps and outputs: which are valid, and that they are unique."""

from __future__ import annotations

import re
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING

from millstream.errors import InvalidSpec
from millstream.plan.graph import Output, Read, Stateful, ancestry

if TYPE_CHECKING:
    from collections.abc import Sequence

_PIPELINE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
_LONGEST_NAME = 100
_LONGEST_FOLDER = 200


def check_pipeline_name(name: str) -> None:
    """Refuse a name that cannot be part of topic and folder names."""
    if not isinstance(name, str) or not _PIPELINE.match(name):
        raise InvalidSpec(
            "a pipeline's name needs 1 to 100 letters, digits, dots, dashes or underscores, "
            "beginning with a letter or digit",
            got=repr(name),
            do='write Pipeline("hot-auctions", …)',
        )


def check_given_name(name: str | None, what: str) -> None:
    """Refuse an empty or very long name; None means that a name will be generated."""
    if name is None:
        return
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST_NAME:
        raise InvalidSpec(
            f"the name of {what} needs 1 to {_LONGEST_NAME} characters",
            got=repr(name),
            do='write name="some-name", or leave it out',
        )


def unique(names: Sequence[str], what: str, do: str) -> None:
    """Refuse names that occur twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidSpec(f"each {what} needs a unique name", got=f"{name!r} twice", do=do)
        seen.add(name)


def distinct_names(outputs: Sequence[Output]) -> tuple[Output, ...]:
    """The outputs by name; if sinks of different kinds share one, the later one also names its
    kind: `hot`, `hot-postgres`.

    Two of the same kind keep their name, and `unique` refuses them.
    """
    kinds: dict[str, str] = {}
    named = []
    for output in outputs:
        kind, name = type(output.sink).__name__.lower(), output.name
        if name == output.sink.name and kinds.get(name, kind) != kind:
            name = f"{name}-{kind}"
        kinds.setdefault(name, kind)
        named.append(output if name == output.name else replace(output, name=name))
    return tuple(named)


def step_names(outputs: Sequence[Output]) -> dict[Stateful | Read, str]:
    """The name of each read and each stateful step.

    A name the user chose stays as it is. Others are kind and keys, with a number from the
    second one of a name: `tumbling(auction)`, `tumbling(auction)#2`.
    """
    nodes = list(ancestry(outputs))
    given = [node.label for node in nodes if isinstance(node, Stateful) and node.given]
    unique(given, "step", "give each step a name= of its own")
    names: dict[Stateful | Read, str] = {}
    sources: set[str] = set()
    steps = set(given)
    for node in nodes:
        if isinstance(node, Read):
            names[node] = _free(node.name, sources)
        elif isinstance(node, Stateful):
            names[node] = node.label if node.given else _free(node.label, steps)
    return names


def _free(label: str, taken: set[str]) -> str:
    """The label, or the label with the next free number; marks it as taken."""
    name, place = label, 1
    while name in taken:
        place += 1
        name = f"{label}#{place}"
    taken.add(name)
    return name


def folder_name(step: str) -> str:
    """A step's name as a folder name: readable, safe and unique."""
    name = "".join(
        c if (c.isascii() and c.isalnum()) or c in "_-" or (c == "." and place) else f"%{ord(c):x}%"
        for place, c in enumerate(step)
    )
    if len(name) <= _LONGEST_FOLDER:
        return name
    return f"{name[:_LONGEST_FOLDER]}%{blake2b(step.encode(), digest_size=8).hexdigest()}"
