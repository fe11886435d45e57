"""Posts the rows of a batch in order, each post until it is accepted."""

from __future__ import annotations

import hashlib
import json
import random
import time
from typing import TYPE_CHECKING, cast

from millstream.errors import MillstreamError, Unavailable
from millstream.outages import waiting_for
from millstream.sinks.webhook.post import MOST_BYTES, Message, RetryLater, post

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.sinks.spec import Opening, Staged
    from millstream.sinks.webhook.webhook import Webhook

_FIRST_WAIT, _LONGEST = 0.5, 30.0
_SLICE = 1.0


class WebhookWriter:
    """Posts rows at least once, in order."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening

    def recover(self, expected: str | None) -> str | None:
        """Return the last commit's intent: receivers cannot be asked what they have."""
        return expected

    def write(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        """Post the rows; return when every post has been accepted.

        Raises:
            Unavailable: a receiver accepts nothing within the run's patience.
            InvalidSpec: a receiver accepts no further posts, or redirects.
        """
        self._opening.check_owned()
        for staged in outputs:
            hook = _sink(staged)
            for index, body in enumerate(bodies(staged, self._opening.pipeline, batch)):
                identity = f"{self._opening.job}/{intent}/{staged.output}/{index}"
                message_id = "msg_" + hashlib.sha256(identity.encode()).hexdigest()[:32]
                self._post_until_accepted(hook, Message(message_id, body))
            self._opening.on_step("before a sink's commit")
        self._opening.on_step("after a sink's commit")

    def _post_until_accepted(self, hook: Webhook, message: Message) -> None:
        deadline = time.monotonic() + self._opening.patience
        wait, waited, where = _FIRST_WAIT, False, f"the webhook {hook.name}"
        while True:
            try:
                post(hook, message)
            except RetryLater as problem:
                pause = wait * random.uniform(0.5, 1.0) if problem.wait is None else problem.wait
                if problem.wait is None and time.monotonic() + pause > deadline:
                    raise Unavailable(
                        f"the webhook {hook.name} needs an answer", got=str(problem),
                        do="check whether the receiver is up, then restart the job; it continues "
                        "here",
                    ) from problem  # fmt: skip
                deadline = max(deadline, time.monotonic() + pause + _SLICE)
                why = f"{problem}; retrying in {pause:.0f} s"
                self._opening.on_wait(waiting_for(where, why, retry_in=pause))
                waited = True
                self._pause(pause)
                wait = min(2 * wait, _LONGEST)
            else:
                if waited:
                    self._opening.on_answer(where)
                return

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _SLICE))
            self._opening.check_owned()

    def close(self) -> None:
        """Nothing to close."""


def _sink(staged: Staged) -> Webhook:
    return cast("Webhook", staged.sink)


def bodies(staged: Staged, pipeline: str, batch: int) -> Iterator[bytes]:
    """Yield the posts of an output: each with up to `rows` rows and a megabyte."""
    most = _sink(staged).rows
    data: dict[str, str | int] = {"pipeline": pipeline, "output": staged.output, "batch": batch}
    if staged.again is not None:
        data["again"] = staged.again
    head = b'{"type":' + json.dumps(f"{pipeline}.{staged.output}").encode() + b',"data":'
    head += json.dumps(data, separators=(",", ":")).encode()[:-1] + b',"rows":['
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
    """Yield each row as a JSON object; a retraction has `"_sign":-1`."""
    from millstream.formats.json.encode import encode
    from millstream.sinks.rows import SIGN, chunks, visible

    for table in chunks(staged, 1000):
        signs = table[SIGN].to_pylist() if SIGN in table.column_names else [1] * table.num_rows
        for row, sign in zip(encode(visible(table)).to_pylist(), signs, strict=True):
            yield row if sign > 0 else row[:-1] + b',"_sign":-1}'
