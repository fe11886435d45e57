"""The examples of joins print what they say they print."""

from __future__ import annotations

import importlib.util
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

EXAMPLES = Path(__file__).parents[3] / "examples"


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def promised(module: ModuleType) -> str:
    """The last indented block of the module's text."""
    assert module.__doc__ is not None
    blocks = [part for part in module.__doc__.split("\n\n") if part.startswith("    ")]
    return textwrap.dedent(blocks[-1]).strip()


@pytest.mark.parametrize("name", ["click_through", "home_timelines", "tax_rate"])
def test_an_example_prints_what_it_promises(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = loaded(name)
    module.main()
    assert capsys.readouterr().out.strip() == promised(module)
