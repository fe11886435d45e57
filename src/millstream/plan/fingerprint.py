"""The fingerprint of a pipeline: a digest per step, output and function, compared with later ones.

Two pipelines with the same fingerprint give the same results from the same input. Options that
only decide how they run (`batch`, `history`, `delivery`, alerts) are left out, and so are the rows
of a `Memory`, which are input. Functions are compared by their bytecode.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from dataclasses import fields, is_dataclass
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from millstream.plan.explain.explain import step_text
from millstream.plan.graph import Node, Read, ancestry
from millstream.schema import Schema
from millstream.sources.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.api.pipeline import Pipeline

Fingerprint = dict[str, str]
PYTHON, ORDER = "python", "the order of its steps"
_FUNCTION = "the function "
_PLAIN = (bool, int, float, str, bytes, type(None))
_STORED_NAMES = {  # of classes that had another name when earlier versions stored fingerprints
    "CurrentRows": "Upheld",
    "TableAggregated": "Tallied",
    "TableChanges": "Told",
    "TableWhere": "KeptWhere",
}


def fingerprint(pipeline: Pipeline) -> Fingerprint:
    """The digests, by the text of each part."""
    nodes = list(ancestry(pipeline.outputs))
    labels = _unique_labels([step_text(node) for node in nodes])
    numbers = {id(node): place for place, node in enumerate(nodes)}
    reader = _Reader()
    parts = {label: _digest(reader.value(node)) for label, node in zip(labels, nodes, strict=True)}
    for output in pipeline.outputs:
        sink = [reader.value(output.sink), list(output.keys), output.table]
        parts[f"output {output.name}"] = _digest(sink)
    parts["bad rows"] = _digest([pipeline.on_bad, reader.value(pipeline.dead)])
    order = [[label, [numbers[id(below)] for below in node.inputs]]
             for label, node in zip(labels, nodes, strict=True)]  # fmt: skip
    ends = [[output.name, numbers[id(output.input)]] for output in pipeline.outputs]
    return {
        PYTHON: str(sys.implementation.cache_tag),
        **parts,
        ORDER: _digest([order, ends]),
        **{f"{_FUNCTION}{name}": digest for name, digest in reader.functions.items()},
    }


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The parts that are new, changed or gone; functions only under the same Python."""
    same_python = before.get(PYTHON) == now.get(PYTHON)
    found = []
    for label in dict.fromkeys([*now, *before]):
        skipped = label in (PYTHON, ORDER) or (label.startswith(_FUNCTION) and not same_python)
        if skipped or before.get(label) == now.get(label):
            continue
        word = "changed" if label in before and label in now else "new" if label in now else "gone"
        found.append(f"{label} ({word})")
    if not found and before.get(ORDER) != now.get(ORDER):
        return [ORDER]
    return found


def _unique_labels(labels: list[str]) -> list[str]:
    """The labels, numbered where several are equal."""
    seen: Counter[str] = Counter()
    unique = []
    for label in labels:
        seen[label] += 1
        unique.append(label if seen[label] == 1 else f"{label} (number {seen[label]})")
    return unique


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


class _Reader:
    """Values of a plan as JSON; also collects the functions they refer to."""

    def __init__(self) -> None:
        self.functions: dict[str, str] = {}
        self._open: list[object] = []

    def value(self, value: Any) -> Any:
        """A value as JSON; a value inside itself is an ellipsis."""
        if isinstance(value, _PLAIN) or value is None:
            return repr(value)
        if any(value is outer for outer in self._open):
            return "…"
        self._open.append(value)
        try:
            return self._nested(value)
        finally:
            self._open.pop()

    def _nested(self, value: Any) -> Any:
        if isinstance(value, Schema):
            return value.ddl()
        if isinstance(value, Memory):
            return ["Memory", value.name]
        if isinstance(value, dict):
            return [[self.value(key), self.value(part)] for key, part in value.items()]
        if isinstance(value, list | tuple):
            return [self.value(part) for part in value]
        if isinstance(value, set | frozenset):
            return sorted(json.dumps(self.value(part)) for part in value)
        if isinstance(value, FunctionType | MethodType | partial):
            return self._function(value)
        if is_dataclass(value) and not isinstance(value, type):
            return self._fields(value)
        return self._other(value)

    def _fields(self, value: Any) -> Any:
        """A frozen value by its fields; fields hidden from its repr (secrets) do not count."""
        shown = [
            [field.name, self.value(part)]
            for field in fields(value)
            if field.repr and not _are_nodes(part := getattr(value, field.name))
        ]
        if isinstance(value, Read) and isinstance(value.source, Memory):
            shown.append(["columns", value.source.row_schema().ddl()])
        if isinstance(parsed := getattr(value, "_parsed", None), Schema):
            shown.append(["columns", parsed.ddl()])  # of a file that `schema` may name
        name = type(value).__qualname__
        return [_STORED_NAMES.get(name, name), shown, _named(value)]

    def _function(self, function: Any) -> Any:
        if isinstance(function, partial):
            return [self.value(part) for part in (function.func, function.args, function.keywords)]
        if isinstance(function, MethodType):
            return [self.value(function.__func__), self.value(function.__self__)]
        name = function.__qualname__
        digest = _digest(self._compiled(function))
        if self.functions.setdefault(name, digest) != digest:
            name = f"{name} ({digest[:6]})"
            self.functions[name] = digest
        return ["function", name]

    def _compiled(self, function: FunctionType) -> Any:
        cells = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
        named = [[name, self._global(function, name)] for name in sorted(_names(function.__code__))]
        return [
            self._code(function.__code__),
            self.value(function.__defaults__),
            self.value(function.__kwdefaults__),
            [self.value(cell) for cell in cells],
            named,
        ]

    def _global(self, function: FunctionType, name: str) -> Any:
        """What a global name of a function refers to: a helper or constant of its module."""
        found = function.__globals__.get(name)
        if isinstance(found, FunctionType):
            return self.value(found) if found.__module__ == function.__module__ else found.__name__
        return repr(found) if isinstance(found, _PLAIN) else type(found).__qualname__

    def _code(self, code: CodeType) -> Any:
        constants = [self._code(part) if isinstance(part, CodeType) else self.value(part)
                     for part in code.co_consts]  # fmt: skip
        return [code.co_code.hex(), constants, list(code.co_names), list(code.co_varnames),
                list(code.co_freevars)]  # fmt: skip

    def _other(self, value: Any) -> Any:
        """Any other object: its type and the functions it holds; other attributes may change."""
        if isinstance(value, type | ModuleType):
            return value.__name__
        held = vars(value) if hasattr(value, "__dict__") else {}
        parts = [[name, self.value(part)] for name, part in sorted(held.items())
                 if isinstance(part, FunctionType | MethodType)]  # fmt: skip
        text = repr(value)
        return [type(value).__qualname__, parts, _named(value), "" if " at 0x" in text else text]


def _named(value: object) -> list[str]:
    """The names of a source or sink."""
    texts = (getattr(value, word, None) for word in ("name", "system"))
    return [text for text in texts if isinstance(text, str)]


def _are_nodes(value: object) -> bool:
    """Whether a field refers to other steps, which have digests of their own."""
    if isinstance(value, tuple):
        return bool(value) and all(_are_nodes(part) for part in value)
    return isinstance(value, Node)


def _names(code: CodeType) -> set[str]:
    inner = (part for part in code.co_consts if isinstance(part, CodeType))
    return set(code.co_names).union(*(_names(part) for part in inner))


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False
