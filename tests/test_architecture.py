"""Rules beyond the linter, each a function from files to offences.

Every rule is tested twice: on the repository, where it must find nothing, and on a bad example,
where it must find an offence.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.import_graph import cycles, import_graph

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src"

LONGEST, MOST_MODULES = 400, 14
# Modules of more lines, each with the reason why it is one.
LONG: dict[str, str] = {}
LONG_ENOUGH = 350  # below this many lines a reason is stale
# Packages whose import cycles are still being removed.
UNFINISHED = ("millstream.api", "millstream.sinks")
MOST_POSITIONAL, MOST_PARAMETERS, MOST_OPTIONS = 6, 12, 20
FORBIDDEN = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"}
HEAVY = {"pyspark", "pyarrow", "numpy", "pandas", "polars", "sqlglot", "confluent_kafka",
         "starlette"}  # fmt: skip
MADE = {".git", ".venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".import_linter_cache",
        ".hypothesis", ".pytest_cache", "dist", "build", "node_modules"}  # fmt: skip
MACHINE = re.compile(
    r"(?<![\w.~$}/-])/(?:work|tmp|root|home/\w+|Users/\w+)/[\w.]"
    r"|\b(?:repo1?\.maven\.(?:org|apache\.org)|(?:www\.)?pypi\.(?:org|python\.org)"
    r"|files\.pythonhosted\.org|registry\.(?:npmjs\.org|yarnpkg\.com))\b"
)


def sources(folder: Path) -> Iterator[Path]:
    yield from sorted(file for file in folder.rglob("*.py") if not MADE & set(file.parts))


def long_files(folder: Path) -> list[str]:
    """Long modules without a reason in `LONG`, and stale reasons."""
    counts = {str(f.relative_to(folder)): len(f.read_text().splitlines()) for f in sources(folder)}
    return [
        f"{file}: {count} lines"
        for file, count in counts.items()
        if count > LONGEST and not LONG.get(file)
    ] + [f"{file}: no longer long" for file in LONG if counts.get(file, 0) < LONG_ENOUGH]


def crowded_folders(folder: Path) -> list[str]:
    """Folders with too many modules; `__init__` counts."""
    return [
        f"{package}: {count} modules"
        for package in sorted({file.parent for file in sources(folder)})
        if (count := len(list(package.glob("*.py")))) > MOST_MODULES
    ]


def import_cycles(folder: Path) -> list[str]:
    """Modules that import each other, imports inside functions included."""
    return [" ⇄ ".join(cycle) for cycle in cycles(import_graph(folder, sources(folder)))]


def unordered_packages(folder: Path, contracts: list[dict[str, object]]) -> list[str]:
    """Sibling packages whose order no contract of import-linter defines."""
    placed: dict[str, set[str]] = {}
    for contract in contracts:
        for container in _texts(contract.get("containers")):
            names = {
                n for layer in _texts(contract.get("layers")) for n in re.findall(r"\w+", layer)
            }
            placed.setdefault(container, set()).update(names)
    return [
        _dotted(package, folder)
        for package in sorted(file.parent for file in sources(folder) if file.name == "__init__.py")
        if _has_siblings(package)
        and package.name not in placed.get(_dotted(package.parent, folder), set())
    ]


def _texts(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []


def _has_siblings(package: Path) -> bool:
    return len(list(package.parent.glob("*/__init__.py"))) > 1


def wide_signatures(folder: Path) -> list[str]:
    """Functions with too many parameters; commands may have more, for their options."""
    return [
        f"{file}:{node.lineno} {node.name}: {offence}"
        for file in sources(folder)
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for offence in _width(node.args, command="cli" in file.relative_to(folder).parts)
    ]


def _width(arguments: ast.arguments, *, command: bool) -> Iterator[str]:
    positional = [
        a for a in [*arguments.posonlyargs, *arguments.args] if a.arg not in {"self", "cls"}
    ]
    total = len(positional) + len(arguments.kwonlyargs)
    if command:
        if total > MOST_OPTIONS:
            yield f"{total} options"
        return
    if len(positional) > MOST_POSITIONAL:
        yield f"{len(positional)} positional parameters"
    if total > MOST_PARAMETERS:
        yield f"{total} parameters"


def vague_names(folder: Path) -> list[str]:
    """Modules and packages with a vague name."""
    return [
        str(file)
        for file in sources(folder)
        if FORBIDDEN & set(file.relative_to(folder).with_suffix("").parts)
    ]


def undescribed_packages(folder: Path) -> list[str]:
    """Packages without a docstring that describes them."""
    return [
        str(file)
        for file in sources(folder)
        if file.name == "__init__.py"
        and len((ast.get_docstring(ast.parse(file.read_text())) or "").split()) < 6
    ]


def imports_of_packages(folder: Path) -> list[str]:
    """Modules that import the package they live in, or the root: every cycle begins so.

    Importing a module of that package by its full name is what they should do.
    """
    modules = {_dotted(file, folder) for file in sources(folder)}
    return [
        f"{file}:{node.lineno} imports {package}"
        for file in sources(folder)
        for node in _imports(file)
        for package in _packages_imported(node, file.relative_to(folder).parent.parts, modules)
        if _is_above(package, file, folder)
    ]


def _dotted(file: Path, folder: Path) -> str:
    parts = file.relative_to(folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(file: Path) -> Iterator[ast.Import | ast.ImportFrom]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node


def _packages_imported(
    node: ast.Import | ast.ImportFrom, own: tuple[str, ...], modules: set[str]
) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    else:
        above = own[: len(own) + 1 - node.level] if node.level else ()
        package = ".".join([*above, *([node.module] if node.module else [])])
        if any(f"{package}.{alias.name}" not in modules for alias in node.names):
            yield package


def _is_above(package: str, file: Path, folder: Path) -> bool:
    own = file.relative_to(folder).parent.parts
    return package in {".".join(own[:depth]) for depth in range(1, len(own) + 1)}


def imports_of(name: str, folder: Path) -> list[str]:
    """Modules under `folder` that import the package `name`, wherever in the file."""
    return [
        f"{file}:{node.lineno}"
        for file in sources(folder)
        for node in _imports(file)
        if name in {imported.partition(".")[0] for imported in _named(node)}
    ]


def _named(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if node.level == 0 else []


def machine_places(folder: Path) -> list[str]:
    """Lines that name one machine's folders, or a registry's address."""
    offences = []
    for file in sorted(folder.rglob("*")):
        if MADE & set(file.relative_to(folder).parts) or not file.is_file():
            continue
        try:
            lines = file.read_text().splitlines()
        except UnicodeDecodeError:
            continue
        found = ((number, MACHINE.search(line)) for number, line in enumerate(lines, start=1))
        offences += [f"{file}:{number} {match.group()}" for number, match in found if match]
    return offences


def heavy_imports(statement: str, path: Path) -> set[str]:
    """The heavy packages that a new Python process has imported after `statement`."""
    program = f"import sys; sys.path.insert(0, {str(path)!r}); {statement}; print(*sys.modules)"
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr
    return HEAVY & {name.partition(".")[0] for name in said.stdout.split()}


@pytest.mark.parametrize(
    "rule",
    [
        long_files,
        crowded_folders,
        wide_signatures,
        vague_names,
        undescribed_packages,
        imports_of_packages,
    ],
    ids=lambda rule: rule.__name__,
)
def test_the_source_keeps_every_rule(rule: object) -> None:
    assert callable(rule)
    assert rule(SRC) == []


def test_no_modules_import_each_other() -> None:
    assert [c for c in import_cycles(SRC) if not c.startswith(UNFINISHED)] == []


def test_every_package_has_its_place_in_a_contract() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]

    assert unordered_packages(SRC, settings["importlinter"]["contracts"]) == []


def test_importing_millstream_imports_nothing_heavy() -> None:
    assert heavy_imports("import millstream", SRC) == set()


def test_the_command_imports_nothing_heavy_before_it_is_parsed() -> None:
    assert heavy_imports("import millstream.cli.main", SRC) == set()


def test_oracles_are_independent_of_what_they_check() -> None:
    oracles = ROOT / "tests" / "oracles"

    assert list(sources(oracles))
    assert imports_of("millstream", oracles) == []


def test_no_file_names_a_machine_or_a_registry() -> None:
    assert machine_places(ROOT) == []


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def test_a_file_of_401_lines_is_found_and_one_of_400_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "LONG", {})
    written(tmp_path, {"long.py": "x = 1\n" * 401, "fits.py": "x = 1\n" * 400})

    assert long_files(tmp_path) == ["long.py: 401 lines"]


def test_a_long_file_with_a_reason_is_fine_until_it_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, {"long.py": "x = 1\n" * 401, "short.py": "x = 1\n"})
    reasons = {"long.py": "a table of codes", "short.py": "was long"}
    monkeypatch.setattr(sys.modules[__name__], "LONG", reasons)

    assert long_files(tmp_path) == ["short.py: no longer long"]


def test_a_folder_of_15_modules_is_found_and_one_of_14_is_not(tmp_path: Path) -> None:
    fits = {f"fits/m{n}.py": "" for n in range(14)}
    written(tmp_path, {**fits, **{f"full/m{n}.py": "" for n in range(15)}})

    assert crowded_folders(tmp_path) == [f"{tmp_path / 'full'}: 15 modules"]


@pytest.mark.parametrize(
    "back",
    [
        "import m.a",
        "from m.a import x",
        "from m import a",
        "from .a import x",
        "def f():\n    from m.a import x",
        "import importlib\ndef f():\n    importlib.import_module('m.a')",
    ],
)
def test_a_cycle_is_found_however_it_is_imported(tmp_path: Path, back: str) -> None:
    written(tmp_path, {"m/a.py": "import m.b", "m/b.py": "from m import c", "m/c.py": back})

    assert import_cycles(tmp_path) == ["m.a ⇄ m.b ⇄ m.c"]


def test_an_import_for_type_checkers_makes_no_cycle(tmp_path: Path) -> None:
    back = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from m.a import x\n"
    written(tmp_path, {"m/a.py": "import m.b", "m/b.py": back})

    assert import_cycles(tmp_path) == []


def test_a_package_that_no_contract_mentions_is_found(tmp_path: Path) -> None:
    written(tmp_path, {f"m/{name}/__init__.py": "" for name in ("a", "b", "new", "a/only")})
    contracts: list[dict[str, object]] = [{"containers": ["m"], "layers": ["a : x", "b"]}]

    assert unordered_packages(tmp_path, contracts) == ["m.new"]


def test_wide_signatures_are_found_and_commands_may_have_more_options(tmp_path: Path) -> None:
    keywords = ", ".join(f"k{n}" for n in range(13))
    twelve = ", ".join(f"k{n}" for n in range(12))
    written(
        tmp_path,
        {
            "m/a.py": f"def f(a, b, c, d, e, g, i): ...\ndef h(*, {keywords}): ...\n",
            "m/fine.py": f"class C:\n  def f(self, a, b, c, d, e, g): ...\ndef g(*, {twelve}): ...",
            "m/cli/tail.py": f"def tail({keywords}): ...\n",
            "m/cli/wide.py": f"def wide({', '.join(f'o{n}' for n in range(21))}): ...\n",
        },
    )

    assert [offence.partition(" ")[2] for offence in wide_signatures(tmp_path)] == [
        "f: 7 positional parameters",
        "h: 13 parameters",
        "wide: 21 options",
    ]


@pytest.mark.parametrize("name", ["m/utils.py", "m/common/__init__.py", "m/log/manager.py"])
def test_a_vague_name_is_found_as_module_and_as_package(tmp_path: Path, name: str) -> None:
    written(tmp_path, {name: "", "m/baseline.py": ""})

    assert vague_names(tmp_path) == [str(tmp_path / name)]


def test_a_package_of_two_words_is_found(tmp_path: Path) -> None:
    written(
        tmp_path,
        {
            "m/a/__init__.py": '"""The log."""\n',
            "m/b/__init__.py": "",
            "m/c/__init__.py": '"""The log: where bytes rest until someone reads them."""\n',
        },
    )

    assert undescribed_packages(tmp_path) == [
        str(tmp_path / "m" / letter / "__init__.py") for letter in "ab"
    ]


@pytest.mark.parametrize(
    ("statement", "imported"),
    [
        ("import m", "m"),
        ("from m import read", "m"),
        ("from m.log import Topics", "m.log"),
        ("from . import Topics", "m.log"),
        ("from .. import read", "m"),
        ("def f():\n    from m.log import Topics", "m.log"),
    ],
)
def test_an_import_of_the_own_package_or_the_root_is_found(
    tmp_path: Path, statement: str, imported: str
) -> None:
    written(tmp_path, {"m/__init__.py": "", "m/log/__init__.py": "", "m/log/a.py": statement})

    [offence] = imports_of_packages(tmp_path)
    assert offence.endswith(f" imports {imported}")


@pytest.mark.parametrize(
    "statement",
    [
        "from m.log.b import Topics",
        "from m.log import b",
        "from .b import Topics",
        "from m import errors",
        "import m.log.b",
        "from m.sinks import Sink",
    ],
)
def test_an_import_of_a_module_or_of_another_package_is_fine(
    tmp_path: Path, statement: str
) -> None:
    files = {"m/__init__.py": "", "m/errors.py": "", "m/log/__init__.py": "", "m/log/b.py": "",
             "m/sinks/__init__.py": ""}  # fmt: skip
    written(tmp_path, {**files, "m/log/a.py": statement})

    assert imports_of_packages(tmp_path) == []


@pytest.mark.parametrize(
    "statement",
    [
        "import millstream",
        "import millstream.kafka as log",
        "def f():\n    from millstream.kafka import x",
    ],
)
def test_an_oracle_that_imports_its_subject_is_found(tmp_path: Path, statement: str) -> None:
    written(tmp_path, {"oracle.py": statement, "fair.py": "import duckdb, millstreams"})

    assert len(imports_of("millstream", tmp_path)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "log = '/" + "tmp/x.log'",
        "cd /" + "work/main",
        "see /" + "home/ann/notes",
        "index-url = https://" + "pypi" + ".org/simple",
        "https://repo1" + ".maven.org/maven2",
    ],
)
def test_a_machines_folder_or_a_registrys_address_is_found(tmp_path: Path, line: str) -> None:
    written(
        tmp_path,
        {"a.md": f"fine\n{line}\n", ".git/b": line, "c.md": "src/work/x ~/tmp/x ${d}/tmp/x"},
    )

    [offence] = machine_places(tmp_path)
    assert offence.startswith(f"{tmp_path / 'a.md'}:2 ")


def test_a_heavy_import_is_found_however_deep(tmp_path: Path) -> None:
    written(tmp_path, {"outer.py": "import inner", "inner.py": "import numpy.linalg"})

    assert heavy_imports("import outer", tmp_path) == {"numpy"}
