"""Every error that users see, and the exit code of a process that stops with it.

    MillstreamError            one sentence: need; got; do.           exit 1
    ├── InvalidSpec            a pipeline, schema or option is wrong  exit 3   (ValueError)
    ├── InvalidInput           a value passed to a call is wrong      exit 2   (ValueError)
    ├── NotFound               a topic, file, job, step is missing    exit 4   (LookupError)
    ├── Unavailable            Kafka, Java, a network is not there    exit 5   (ConnectionError)
    │   └── Refused            it is there: a wrong password          exit 5
    ├── SetupFailed            the machine cannot be made ready       exit 5
    ├── AlreadyRunning         a second runner or broker is refused   exit 1
    ├── AlreadyFinished        a finished job has something to do     exit 1
    ├── Fenced                 another run has taken this job over    exit 1
    ├── DataGone               rows were deleted before they were read exit 6
    ├── Damaged                a stored file fails its checksum       exit 6
    │   └── DamagedLog         a record batch of a topic is damaged   exit 6
    └── UserCodeFailed         the user's function or SQL raised      exit 1

A message has three clauses: what is needed; what was got; what to do.
"""

from __future__ import annotations


class MillstreamError(Exception):
    """The base class; `str(error)` is one complete sentence for the user."""

    exit_code = 1

    def __init__(self, need: str, /, *, got: str | None = None, do: str | None = None) -> None:
        self.need, self.got, self.do = need, got, do
        clauses = [need]
        if got is not None:
            clauses.append(f"got {got}")
        if do is not None:
            clauses.append(do)
        super().__init__("; ".join(clauses))


class InvalidSpec(MillstreamError, ValueError):
    """A pipeline, schema or option is invalid: `tumbling("0 seconds")`."""

    exit_code = 3


class InvalidInput(MillstreamError, ValueError):
    """A value passed to a command or call is invalid: `produce` with truncated JSON."""

    exit_code = 2


class NotFound(MillstreamError, LookupError):
    """A topic, group, file, job or step that does not exist."""

    exit_code = 4


class Unavailable(MillstreamError, ConnectionError):
    """A service does not answer: the broker is down, the port is closed."""

    exit_code = 5


class Refused(Unavailable):
    """A service answers and refuses: a wrong password, no such database. No retry can succeed."""


class SetupFailed(MillstreamError):
    """The machine lacks something that cannot be installed: no Java, no network, a full disk."""

    exit_code = 5


class AlreadyRunning(MillstreamError):
    """A folder has one broker, a job one process: the second is refused."""


class AlreadyFinished(MillstreamError):
    """A finished job has new input or a changed pipeline; the user must decide what to do."""


class Fenced(MillstreamError):
    """Another run has taken over this job; this one stops and writes nothing more."""


class DataGone(MillstreamError):
    """Records were deleted before they were read, or the topic was recreated."""

    exit_code = 6


class Damaged(MillstreamError):
    """A stored file fails its checksum or its format version is unknown."""

    exit_code = 6


class DamagedLog(Damaged):
    """A record batch of a topic is damaged: the records before it can be read, its own cannot.

    `place` is the partition, the first offset of the batch and the one after it, as far as its
    header can be trusted; None if they are unknown.
    """

    def __init__(
        self, need: str, /, *, got: str | None = None, do: str | None = None,
        place: tuple[int, int, int] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(need, got=got, do=do)
        self.place = place


class UserCodeFailed(MillstreamError):
    """The user's function or SQL raised; the message names the step and the frame."""
