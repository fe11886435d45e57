"""Secrets by reference: `${env:NAME}` and `${file:PATH}`, resolved where used, never printed."""

from __future__ import annotations

import os
import re
from pathlib import Path

from millstream.errors import InvalidSpec

MASK = "***"

_REFERENCE = re.compile(r"\$\{([^{}:]*):?([^{}]*)\}")
_IN_ADDRESS = r"\$\{[^}]*\}"
_PASSWORD = re.compile(
    rf"(?P<before>://(?:{_IN_ADDRESS}|[^:/@$])*:|password=)"
    rf"(?P<secret>'[^']*'|{_IN_ADDRESS}|(?<=:)[^@]*(?=@)|[^\s&@]+)"
)
_SECRET_WORDS = ("password", "secret", "key.pem", "keystore", "oauthbearer.config", "token")


def is_secret(name: str, value: str = "") -> bool:
    """Whether a setting must not be printed: its name or its value refers to a secret.

    >>> is_secret("sasl.password"), is_secret("sasl.username")
    (True, False)
    """
    return any(word in name.lower() for word in _SECRET_WORDS) or bool(_REFERENCE.search(value))


def masked(name: str, value: str) -> str:
    """The value as it may be shown: a reference as written, a secret as `***`.

    >>> masked("sasl.password", "hunter2"), masked("sasl.password", "${env:KAFKA_PASSWORD}")
    ('***', '${env:KAFKA_PASSWORD}')
    """
    if _REFERENCE.fullmatch(value):
        return value
    return MASK if is_secret(name, value) else value


def masked_address(address: str) -> str:
    """The address without its password; references are not resolved.

    >>> masked_address("postgresql://me:hunter2@db/shop?password=hunter2")
    'postgresql://me:***@db/shop?password=***'
    """
    return _PASSWORD.sub(
        lambda found: found["before"] + masked("password", found["secret"]), address
    )


def resolve(value: str, *, setting: str) -> str:
    """The value with its references replaced; a file's last line break is dropped.

    `setting` names the setting in errors.

    Raises:
        InvalidSpec: the variable is not set, the file cannot be read, or the reference is invalid.
    """
    return _REFERENCE.sub(lambda found: _look_up(found.group(1), found.group(2), setting), value)


def scrub(text: str, secrets: tuple[str, ...]) -> str:
    """The text with every one of these values replaced by `***`."""
    for secret in sorted(secrets, key=len, reverse=True):
        if secret:
            text = text.replace(secret, MASK)
    return text


def _look_up(kind: str, name: str, setting: str) -> str:
    reference = f"${{{kind}:{name}}}"
    if kind == "env" and name:
        found = os.environ.get(name)
        if found is None:
            raise InvalidSpec(
                f"{setting} needs the environment variable {name}",
                got="a variable that is not set",
                do=f"export {name}, or change the reference {reference}",
            )
        return found
    if kind == "file" and name:
        return _read(name, setting)
    raise InvalidSpec(
        f"{setting} needs a reference such as ${{env:NAME}} or ${{file:PATH}}",
        got=f"one of another kind ({kind or 'none'})",
        do="write one of these",
    )


def _read(path: str, setting: str) -> str:
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
        raise InvalidSpec(
            f"{setting} needs the file {path} to be readable",
            got=str(reason),
            do="create the file, or change the reference",
        ) from None
    return text.removesuffix("\n").removesuffix("\r")
