"""Asking before something is destroyed, where there is somebody to ask."""

from __future__ import annotations

import sys

import typer

from millstream.errors import InvalidInput


def confirm(action: str, *, yes: bool) -> None:
    """Goes on only with `--yes` or a yes at the terminal; `action` reads `delete clicks`.

    Raises:
        InvalidInput: nobody can be asked and `--yes` was not given.
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
