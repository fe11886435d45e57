"""Every Python example in the documents is run.

The examples of one document run in order, as one program, in an empty folder, with a real broker
as `MILLSTREAM_KAFKA`. An example that cannot run says why in the line above it:
`<!-- not run: needs a cluster with passwords -->`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.testing.local_broker import ThrowAwayBroker

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
_FENCE = re.compile(r"^```python *\n(.*?)^```", re.MULTILINE | re.DOTALL)
_EXCUSE = re.compile(r"<!-- not run: (.+?) -->\s*\Z")


def program(document: str) -> str:
    """The examples of a document as one program, each at its original line."""
    lines = [""] * (document.count("\n") + 1)
    for start, example in _examples(document):
        for offset, line in enumerate(example.splitlines()):
            lines[start + offset] = line
    return "\n".join(lines) + "\n"


def _examples(document: str) -> Iterator[tuple[int, str]]:
    for fence in _FENCE.finditer(document):
        if not _EXCUSE.search(document, 0, fence.start()):
            yield document.count("\n", 0, fence.start(1)), fence.group(1)


def run(
    source: str, folder: Path, name: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    script = folder / f"{name}.py"
    script.write_text(source)
    return subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=280,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize(
    "document", DOCUMENTS, ids=[path.relative_to(ROOT).as_posix() for path in DOCUMENTS]
)
def test_every_example_of_a_document_runs(
    document: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    source = program(document.read_text())
    if not source.strip():
        return
    broker: ThrowAwayBroker = request.getfixturevalue("broker")

    done = run(source, tmp_path, document.stem, MILLSTREAM_KAFKA=broker.address)

    assert done.returncode == 0, f"{document}\n{done.stderr}"


def test_a_failing_example_is_found_at_its_own_line(tmp_path: Path) -> None:
    document = "# Title\n\n```python\nx = 1\n```\n\ntext\n\n```python\nassert x == 2\n```\n"

    done = run(program(document), tmp_path, "bad")

    assert done.returncode == 1
    assert "line 10" in done.stderr


def test_an_example_sees_what_earlier_ones_defined(tmp_path: Path) -> None:
    document = "```python\nx = 1\n```\n```python\nassert x == 1\n```\n"

    assert run(program(document), tmp_path, "good").returncode == 0


def test_an_excused_example_and_other_languages_are_left_out() -> None:
    document = (
        "<!-- not run: needs a cluster -->\n```python\n1 / 0\n```\n"
        "```sh\nrm -r x\n```\n"
        "```python\nx = 1\n```\n"
    )

    assert program(document).split() == ["x", "=", "1"]


def test_an_excuse_without_a_reason_excuses_nothing() -> None:
    assert "1 / 0" in program("<!-- not run: -->\n```python\n1 / 0\n```\n")
