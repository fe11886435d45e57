"""The examples in the docstrings of alerts, webhooks and mails are run."""

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
def test_every_example_in_a_docstring_is_true(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
