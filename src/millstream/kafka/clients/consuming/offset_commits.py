"""How far a consumer is, and when that is told: before the work, after it, or with its result."""

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
Mode = Literal["before", "auto", "manual", "beside"]

_EVERY = 1.0


def mode_of(
    delivery: str | None, commit: str | None, offsets: Offsets | None, *, grouped: bool
) -> Mode:
    """When positions are kept.

    Raises:
        InvalidInput: the choices do not fit together.
    """
    if delivery not in (None, "at_most_once", "at_least_once", "exactly_once"):
        raise InvalidInput(
            'delivery needs "at_most_once", "at_least_once" or "exactly_once"', got=repr(delivery)
        )
    if commit not in (None, "auto", "manual"):
        raise InvalidInput('commit needs "auto" or "manual"', got=repr(commit))
    if (delivery == "exactly_once") != (offsets is not None):
        raise InvalidInput(
            'delivery="exactly_once" needs offsets= beside your result, and only that does',
            got=f"delivery={delivery!r} and {'no offsets' if offsets is None else 'offsets'}",
            do="write offsets=SqlOffsets(connection, name), or use a transactional Producer",
        )
    if delivery in ("at_most_once", "exactly_once") and commit is not None:
        raise InvalidInput(
            f'delivery="{delivery}" says itself when positions are kept',
            got=f"commit={commit!r} as well",
            do="leave commit out",
        )
    if offsets is not None:
        return "beside"
    if not grouped and (delivery is not None or commit == "auto"):
        said = 'commit="auto"' if delivery is None else f'delivery="{delivery}"'
        raise InvalidInput(f"{said} needs a group", got="none", do="say group=...")
    if delivery == "at_most_once":
        return "before"
    return "manual" if commit == "manual" or not grouped else "auto"


class Keeping:
    """What is kept of a reader's positions; the reader's `next` is what was handed out."""

    def __init__(self, mode: Mode, offsets: Offsets | None) -> None:
        self.mode = mode
        self.offsets = offsets
        self._kept: dict[Slot, int] = {}
        self._began: dict[Slot, int] = {}
        self._pending: dict[Slot, tuple[int | None, int]] = {}
        self._at = time.monotonic()

    def known(self, places: Mapping[Slot, int]) -> None:
        """These are kept already."""
        self._kept.update(places)

    def forget(self, slots: Iterable[Slot]) -> None:
        """What is kept of these is asked for anew.

        Raises:
            Fenced: they went to another member with records handed out here and not committed.
        """
        for slot in slots:
            if self._pending.pop(slot, None) is not None:
                raise Fenced(
                    f"records of {slot[0]}/{slot[1]} need to be committed before it is given again",
                    got="a partition that left and came back with records not committed",
                    do="let the transaction be rolled back, and read again from what is kept",
                )
            self._kept.pop(slot, None)

    def begun(self, places: Mapping[Slot, int]) -> None:
        """Reading begins there: nothing is handed out of these yet."""
        self._began.update(places)

    def ahead(self, reader: Reader, reached: Callable[[], Mapping[Slot, int]]) -> None:
        """At most once: keep where the records end that are about to be handed out."""
        if self.mode == "before":
            self._keep(reader, reached())

    def finished(self, reader: Reader) -> None:
        """What was handed out is worked on; keep it now and then."""
        if self.mode == "auto" and time.monotonic() - self._at > _EVERY:
            self._keep(reader, self._moved(reader), wait=False)

    def asked(self, reader: Reader) -> None:
        """The user says that it is time."""
        if self.offsets is None:
            self._keep(reader, dict(reader.next))
            return
        moved = self._moved(reader)
        here = {slot: (self._kept.get(slot), at) for slot, at in moved.items()}
        self.offsets.advance({**self._pending, **here})
        self._pending.clear()
        self._kept.update(moved)
        self._began.update(moved)

    def leaving(self, reader: Reader, slots: Iterable[Slot]) -> None:
        """Partitions go to another member: it must begin where this one has come to."""
        if self.mode in ("auto", "before"):
            with suppress(MillstreamError):
                self._keep(reader, self._moved(reader))
        self.losing(reader, slots)

    def losing(self, reader: Reader, slots: Iterable[Slot]) -> None:
        """Partitions are another member's.

        What was handed out of them and is not yet kept beside the result is kept with the next
        commit, or that commit fails because the other member has gone on: never both.
        """
        if self.mode != "beside":
            return
        for slot in slots:
            at = reader.next.get(slot)
            if at is not None and at != self._began.get(slot):
                self._pending[slot] = (self._kept.get(slot), at)

    def closing(self, reader: Reader) -> None:
        """The end: what was not handed out is left for the next."""
        if self.mode in ("auto", "before"):
            self._keep(reader, self._moved(reader))

    def _moved(self, reader: Reader) -> dict[Slot, int]:
        return {slot: at for slot, at in reader.next.items() if self._kept.get(slot) != at}

    def _keep(self, reader: Reader, places: Mapping[Slot, int], *, wait: bool = True) -> None:
        self._at = time.monotonic()
        reader.commit(places, wait=wait)
        self._kept.update(places)
