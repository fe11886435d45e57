"""Compares a pipeline with its checkpoint: each step is kept, new, dropped or refused.

State belongs to a step's name and spec. A step whose spec has changed cannot use its old state,
and is refused before anything runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.engine.checkpoint import durable
from millstream.engine.checkpoint.stored_specs import spec_to_json
from millstream.engine.kernels.joins import join_spec
from millstream.errors import InvalidSpec
from millstream.operators.aggregates.functions import to_json
from millstream.operators.windows.by_rows.spec import PUNCTUATION, Delta, Punctuated
from millstream.operators.windows.sessions.spec import Session
from millstream.operators.windows.sliding.spec import Sliding
from millstream.plan.graph import Aggregated, Deduplicated, Processed, Ranked
from millstream.plan.join_graph import Join
from millstream.plan.table_graph import CurrentRows, FoldedRows, TableAggregated
from millstream.schema import Schema

if TYPE_CHECKING:
    from millstream.engine.checkpoint.checkpoint import Checkpoint
    from millstream.engine.kernels.kernels import Typed
    from millstream.plan.graph import Stateful


def spec_of(node: Stateful, typed: Typed) -> dict[str, Any]:
    """What a step's state depends on, as stored beside the state.

    `engine/inspection/inspect.py` can build the kernel from it: state is readable without the
    pipeline that wrote it.
    """
    sides = next(typed.columns[stage] for stage in typed.stages.stages if stage.step is node)
    if isinstance(node, Join):
        return join_spec(node, sides)
    columns = sides[0]
    spec: dict[str, Any] = {"kind": node.kind, "keys": list(node.keys)}
    if isinstance(node, Aggregated):
        read = [name for _, aggregate in node.aggregates for name in aggregate.columns]
        read += [node.window.column] if isinstance(node.window, Delta) else []
        read += [PUNCTUATION] if isinstance(node.window, Punctuated) else []
        return spec | {
            "input": _types(columns, [*node.keys, *read]),
            "window": spec_to_json(node.window),
            "aggregates": [[name, to_json(aggregate)] for name, aggregate in node.aggregates],
            "panes": _panes(node),
            "timed": node.input.time is not None,
            "corrected": node.input.corrects,
        }
    if isinstance(node, Deduplicated):
        keys = list(node.spec.by)
        return spec | {"input": _types(columns, keys), "within": node.spec.within}
    if isinstance(node, Processed):
        return spec | {"input": _types(columns, list(node.keys)),
                       "state": node.spec.state.ddl()}  # fmt: skip
    if isinstance(node, TableAggregated):
        read = [name for _, aggregate in node.aggregates for name in aggregate.columns]
        return spec | {
            "input": _types(columns, [*node.keys, *read]),
            "aggregates": [[name, to_json(aggregate)] for name, aggregate in node.aggregates],
            "timed": node.input.time is not None,
            "corrected": node.input.corrects,
            "of": list(node.of),
        }
    if isinstance(node, FoldedRows):
        return spec | {"input": _types(columns, list(node.keys)),
                       "state": node.spec.gives.ddl(),
                       "timed": node.input.time is not None}  # fmt: skip
    if isinstance(node, CurrentRows):
        spec |= {"order": node.spec.order, "database": node.spec.database,
                 "timed": node.input.time is not None}  # fmt: skip
    if isinstance(node, Ranked):
        spec |= {"n": node.spec.n, "by": node.spec.by}
    return spec | {"input": _types(columns, [n for n in columns.names if not n.startswith("_")])}


def _panes(node: Aggregated) -> dict[str, Any] | None:
    """What of a trigger and a late policy the state depends on: what panes show, not when.

    If sessions merge, or rows are retracted, it also depends on whether there are early panes.
    """
    if node.policy is None or isinstance(node.window, Sliding):
        return None
    trigger = node.policy.trigger
    takes_back = isinstance(node.window, Session) or node.input.corrects
    early = takes_back and trigger is not None and trigger.early is not None
    kind = {"kind": None if trigger is None else trigger.panes, "kept": node.policy.keep > 0}
    return kind | ({"early": True} if early else {})


def _types(columns: pa.Schema, names: list[str]) -> str:
    """The columns that a step's state is computed from, as DDL text."""
    used = pa.schema([(name, columns.field(name).type) for name in dict.fromkeys(names)])
    return Schema.from_arrow(used).ddl()


def compared(checkpoint: Checkpoint, typed: Typed) -> dict[str, str]:
    """Each step of the pipeline and of the checkpoint: kept, new, dropped or refused.

    A step without state, after a rewind to the start, is new even if its spec has changed.
    """
    verdicts: dict[str, str] = {}
    with_state = _steps_with_state(checkpoint)
    for name, node in typed.stages.steps.items():
        path = checkpoint.state_folder(name) / "spec"
        if not path.exists():
            if any(path.parent.glob("*/*.arrow")):
                raise durable.damaged(path, "no such file, though the step has state")
            verdicts[name] = "new"
        else:
            known = durable.read(path, "spec")["spec"]
            other = "refused" if with_state is None or name in with_state else "new"
            verdicts[name] = "kept" if known == spec_of(node, typed) else other
    for folder in sorted((checkpoint.folder / "state").iterdir()):
        if (folder / "spec").exists():
            name = durable.read(folder / "spec", "spec")["step"]
            verdicts.setdefault(name, "dropped")
    return verdicts


def _steps_with_state(checkpoint: Checkpoint) -> set[str] | None:
    """The steps that have state; None if an unfinished batch may add state to any step."""
    head = checkpoint.head()
    later = [batch for batch in checkpoint.batches("intent") if batch > head.batch]
    return None if later or not head.batch else set(head.steps)


def refuse_changes(checkpoint: Checkpoint, typed: Typed) -> None:
    """Stop before anything runs if a step's state no longer fits its spec."""
    verdicts = compared(checkpoint, typed)
    refused = [name for name, verdict in verdicts.items() if verdict == "refused"]
    if refused:
        raise InvalidSpec(
            f"the checkpoint {checkpoint.folder} needs unchanged steps",
            got=f"another spec for {', '.join(refused)}",
            do="give the step a new name= to start without state, or use another --checkpoint; "
            "`millstream check` compares the steps",
        )
    for name, node in typed.stages.steps.items():
        body = {"step": name, "spec": spec_of(node, typed)}
        path = checkpoint.state_folder(name) / "spec"
        if not durable.write_new(path, "spec", body) and verdicts[name] == "new":
            durable.replace(path, "spec", body)
