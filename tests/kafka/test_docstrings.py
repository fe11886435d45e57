from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import millstream.kafka

MODULES = [
    module.name
    for module in pkgutil.walk_packages(millstream.kafka.__path__, "millstream.kafka.")
    if not module.ispkg
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_docstrings_hold(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples_to_hold() -> None:
    found = [doctest.testmod(importlib.import_module(name)).attempted for name in MODULES]
    assert sum(found) >= 10
