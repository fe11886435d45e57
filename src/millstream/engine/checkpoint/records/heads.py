"""Adds commits up: what a job knows after one of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from millstream.engine.checkpoint.protocol import (
    Head,
    Rewound,
    SourceState,
    StepChange,
    StepState,
    ends_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def head_at(batch: int, commit: Callable[[int], dict[str, Any]]) -> tuple[Head, int]:
    """The head after a batch, and the batch of the full commit that it was added up from."""
    chain: list[dict[str, Any]] = []
    number = batch
    while True:
        body = commit(number)
        chain.append(body)
        if body["full"] is not None:
            break
        number = body["parent"]
    head = _from_full(chain.pop())
    base = head.batch
    for body in reversed(chain):
        head = _next_head(head, body)
    return head, base


def full_of(head: Head) -> dict[str, Any]:
    """Everything in a head that commits hold as changes."""
    return {
        "sources": {name: asdict(state) for name, state in head.sources.items()},
        "steps": {name: state.to_json() for name, state in head.steps.items()},
    }


def _from_full(body: dict[str, Any]) -> Head:
    full = body["full"]
    steps = {name: StepState.from_json(part) for name, part in full["steps"].items()}
    return _head(body, _sources(full), steps)


def _next_head(head: Head, body: dict[str, Any]) -> Head:
    steps = dict(head.steps)
    for name, part in body["steps"].items():
        steps[name] = steps.get(name, StepState()).then(StepChange.from_json(part))
    return _head(body, {**head.sources, **_sources(body)}, steps)


def _sources(body: dict[str, Any]) -> dict[str, SourceState]:
    return {name: SourceState.from_json(part) for name, part in body["sources"].items()}


def _head(
    body: dict[str, Any], sources: dict[str, SourceState], steps: dict[str, StepState]
) -> Head:
    return Head(
        batch=body["batch"],
        intent=body["intent"],
        clock=body["clock"],
        sources=sources,
        steps=steps,
        written=body["written"],
        finished=body["finished"],
        ends=ends_of(body["ends"]),
        rewound=Rewound.from_json(body.get("rewound")),
        table_ends=ends_of(body.get("table_ends")) or {},
        ended=body.get("ended"),
    )
