"""Ask before something is deleted."""

from __future__ import annotations

import sys

import typer

from millstream.errors import InvalidInput


def confirm(action: str, *, yes: bool) -> None:
    """Continue only with `--yes` or a yes at the terminal; `action` reads `delete clicks`.

    Raises:
        InvalidInput: there is no terminal and `--yes` was not given.
        typer.Abort: the answer was no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInput(
            f"a yes is needed to {action}",
            got="no terminal to ask at",
            do="add --yes, or --dry-run to see what would happen",
        )
    typer.confirm(f"{action}?", abort=True, err=True)
