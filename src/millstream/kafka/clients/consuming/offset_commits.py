"""When a consumer commits its positions: before processing, after it, or with the result."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from millstream.errors import Fenced, InvalidInput, MillstreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from millstream.kafka.clients.consuming.assignment import Reader
    from millstream.kafka.clients.consuming.stored_offsets import Offsets
    from millstream.kafka.positions import Slot

Delivery = Literal["at_most_once", "at_least_once", "exactly_once"]
Mode = Literal["before", "auto", "manual", "stored"]

_AUTO_COMMIT_SECONDS = 1.0


def mode_of(
    delivery: str | None, commit: str | None, offsets: Offsets | None, *, grouped: bool
) -> Mode:
    """When positions are committed.

    Raises:
        InvalidInput: the arguments contradict each other.
    """
    if delivery not in (None, "at_most_once", "at_least_once", "exactly_once"):
        raise InvalidInput(
            'delivery needs "at_most_once", "at_least_once" or "exactly_once"', got=repr(delivery)
        )
    if commit not in (None, "auto", "manual"):
        raise InvalidInput('commit needs "auto" or "manual"', got=repr(commit))
    if (delivery == "exactly_once") != (offsets is not None):
        raise InvalidInput(
            'delivery="exactly_once" needs offsets=, and offsets= needs it',
            got=f"delivery={delivery!r} and {'no offsets' if offsets is None else 'offsets'}",
            do="write offsets=SqlOffsets(connection, name), or use a transactional Producer",
        )
    if delivery in ("at_most_once", "exactly_once") and commit is not None:
        raise InvalidInput(
            f'delivery="{delivery}" decides when positions are committed',
            got=f"commit={commit!r} as well",
            do="omit commit",
        )
    if offsets is not None:
        return "stored"
    if not grouped and (delivery is not None or commit == "auto"):
        option = 'commit="auto"' if delivery is None else f'delivery="{delivery}"'
        raise InvalidInput(f"{option} needs a group", got="none", do="pass group=...")
    if delivery == "at_most_once":
        return "before"
    return "manual" if commit == "manual" or not grouped else "auto"


class OffsetCommits:
    """Commits the positions of a reader: its `next`, the offsets after the records delivered."""

    def __init__(self, mode: Mode, offsets: Offsets | None) -> None:
        self.mode = mode
        self.offsets = offsets
        self._committed: dict[Slot, int] = {}
        self._started: dict[Slot, int] = {}
        self._pending: dict[Slot, tuple[int | None, int]] = {}
        self._at = time.monotonic()

    def mark_committed(self, offsets: Mapping[Slot, int]) -> None:
        """These offsets are committed already."""
        self._committed.update(offsets)

    def forget(self, slots: Iterable[Slot]) -> None:
        """Forget the commits of these partitions, because they are assigned again.

        Raises:
            Fenced: they were revoked with records delivered here and not committed.
        """
        for slot in slots:
            if self._pending.pop(slot, None) is not None:
                raise Fenced(
                    f"records of {slot[0]}/{slot[1]} need to be committed before a rebalance",
                    got="a partition that was revoked and assigned again with uncommitted records",
                    do="roll the transaction back, and read again from the stored offsets",
                )
            self._committed.pop(slot, None)

    def start_at(self, offsets: Mapping[Slot, int]) -> None:
        """Reading starts at these offsets; no record of them is delivered yet."""
        self._started.update(offsets)

    def before_delivery(self, reader: Reader, reached: Callable[[], Mapping[Slot, int]]) -> None:
        """At most once: commit the offsets after the records that are about to be delivered."""
        if self.mode == "before":
            self._commit(reader, reached())

    def after_processing(self, reader: Reader) -> None:
        """The records delivered are processed: commit them, at most once per second."""
        if self.mode == "auto" and time.monotonic() - self._at > _AUTO_COMMIT_SECONDS:
            self._commit(reader, self._uncommitted(reader), wait=False)

    def commit(self, reader: Reader) -> None:
        """Commit now, as the user requested."""
        if self.offsets is None:
            self._commit(reader, dict(reader.next))
            return
        new = self._uncommitted(reader)
        moves = {slot: (self._committed.get(slot), at) for slot, at in new.items()}
        self.offsets.advance({**self._pending, **moves})
        self._pending.clear()
        self._committed.update(new)
        self._started.update(new)

    def on_revoke(self, reader: Reader, slots: Iterable[Slot]) -> None:
        """Partitions go to another member: commit first, so that it continues from here."""
        if self.mode in ("auto", "before"):
            with suppress(MillstreamError):
                self._commit(reader, self._uncommitted(reader))
        self.on_lost(reader, slots)

    def on_lost(self, reader: Reader, slots: Iterable[Slot]) -> None:
        """Partitions belong to another member.

        With stored offsets, records delivered here and not committed yet are part of the next
        commit, which fails if the other member has committed since: never both.
        """
        if self.mode != "stored":
            return
        for slot in slots:
            at = reader.next.get(slot)
            if at is not None and at != self._started.get(slot):
                self._pending[slot] = (self._committed.get(slot), at)

    def on_close(self, reader: Reader) -> None:
        """Commit the records delivered; those only fetched are left to the next reader."""
        if self.mode in ("auto", "before"):
            self._commit(reader, self._uncommitted(reader))

    def _uncommitted(self, reader: Reader) -> dict[Slot, int]:
        return {slot: at for slot, at in reader.next.items() if self._committed.get(slot) != at}

    def _commit(self, reader: Reader, offsets: Mapping[Slot, int], *, wait: bool = True) -> None:
        self._at = time.monotonic()
        reader.commit(offsets, wait=wait)
        self._committed.update(offsets)
