"""Merges the pieces of a batch with the stored sessions of their keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.operators.windows.panes.state import NEW_PARTS, numbers
from millstream.operators.windows.sessions.layout import FIRST, LAST, OPENED, SESSIONS, SUSPECT
from millstream.operators.windows.sessions.pieces import chain_heads
from millstream.state.arrays.numpy_columns import int_values, plain, taken
from millstream.state.combine import reduce_values
from millstream.state.keys.equality import canonical
from millstream.state.sorting import arrange, by_group, hashes_of
from millstream.state.spec import HASH, ORDER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.operators.windows.sessions.layout import Layout
    from millstream.operators.windows.sessions.points import Kept
    from millstream.state.runs.view import View

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]


@dataclass(slots=True)
class Met:
    """All sessions of some keys, with the batch added.

    `sessions` has one row each, its `_order` the index of its key in `keys`; `touched` marks
    those that the batch added to. `known` are those stored before, `into` the session each is
    now in (-1: none is left of it), and `continued` whether that is
    still the same window: one whose start has moved has been absorbed. `late` are the
    suspects that belong to none of them, `points` what is kept of rows that may be taken
    back.
    """

    keys: pa.Table
    sessions: pa.Table
    touched: Mask
    known: pa.Table
    into: Ints
    continued: Mask
    late: pa.Array | None = None
    points: Kept | None = None

    @property
    def firsts(self) -> Ints:
        """Each session's first time."""
        return numbers(self.sessions, FIRST)

    @property
    def lasts(self) -> Ints:
        """Each session's last time."""
        return numbers(self.sessions, LAST)

    def keys_of(self, rows: pa.Table) -> pa.Table:
        """The keys of rows of `sessions` or `known`."""
        return self.keys.take(rows[ORDER])


class Meeting:
    """The keys of the batch and the due keys, each with its pieces, sorted by hash."""

    def __init__(self, batch: pa.Table, due: Sequence[pa.Table], layout: Layout) -> None:
        names = [HASH, *layout.keys]
        every = pa.concat_tables([batch.select(names), *(table.select(names) for table in due)])
        count = every.num_rows
        order, starts, keys = arrange(
            np.zeros(count, np.int64), hashes_of(every), [plain(every[key]) for key in layout.keys]
        )
        order = np.arange(count) if order is None else order
        firsts = pa.array(starts)
        columns = {
            ORDER: pa.array(np.zeros(len(starts), np.int64)),
            HASH: plain(every[HASH]).take(pa.array(order[starts])),
            **{n: canonical(k.take(firsts)) for n, k in zip(layout.keys, keys, strict=True)},
        }
        self.keys = pa.table(columns)
        places = np.empty(count, np.int64)
        places[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=count))
        self._places = places[: batch.num_rows]
        self._batch = batch.drop_columns(names).combine_chunks()

    def chunks(self, view: View, size: int) -> Iterator[tuple[pa.Table, pa.Table]]:
        """The keys and their pieces, in chunks of about `size` bytes of sessions."""
        bytes_per_key = 64 + view.bytes // max(1, view.rows)
        bytes_per_key += self._batch.nbytes // max(1, self._batch.num_rows)
        step = max(1, size // bytes_per_key)
        for low in range(0, self.keys.num_rows, step):
            keys, part, places = self.keys.slice(low, step), self._batch, self._places
            if keys.num_rows < self.keys.num_rows:
                mine = np.flatnonzero((places >= low) & (places < low + step))
                part, places = taken(part, mine), places[mine] - low
            yield keys, part.add_column(0, ORDER, pa.array(places))


class Chaining:
    """Chains pieces and sessions of the same key that are at most `reach` apart."""

    def __init__(self, layout: Layout, reach: int) -> None:
        self._layout, self._reach = layout, reach

    def meet(
        self,
        keys: pa.Table,
        batch: pa.Table,
        state: Mapping[str, View],
        is_gone: Callable[[Ints], Mask],
        clock: int,
    ) -> Met:
        """The sessions of these keys; chains only of pieces whose time `is_gone` are late.

        New sessions are opened at this clock.
        """
        known = state[SESSIONS].find(keys)
        count = known.num_rows
        places, firsts, lasts = (
            np.concatenate([numbers(known, name), numbers(batch, name)])
            for name in (ORDER, FIRST, LAST)
        )
        order, starts, chain = _chains(places, firsts, lasts, self._reach)
        opens = order[starts]
        into = chain[:count]
        continued = firsts[:count] == firsts[opens][into]
        elements = self._elements(known, continued, batch, clock)
        sessions = pa.table({
            ORDER: pa.array(places[opens]),
            FIRST: pa.array(firsts[opens]),
            **reduce_values(elements, pa.array(order), starts, self._layout.in_both),
            **self._known_alone(known, into, len(starts)),
        })  # fmt: skip
        remembered, touched = np.zeros((2, len(starts)), np.bool_)
        remembered[into] = True
        touched[chain[count:]] = True
        late = ~remembered & is_gone(numbers(sessions, LAST))
        if not late.any():
            return Met(keys, sessions, touched, known, into, continued)
        stay = np.flatnonzero(~late)
        into = (np.cumsum(~late) - 1)[into]
        suspects = plain(batch[SUSPECT]).take(pa.array(np.flatnonzero(late[chain[count:]])))
        sessions = sessions.take(pa.array(stay))
        return Met(keys, sessions, touched[stay], known, into, continued, suspects)

    def _elements(self, known: pa.Table, continued: Mask, batch: pa.Table, clock: int) -> pa.Table:
        """The common columns of known sessions and pieces: rows of sessions, then of pieces.

        All rows of a piece, and of an absorbed session, are new to their session.
        """
        absorbed = np.flatnonzero(~continued)
        columns = {}
        for field in self._layout.in_both.value_fields:
            name = field.name
            part = name.removeprefix(NEW_PARTS)
            mine = plain(known[name])
            if part != name and len(absorbed):
                mine = _replaced(mine, plain(known[part]), absorbed)
            theirs = (
                pa.array(np.full(batch.num_rows, clock)) if name == OPENED else plain(batch[part])
            )
            columns[name] = pa.concat_arrays([mine, theirs.cast(field.type)])
        return pa.table(columns)

    def _known_alone(self, known: pa.Table, into: Ints, count: int) -> dict[str, pa.Array]:
        """The columns that only known sessions have, for `count` sessions; null for new ones."""
        order = np.argsort(into, kind="stable")
        starts = np.flatnonzero(np.diff(into[order], prepend=-1))
        found = reduce_values(known, pa.array(order), starts, self._layout.known_alone)
        at = np.full(count, -1)
        at[into[order[starts]]] = np.arange(len(starts))
        places = pa.array(at, mask=at < 0)
        return {name: values.take(places) for name, values in found.items()}


def _chains(places: Ints, firsts: Ints, lasts: Ints, reach: int) -> tuple[Ints, Ints, Ints]:
    """The permutation that sorts by chain, where each chain starts in it, each row's chain."""
    if len(places) == 0:
        return places, places, places
    order = by_group(places, firsts)
    new_key = np.ones(len(places), np.bool_)
    new_key[1:] = np.diff(places[order]) != 0
    heads = chain_heads(new_key, firsts[order], lasts[order], reach)
    chain = np.empty(len(order), np.int64)
    chain[order] = np.cumsum(heads) - 1
    return order, np.flatnonzero(heads), chain


def _replaced(values: pa.Array, by: pa.Array, places: Ints) -> pa.Array:
    """The values, replaced at these indices by those of another column."""
    at = np.arange(len(values))
    at[places] += len(values)
    return pa.concat_arrays([values, by]).take(pa.array(at))


def valid_numbers(rows: pa.Table, name: str, otherwise: int) -> Ints:
    """A column of integers, with a default for null."""
    column = plain(rows[name])
    return int_values(column.fill_null(otherwise) if column.null_count else column)
