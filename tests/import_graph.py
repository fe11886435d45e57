"""Which module imports which, with imports inside functions counted, and the cycles among them.

Imports under `if TYPE_CHECKING:` are ignored: they do not happen at run time.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

Graph = dict[str, set[str]]


def import_graph(folder: Path, files: Iterable[Path]) -> Graph:
    """The modules among `files`, below `folder`, and those of them that each one imports."""
    paths = {_dotted(file, folder): file for file in files}
    return {
        name: {
            found
            for node in _running(ast.parse(file.read_text()))
            for found in _targets(node, file.relative_to(folder).parent.parts, paths)
            if found in paths and found != name
        }
        for name, file in paths.items()
    }


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The groups of modules that import each other: those in which each one reaches all others."""
    reached = {module: _reached(graph, module) for module in graph}
    groups = {
        tuple(sorted({module, *(m for m in reached[module] if module in reached[m])}))
        for module in graph
    }
    return [list(group) for group in sorted(groups) if len(group) > 1]


def _reached(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def _dotted(file: Path, folder: Path) -> str:
    parts = file.relative_to(folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below, except what stands under `if TYPE_CHECKING:`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield other
                yield from _running(other)
            continue
        yield child
        yield from _running(child)


def _targets(node: ast.AST, package: tuple[str, ...], known: Iterable[str]) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=module, names=names, level=level):
            above = package[: len(package) + 1 - level] if level else ()
            base = ".".join([*above, *([module] if module else [])])
            yield from (f"{base}.{a.name}" if f"{base}.{a.name}" in known else base for a in names)
        case ast.Call(args=[ast.Constant(value=str(name)), *_]) if _named(node) == "import_module":
            yield name


def _named(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]
