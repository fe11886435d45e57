"""Option values with their own syntax: `name=value` pairs and durations."""

from __future__ import annotations

from datetime import timedelta

from millstream.duration import positive_micros
from millstream.errors import InvalidInput, InvalidSpec
from millstream.viewing.escape import shortened


def settings_of(pairs: list[str] | None) -> dict[str, str]:
    """The settings given as `name=value`.

    Raises:
        InvalidInput: a pair without `=`, or a name given twice.
    """
    found: dict[str, str] = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise InvalidInput(
                "--set needs NAME=VALUE", got=shortened(pair), do="write --set retention.ms=60000"
            )
        if name.strip() in found:
            raise InvalidInput(f"--set needs {name.strip()} once", got="it twice")
        found[name.strip()] = value.strip()
    return found


def key_values(pairs: list[str]) -> dict[str, str]:
    """The values of the key columns given as `--key name=value`.

    Raises:
        InvalidInput: a pair without `=`, or a name given twice.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name or name in found:
            raise InvalidInput("--key needs NAME=VALUE, each name once", got=repr(pair))
        found[name] = value
    return found


def duration(text: str, *, what: str) -> timedelta:
    """A duration above zero.

    Raises:
        InvalidInput: the text is not a duration above zero.
    """
    try:
        return timedelta(microseconds=positive_micros(text, what=what))
    except (InvalidSpec, OverflowError):
        raise InvalidInput(
            f"{what} needs a duration above zero",
            got=shortened(text),
            do="write it like '30 minutes' or '7 days'",
        ) from None
