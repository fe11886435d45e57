"""Classifies PostgreSQL errors: whether a retry may succeed, and what to report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

from millstream.errors import InvalidSpec, MillstreamError, Refused
from millstream.sinks.retries import CONTINUES

if TYPE_CHECKING:
    from millstream.sinks.retries import Diagnosis

# Error classes and codes after which a retry may succeed: connection lost, out of resources
# (connections, disk, memory), server shutting down or starting, lock held by another session.
_TRANSIENT = ("08", "53", "57P", "55P03", "55006", "40001", "40P01", "58")
_REFUSED = ("password authentication failed", "no pg_hba.conf entry", "does not exist",
            "not permitted to log in", "invalid connection option")  # fmt: skip


def classify_error(error: Exception, where: str) -> Diagnosis:
    """Return the error on one line, and the error to stop with if no retry can succeed."""
    assert isinstance(error, psycopg.Error)
    said = _line(error)
    state = error.sqlstate
    if state is None:
        return said, _refused(said, where) if _is_refusal(error, said) else None
    if state.startswith(_TRANSIENT):
        return said, None
    return said, _stop(state, said, where)


def _line(error: psycopg.Error) -> str:
    diagnosis = error.diag
    if diagnosis.message_primary:
        more = diagnosis.context or diagnosis.message_detail
        first = more.splitlines()[0] if more else ""
        return f"{diagnosis.message_primary} ({first})" if first else diagnosis.message_primary
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _is_refusal(error: psycopg.Error, said: str) -> bool:
    """Whether a connection error, which has no code, will repeat."""
    if isinstance(error, psycopg.ProgrammingError):
        return True
    return any(words in f"{said} {error}" for words in _REFUSED)


def _refused(said: str, where: str) -> Refused:
    return Refused(
        f"the pipeline needs access to {where}",
        got=said,
        do="fix the address or the permissions, then restart",
    )


def _stop(state: str, said: str, where: str) -> MillstreamError:
    if state.startswith(("22", "42804", "21")):
        return InvalidSpec(
            f"{where} needs rows whose values fit its columns", got=said,
            do=f"change the column's type, or the value with .with_columns(…); {CONTINUES}",
        )  # fmt: skip
    if state.startswith("42501"):
        return Refused(f"the pipeline needs write permission in {where}", got=said,
                       do="GRANT it, then restart; nothing is lost")  # fmt: skip
    return MillstreamError(
        f"{where} needs to accept the rows", got=said,
        do=f"fix the table; {CONTINUES}",
    )  # fmt: skip
