"""Retries while an external system is unavailable; the pipeline waits and reports why."""

from __future__ import annotations

import errno
import time
from typing import TYPE_CHECKING

from millstream.errors import InvalidSpec, MillstreamError, Unavailable
from millstream.outages import waiting_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.sinks.spec import Opening

Diagnosis = tuple[str, MillstreamError | None]
"""What an error says, and the error to stop the job with; None if a retry may succeed."""

CONTINUES = "the job continues from here after a restart"
_NO_FOLDER = (errno.ENOTDIR, errno.EISDIR)
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 2.0


def retry(
    attempt: Callable[[], None],
    what: str,
    *,
    where: str,
    opening: Opening,
    errors: tuple[type[Exception], ...],
    classify_error: Callable[[Exception], Diagnosis],
) -> None:
    """Call `attempt` until it succeeds, with growing pauses.

    Raises:
        Unavailable: no attempt succeeded within the opening's patience.
    """
    deadline, pause = time.monotonic() + opening.patience, _FIRST_WAIT
    waited = False
    while True:
        try:
            attempt()
        except MillstreamError:
            raise  # some of them are OSErrors too
        except errors as error:
            if getattr(error, "errno", None) in _NO_FOLDER:
                raise InvalidSpec(f"the pipeline {opening.pipeline!r} needs a folder for {where}",
                                  got=str(error), do="choose another path") from error  # fmt: skip
            reason, stop = classify_error(error)
            if stop is not None:
                raise stop from error
            if time.monotonic() + pause > deadline:
                raise Unavailable(
                    f"the pipeline {opening.pipeline!r} needs {where} to {what}",
                    got=f"no success in {opening.patience:.0f} s: {reason}",
                    do=f"check that system; {CONTINUES}",
                ) from error
            opening.on_wait(waiting_for(where, reason, retry_in=pause))
            waited = True
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_WAIT)
        else:
            if waited:
                opening.on_answer(where)
            return
