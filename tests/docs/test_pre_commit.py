"""The hooks before a commit run the same programs as `make check`."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


def test_each_step_of_make_check_has_a_hook() -> None:
    recipe = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe
    steps = [line.split("/", 1)[1].removesuffix(" .") for line in recipe[1].splitlines()]

    [repository] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    entries = [str(hook["entry"]).removeprefix(".venv/bin/") for hook in repository["hooks"]]

    programs = ["ruff check", "ruff format", "mypy", "lint-imports"]
    assert [step[: len(p)] for step, p in zip(steps, programs, strict=False)] == programs
    assert [entry[: len(p)] for entry, p in zip(entries, programs, strict=False)] == programs
    assert "tests/test_wording.py" in steps[-1]
    assert entries[-1] == "python -m tests.wording"
    assert len(steps) == len(entries) == 5


def test_the_templates_of_issues_are_forms() -> None:
    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))

    assert [form.stem for form in forms] == ["bug", "config", "feature"]
    for form in forms:
        body = yaml.safe_load(form.read_text())
        assert form.stem == "config" or {"name", "description", "body"} <= body.keys()
