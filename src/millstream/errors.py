"""Every error a user can meet, and what it means for the process that meets it.

    MillstreamError            one sentence: need; got; do.           exit 1
    ├── InvalidSpec            a pipeline, schema or option is wrong  exit 3   (ValueError)
    ├── InvalidInput           a value handed to a call is wrong      exit 2   (ValueError)
    ├── NotFound               a topic, file, job, step is missing    exit 4   (LookupError)
    ├── Unavailable            Kafka, Java, a network is not there    exit 5   (ConnectionError)
    ├── SetupFailed            the machine cannot be made ready       exit 5
    ├── AlreadyRunning         a second runner or broker is refused   exit 1
    ├── AlreadyFinished        a finished job has something to do     exit 1
    ├── Fenced                 another run has taken this job over    exit 1
    ├── DataGone               rows vanished before they were read    exit 6
    ├── Damaged                a stored file fails its checksum       exit 6
    │   └── DamagedLog         a record batch of a topic does         exit 6
    └── UserCodeFailed         the user's function or SQL raised      exit 1

A message has three clauses: what is needed; what was got; what to do.
"""

from __future__ import annotations


class MillstreamError(Exception):
    """The parent of all: `str(error)` is one whole sentence for the user."""

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
    """A pipeline, schema or option cannot mean anything: `tumbling("0 seconds")`."""

    exit_code = 3


class InvalidInput(MillstreamError, ValueError):
    """A value handed to a command or call is wrong: `produce` with half a JSON."""

    exit_code = 2


class NotFound(MillstreamError, LookupError):
    """A topic, group, file, job or step that does not exist."""

    exit_code = 4


class Unavailable(MillstreamError, ConnectionError):
    """A service does not answer: the broker is down, the port is closed."""

    exit_code = 5


class SetupFailed(MillstreamError):
    """The machine cannot be made ready: no Java, no network, a full disk."""

    exit_code = 5


class AlreadyRunning(MillstreamError):
    """One folder, one broker; one job, one runner: the second is refused."""


class AlreadyFinished(MillstreamError):
    """A job that came to its end has new input, or is another pipeline now: a person decides."""


class Fenced(MillstreamError):
    """Another run has taken this job over; this one stops without a trace."""


class DataGone(MillstreamError):
    """Records left the log before they were read, or the topic was made anew."""

    exit_code = 6


class Damaged(MillstreamError):
    """A stored file fails its checksum or its format version is unknown."""

    exit_code = 6


class DamagedLog(Damaged):
    """A record batch of a topic is damaged: records before it can be read, those in it cannot.

    `place` is the partition, the first offset of the batch and the one behind it, as far as its
    header can be trusted; None where only the sentence is known.
    """

    def __init__(
        self, need: str, /, *, got: str | None = None, do: str | None = None,
        place: tuple[int, int, int] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(need, got=got, do=do)
        self.place = place


class UserCodeFailed(MillstreamError):
    """The user's function or SQL raised; the message names the step and the frame."""
