"""A pipeline against its checkpoint: per step kept, new, dropped or refused.

State belongs to a step's name and spec. A step whose spec has changed cannot use the
state it finds, and says so before anything runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.errors import InvalidSpec
from millstream.plan.graph import Aggregated, Deduplicated
from millstream.runtime import durable
from millstream.schema import Schema

if TYPE_CHECKING:
    from millstream.plan.graph import Stateful
    from millstream.runtime.checkpoint import Checkpoint
    from millstream.runtime.kernels import Typed


def spec_of(node: Stateful, typed: Typed) -> dict[str, Any]:
    """What a step's state depends on, as it is kept beside the state.

    A kernel can be made from it again (`runtime/inspect.py`): state is readable without
    the pipeline that wrote it.
    """
    columns = next(typed.columns[stage] for stage in typed.stages.stages if stage.step is node)
    if isinstance(node, Aggregated):
        read = (aggregate.column for _, aggregate in node.aggregates)
        return {
            "kind": node.kind,
            "input": _types(columns, [*node.keys, *filter(None, read)]),
            "keys": list(node.keys),
            "window": {"size": node.window.size, "offset": node.window.offset},
            "aggregates": [[n, type(a).__name__.lower(), a.column] for n, a in node.aggregates],
        }
    assert isinstance(node, Deduplicated)
    keys = list(node.spec.by)
    return {"kind": node.kind, "input": _types(columns, keys), "keys": keys,
            "within": node.spec.within}  # fmt: skip


def _types(columns: pa.Schema, names: list[str]) -> str:
    """The columns a step's state is made from, as DDL text."""
    used = pa.schema([(name, columns.field(name).type) for name in dict.fromkeys(names)])
    return Schema.from_arrow(used).ddl()


def compared(checkpoint: Checkpoint, typed: Typed) -> dict[str, str]:
    """Each step of the pipeline and of the checkpoint: kept, new, dropped or refused."""
    verdicts: dict[str, str] = {}
    for name, node in typed.stages.steps.items():
        path = checkpoint.state_folder(name) / "spec"
        if not path.exists():
            if any(path.parent.glob("*.arrow")):
                raise durable.damaged(path, "no such file, though the step has state")
            verdicts[name] = "new"
        else:
            known = durable.read(path, "spec")["spec"]
            verdicts[name] = "kept" if known == spec_of(node, typed) else "refused"
    for folder in sorted((checkpoint.folder / "state").iterdir()):
        if (folder / "spec").exists():
            name = durable.read(folder / "spec", "spec")["step"]
            verdicts.setdefault(name, "dropped")
    return verdicts


def refuse_changes(checkpoint: Checkpoint, typed: Typed) -> None:
    """Stop before anything runs if a step's state no longer fits its spec."""
    verdicts = compared(checkpoint, typed)
    refused = [name for name, verdict in verdicts.items() if verdict == "refused"]
    if refused:
        raise InvalidSpec(
            f"the checkpoint {checkpoint.folder} needs its steps as they were",
            got=f"another spec for {', '.join(refused)}",
            do="give the step a new name= to begin it anew, or use another --checkpoint; "
            "`millstream check` shows what fits",
        )
    for name, node in typed.stages.steps.items():
        body = {"step": name, "spec": spec_of(node, typed)}
        durable.write_new(checkpoint.state_folder(name) / "spec", "spec", body)
