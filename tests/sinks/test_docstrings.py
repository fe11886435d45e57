"""Runs the examples in the docstrings of alerts, webhooks and mails."""

from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = [
    f"millstream.sinks.{name}"
    for name in (
        "alerts.alert",
        "alerts.email",
        "alerts.rendering",
        "webhook.addresses",
        "webhook.post",
        "webhook.webhook",
    )
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_docstrings_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
