"""YAML with its lines: every complaint about a transcript names the file and the line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class BadTranscript(ValueError):
    """A transcript that cannot mean anything: one sentence, with file and line."""


@dataclass(frozen=True)
class Item:
    """A node of a YAML file, and where it stands."""

    file: Path
    node: yaml.Node

    @property
    def line(self) -> int:
        """Its first line, counted from 1."""
        return int(self.node.start_mark.line) + 1

    def refuse(self, need: str, *, got: object, do: str) -> BadTranscript:
        """The error that says what is wrong here."""
        return BadTranscript(f"{self.file.name}:{self.line} {need}; got {got}; {do}")

    def mapping(self, known: Iterable[str] | None = None) -> dict[str, Item]:
        """Its entries by name; each name once, and only names that are known."""
        if not isinstance(self.node, yaml.MappingNode):
            raise self.refuse("a mapping is needed here", got=self._kind(), do="write name: value")
        entries: dict[str, Item] = {}
        for key, value in self.node.value:
            place = Item(self.file, key)
            name = place.text()
            if name in entries:
                raise place.refuse("a name is needed once", got=f"{name} again", do="join them")
            if known is not None and name not in known:
                raise place.refuse("a known name is needed", got=name,
                                   do=f"write one of {', '.join(known)}")  # fmt: skip
            entries[name] = Item(self.file, value)
        return entries

    def sequence(self) -> list[Item]:
        """Its members."""
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.refuse("a list is needed here", got=self._kind(), do="write - before each")
        return [Item(self.file, member) for member in self.node.value]

    def text(self) -> str:
        """Its text."""
        if not isinstance(self.node, yaml.ScalarNode):
            raise self.refuse("a text is needed here", got=self._kind(), do="write one value")
        return str(self.node.value)

    def number(self) -> int:
        """Its whole number."""
        text = self.text()
        if not text.isdecimal():
            raise self.refuse("a number from 0 is needed here", got=repr(text), do="count again")
        return int(text)

    def yes(self) -> None:
        """Refuse anything but yes: what is not wanted is left out."""
        if self.text() != "yes":
            raise self.refuse("yes is needed here", got=repr(self.text()), do="leave it out for no")

    def lines(self) -> list[tuple[int, str]]:
        """The lines of a block of text with their numbers, empty ones left out."""
        text = self.text()
        first = self.line + (1 if self._block() else 0)
        return [(first + n, line) for n, line in enumerate(text.split("\n")) if line.strip()]

    def is_mapping(self) -> bool:
        """Whether it has entries."""
        return isinstance(self.node, yaml.MappingNode)

    def is_list(self) -> bool:
        """Whether it has members."""
        return isinstance(self.node, yaml.SequenceNode)

    def _block(self) -> bool:
        return isinstance(self.node, yaml.ScalarNode) and self.node.style in ("|", ">")

    def _kind(self) -> str:
        if self.is_mapping():
            return "a mapping"
        return "a list" if self.is_list() else "a text"


def documents(file: Path) -> list[Item]:
    """The documents of a file."""
    try:
        nodes = list(yaml.compose_all(file.read_text(), Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise BadTranscript(
            f"{file.name}:{line} YAML is needed; got {error.problem}; correct it"
        ) from error
    return [Item(file, node) for node in nodes]
