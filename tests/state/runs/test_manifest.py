"""Changes to the list of runs: what leaves, what comes, and what is refused."""

from __future__ import annotations

import json

import pytest

from millstream.errors import InvalidInput
from millstream.state.runs.manifest import Change, Manifest
from millstream.state.runs.runs import Run, Segment


def run(name: str, *orders: tuple[int, int]) -> Run:
    width = 256 // max(len(orders), 1)
    segments = tuple(
        Segment(f"{name}{i}.arrow", width * i, width * (i + 1), 1, 10, least, greatest, 0)
        for i, (least, greatest) in enumerate(orders)
    )
    return Run(name, segments)


def ids(manifest: Manifest) -> list[str]:
    return [run.id for run in manifest.runs]


THREE = Manifest().apply(Change(add=(run("a", (0, 5)), run("b", (3, 9)), run("c", (7, 20)))))


def test_runs_are_appended_and_merged_ones_replace_their_inputs() -> None:
    after = THREE.apply(Change(add=(run("d", (1, 2)),), replace=((("a", "b"), run("m", (0, 9))),)))
    assert ids(after) == ["m", "c", "d"]
    assert ids(THREE) == ["a", "b", "c"]


def test_a_merge_of_an_older_manifest_applies_after_runs_were_added() -> None:
    grown = THREE.apply(Change(add=(run("d", (1, 2)),)))
    assert ids(grown.apply(Change(replace=((("b", "c"), run("m", (3, 20))),)))) == ["a", "m", "d"]


def test_segments_entirely_below_the_floor_are_removed() -> None:
    manifest = Manifest((run("a", (0, 4), (0, 5)), run("b", (0, 4))))
    after = manifest.apply(Change(floor=5))
    assert after.files == {"a1.arrow"}
    assert after.floor == 5
    assert after.apply(Change(floor=3)).floor == 5


def test_a_merge_that_left_nothing_leaves_no_run() -> None:
    assert ids(THREE.apply(Change(replace=((("a", "b"), run("m")),)))) == ["c"]


@pytest.mark.parametrize("merged", [("a", "c"), ("b", "a"), ("x",), ("c", "x"), ()])
def test_a_merge_of_runs_that_are_not_adjacent_is_refused(
    merged: tuple[str, ...],
) -> None:
    with pytest.raises(InvalidInput, match=r"to be adjacent: .*; got a, b, c; drop the merge"):
        THREE.apply(Change(replace=((merged, run("m", (0, 9))),)))


def test_a_run_is_not_added_twice() -> None:
    with pytest.raises(InvalidInput, match="a run needs a unique id; got a again"):
        THREE.apply(Change(add=(run("a", (0, 5)),)))


def test_changes_and_manifests_survive_json() -> None:
    change = Change((run("d", (1, 2)),), ((("a",), run("m", (0, 9), (1, 1))),), floor=-(2**63))
    assert Change.from_json(json.loads(json.dumps(change.to_json()))) == change
    assert Manifest.from_json(json.loads(json.dumps(THREE.to_json()))) == THREE
