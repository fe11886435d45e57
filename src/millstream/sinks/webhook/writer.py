"""Posts a batch's rows: in order, each post until it is taken."""

from __future__ import annotations

import hashlib
import json
import random
import time
from typing import TYPE_CHECKING, cast

from millstream.errors import MillstreamError, Unavailable
from millstream.sinks.webhook.post import MOST_BYTES, Parcel, RetryLater, post

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.sinks.spec import Opening, Staged
    from millstream.sinks.webhook.webhook import Webhook

_FIRST_WAIT, _LONGEST = 0.5, 30.0
_SLICE = 1.0


class WebhookWriter:
    """Webhooks for one run: at least once, in the order of the rows."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening

    def recover(self, expected: str | None) -> str | None:
        """Receivers are not asked what they have: the last commit is believed."""
        return expected

    def write(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        """Post the rows; it returns when every post has been taken.

        Raises:
            Unavailable: a receiver takes nothing for as long as the run has patience.
            InvalidSpec: it wants nothing more, or redirects.
        """
        self._opening.check_owned()
        for staged in outputs:
            hook = _sink(staged)
            for index, body in enumerate(bodies(staged, self._opening.pipeline, batch)):
                said = f"{self._opening.job}/{intent}/{staged.output}/{index}"
                made = "msg_" + hashlib.sha256(said.encode()).hexdigest()[:32]
                self._until_taken(hook, Parcel(made, body))
            self._opening.on_step("before a sink's commit")
        self._opening.on_step("after a sink's commit")

    def _until_taken(self, hook: Webhook, parcel: Parcel) -> None:
        deadline = time.monotonic() + self._opening.patience
        wait = _FIRST_WAIT
        while True:
            try:
                post(hook, parcel)
            except RetryLater as problem:
                pause = wait * random.uniform(0.5, 1.0) if problem.wait is None else problem.wait
                if problem.wait is None and time.monotonic() + pause > deadline:
                    raise Unavailable(
                        f"the webhook {hook.name} needs an answer", got=str(problem),
                        do="see whether the receiver is up; the job goes on from here when it is "
                        "started again",
                    ) from problem  # fmt: skip
                deadline = max(deadline, time.monotonic() + pause + _SLICE)
                self._pause(pause, f"{problem}; asking again in {pause:.0f} s")
                wait = min(2 * wait, _LONGEST)
            else:
                return

    def _pause(self, seconds: float, why: str) -> None:
        self._opening.on_wait(why)
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _SLICE))
            self._opening.check_owned()

    def close(self) -> None:
        """Nothing is held."""


def _sink(staged: Staged) -> Webhook:
    return cast("Webhook", staged.sink)


def bodies(staged: Staged, pipeline: str, batch: int) -> Iterator[bytes]:
    """The posts of an output's rows: up to `rows` rows, and a megabyte, each."""
    most = _sink(staged).rows
    told: dict[str, str | int] = {"pipeline": pipeline, "output": staged.output, "batch": batch}
    if staged.again is not None:
        told["again"] = staged.again
    head = b'{"type":' + json.dumps(f"{pipeline}.{staged.output}").encode() + b',"data":'
    head += json.dumps(told, separators=(",", ":")).encode()[:-1] + b',"rows":['
    rows: list[bytes] = []
    size = 0
    for row in json_rows(staged):
        if len(row) > MOST_BYTES:
            raise MillstreamError(
                f"a post of {staged.output!r} needs rows of at most {MOST_BYTES:,} bytes",
                got=f"one of {len(row):,}", do="select fewer columns before the webhook",
            )  # fmt: skip
        if rows and (len(rows) == most or size + len(row) > MOST_BYTES):
            yield head + b",".join(rows) + b"]}}"
            rows, size = [], 0
        rows.append(row)
        size += len(row)
    if rows:
        yield head + b",".join(rows) + b"]}}"


def json_rows(staged: Staged) -> Iterator[bytes]:
    """Each row as a JSON object; one that takes an earlier one back has `"_sign":-1`."""
    from millstream.formats.json.encode import encode
    from millstream.sinks.rows import SIGN, chunks, visible

    for table in chunks(staged, 1000):
        signs = table[SIGN].to_pylist() if SIGN in table.column_names else [1] * table.num_rows
        for row, sign in zip(encode(visible(table)).to_pylist(), signs, strict=True):
            yield row if sign > 0 else row[:-1] + b',"_sign":-1}'
