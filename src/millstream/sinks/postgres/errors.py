"""What PostgreSQL says when it does not do what it is asked, and whether that may heal."""

from __future__ import annotations

import psycopg

from millstream.errors import InvalidSpec, MillstreamError, Unavailable

# Classes and codes of errors after which the same thing may work: connection lost, resources
# short (connections, disk, memory), the server going down or coming up, somebody else's lock.
_PASSING = ("08", "53", "57P", "55P03", "55006", "40001", "40P01", "58")
_REFUSED = ("password authentication failed", "no pg_hba.conf entry", "does not exist",
            "not permitted to log in", "invalid connection option")  # fmt: skip


def told(error: Exception, where: str) -> tuple[str, MillstreamError | None]:
    """What an error says in a line, and the sentence to stop with if it cannot heal."""
    assert isinstance(error, psycopg.Error)
    said = _line(error)
    state = error.sqlstate
    if state is None:
        return said, _refused(said, where) if _is_refusal(error, said) else None
    if state.startswith(_PASSING):
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
    """Errors of connecting have no code: these will be the same the next time."""
    if isinstance(error, psycopg.ProgrammingError):
        return True
    return any(words in f"{said} {error}" for words in _REFUSED)


def _refused(said: str, where: str) -> Unavailable:
    return Unavailable(f"the pipeline needs to get into {where}", got=said,
                       do="mend the address or the rights, then start again")  # fmt: skip


def _stop(state: str, said: str, where: str) -> MillstreamError:
    if state.startswith(("22", "42804", "21")):
        return InvalidSpec(
            f"{where} needs rows whose values fit its columns", got=said,
            do="change the column's type, or the value with .with_columns(…); the job goes on "
            "from here when it is started again",
        )  # fmt: skip
    if state.startswith("42501"):
        return Unavailable(f"the pipeline needs the right to write in {where}", got=said,
                           do="GRANT it, then start again: nothing is lost")  # fmt: skip
    return MillstreamError(
        f"{where} needs to take the rows as they are", got=said,
        do="mend the table; the job goes on from here when it is started again",
    )  # fmt: skip
