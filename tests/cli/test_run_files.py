"""`millstream run` over files: without Kafka."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.command import Command

FILE = """import millstream as ms

views = ms.read(ms.Files({folder!r}, format="json", schema="page long"))
pipeline = ms.Pipeline("views", views.to(ms.Files({out!r}, format="json")))
"""


@pytest.mark.usefixtures("spark")
def test_files_are_processed_without_kafka_and_a_bad_row_is_set_aside(
    offline: Command, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"page": 1}\n{"page": 2}\n')
    file = tmp_path / "views.py"
    file.write_text(FILE.format(folder=str(tmp_path / "in"), out=str(tmp_path / "out")))
    options = ["--checkpoint", str(tmp_path / "job"), "--until", "caught-up"]

    said = offline.ok("run", str(file), *options)

    assert "views on no Kafka" in said.err
    [made] = (tmp_path / "out").glob("*.json")
    assert [json.loads(line)["page"] for line in made.read_text().splitlines()] == [1, 2]
    (tmp_path / "in" / "b.json").write_text("no JSON\n")
    said = offline.ok("run", str(file), *options)
    assert "1 bad row " in said.err
    [dead] = (tmp_path / "job" / "dead").glob("*.json")
    assert base64.b64decode(json.loads(dead.read_text())["value"]) == b"no JSON"
