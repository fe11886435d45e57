"""Trying again while a system may come back: it holds the pipeline, and it is told."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from millstream.errors import MillstreamError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.sinks.spec import Opening

Told = tuple[str, MillstreamError | None]
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0


def persist(
    attempt: Callable[[], None],
    what: str,
    *,
    where: str,
    opening: Opening,
    errors: tuple[type[Exception], ...],
    told: Callable[[Exception], Told],
) -> None:
    """Try until it works, with pauses that grow.

    `told` says what an error means, with the sentence to stop with where it cannot heal.

    Raises:
        Unavailable: it has not worked for as long as the opening's patience.
    """
    deadline, pause = time.monotonic() + opening.patience, _FIRST_WAIT
    while True:
        try:
            attempt()
        except MillstreamError:
            raise  # some of ours are OSErrors too
        except errors as error:
            why, stop = told(error)
            if stop is not None:
                raise stop from error
            if time.monotonic() + pause > deadline:
                raise Unavailable(
                    f"the pipeline {opening.pipeline!r} needs {where} to {what}",
                    got=f"no success in {opening.patience:.0f} s: {why}",
                    do="look there; the job goes on from here when it is started again",
                ) from error
            opening.on_wait(f"waiting for {where}: {why}")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_WAIT)
        else:
            return
