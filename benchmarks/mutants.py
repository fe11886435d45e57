"""Do the kernels' tests notice a wrong kernel? Faults are planted one by one, and must be caught.

    python -m benchmarks.mutants [--kernel tumbling|sums|…|distinct] [--jobs 2]

Each mutation replaces one piece of source in a copy of the package and runs the tests of
that kernel against the copy. It is caught when a test fails. Exit 1 if one survives, 2 if
the tests fail without any mutation or a mutation no longer fits the source.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

from benchmarks import join_mutants, pane_mutants, row_window_mutants, table_mutants
from benchmarks.aggregate_mutants import FAULTS, TESTS

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "millstream"
SECONDS = 240
ANSWERS_NOT_COSTS = "not quickly and not million and not number_of_calls"


@dataclass(frozen=True)
class Mutation:
    """One planted fault: in `file`, the only `right` becomes `wrong`."""

    file: str
    right: str
    wrong: str


def planted(file: str, *faults: tuple[str, str]) -> tuple[Mutation, ...]:
    """The faults of one file."""
    return tuple(Mutation(file, right, wrong) for right, wrong in faults)


BOUNDS = planted(
    "operators/windows/fixed/bounds.py",
    ("np.where(times < MIN_TIME + into, MIN_TIME, times - into)", "times - into"),
    ("np.minimum(starts, END_OF_TIME - 1)", "starts"),
    ("np.where(starts > END_OF_TIME - left, END_OF_TIME, starts + left)", "starts + left"),
    ("starts > END_OF_TIME - left", "starts >= END_OF_TIME - left - 1"),
    ("window.size - _into(starts, window)", "window.size + 0 * starts"),
    ("times % window.size", "np.fmod(times, window.size)"),
    ("(into - window.offset)", "(into + window.offset)"),
    ("np.array([watermark], np.int64)", "np.array([watermark - 1], np.int64)"),
    ("if watermark == END_OF_TIME:", "if watermark > END_OF_TIME:"),
)
TUMBLING = planted(
    "operators/windows/fixed/tumbling_kernel.py",
    ("gone = starts < first_open(", "gone = starts <= first_open("),
    ("first_open(batch_time.before, self.spec)", "first_open(batch_time.after, self.spec)"),
    ("np.flatnonzero(~gone)", "np.arange(len(gone))"),
    ("as_windows(starts[late], ends_of", "as_windows(late, ends_of"),
    (
        "floor = first_open(batch_time.after, self.spec)",
        "floor = first_open(batch_time.before, self.spec)",
    ),
    ("_between(orders, floor, END_OF_TIME)", "_between(orders, MIN_TIME, END_OF_TIME)"),
    ("_between(orders, floor, END_OF_TIME)", "_between(orders, floor + 1, END_OF_TIME)"),
    ("_between(orders, MIN_TIME, floor)", "_between(orders, MIN_TIME, floor - 1)"),
    ("scan(MIN_TIME, floor)", "scan(MIN_TIME, floor - 1)"),
    ('hashes[first:last], hashed, "right"', 'hashes[first:last], hashed, "left"'),
    ("taken = upto", "taken = 0"),
    ("yield from self._finished(closing.slice(taken))", "yield from ()"),
    ("self.spec)[0]) - 1", "self.spec)[0])"),
)
MORE = (row_window_mutants, pane_mutants, join_mutants, table_mutants)
ALL_FAULTS = FAULTS | {file: pairs for more in MORE for file, pairs in more.FAULTS.items()}
ALL_TESTS = TESTS | {name: tests for more in MORE for name, tests in more.TESTS.items()}
IN_FILES = {
    name: (tuple(m for file in files for m in planted(file, *ALL_FAULTS[file])), tests)
    for name, (files, tests) in ALL_TESTS.items()
}
DISTINCT = planted(
    "operators/distinct/kernel.py",
    ("late = times < max(", "late = times <= max("),
    ("max(MIN_TIME, batch_time.before - self.spec.within)", "batch_time.before"),
    ("late[:] = True", "pass"),
    ("orders = int_values(plain(rows[TIME]))", "orders = np.zeros(rows.num_rows, np.int64)"),
    ("by_key[starts], rows.num_rows)\n        return rows.take",
     "by_key[np.append(starts[1:], len(by_key)) - 1], rows.num_rows)\n        return rows.take"),
    ("self._without_repeats(_in_origin_order(rows))", "self._without_repeats(rows)"),
    ("rows = _in_origin_order(pa.concat_tables(inputs))", "rows = pa.concat_tables(inputs)"),
    ("new = ~found", "new = np.ones_like(found)"),
    ("_ascending(firsts[new], rows.num_rows)", "firsts[new]"),
    ("_ascending(passed, rows.num_rows), combine(gained", "passed, combine(gained"),
    ("(-1, 0, 1) if within", "(0, 1) if within"),
    ("(-1, 0, 1) if within", "(-1, 0) if within"),
    ("(-1, 0, 1) if within", "(-1, 1) if within"),
    ("np.abs(times - at) <= within", "np.abs(times - at) < within"),
    ("np.abs(times - at) <= within", "np.abs(times - at) <= within + 1"),
    ("found[asker] & (", "("),
    (" | (cells[1:] != cells[:-1])", ""),
    ("(groups[1:] != groups[:-1]) | ", ""),
    ("passed, at // (within + 1))", "passed, at // (within + 2))"),
    ("watermark - 2 * self.spec.within", "watermark - self.spec.within"),
    ("watermark - 2 * self.spec.within", "watermark - 3 * self.spec.within"),
    ("if floor is not None:", "if floor is None:"),
    ("np.lexsort((times, groups))", "np.lexsort((groups, times))"),
    ("groups[free], times[free], arrivals[free]", "groups, times, arrivals"),
    ("(plain(rows[name])) for name in ORIGIN]", "(plain(rows[name])) for name in ORIGIN[2:0:-1]]"),
)  # fmt: skip
APART = planted(
    "operators/distinct/non_overlapping.py",
    ("gaps <= np.uint64(within)", "gaps < np.uint64(within)"),
    ("(groups[1:] == groups[:-1]) & ", ""),
    ("first_of, -1, within) - 1", "first_of, -1, within)"),
    ("np.maximum(out_of_reach, last_smaller(arrivals))", "out_of_reach"),
    ("np.maximum(out_of_reach, last_smaller(arrivals))", "last_smaller(arrivals)"),
    ("takes_over < first_of", "takes_over <= first_of"),
    ("np.cumsum(heads) - heads", "np.cumsum(heads) - 1"),
    ("1, within) + 1", "1, within)"),
    ("beyond > last_of[head_rows]", "beyond >= last_of[head_rows]"),
    ("away <= np.uint64(within)", "away < np.uint64(within)"),
    ("minima[left] < values[rows]", "minima[left] <= values[rows]"),
    ("climbing = ~hit & (nodes > 1)", "climbing = ~hit & (nodes > 2)"),
    ("levels[level][nodes] >= values[rows]", "levels[level][nodes] < values[rows]"),
    ("head_rows[walked(head_at[firsts], follows)]", "head_rows"),
)
KERNELS = {
    "tumbling": (BOUNDS + TUMBLING, ["tests/operators/windows"]),
    **IN_FILES,
    "distinct": (DISTINCT + APART, ["tests/operators/test_distinct_apart.py",
                                    "tests/operators/distinct/test_kernel.py"]),
}  # fmt: skip

# The copy is what is tested; without shrinking, and with the same examples every time.
PROFILE = """
import pathlib
import hypothesis
import millstream

assert pathlib.Path(millstream.__file__).parent.parent == pathlib.Path(__file__).parent

def pytest_configure(config):
    hypothesis.settings.register_profile(
        "mutants", hypothesis.settings.get_profile("millstream"), derandomize=True,
        database=None, print_blob=False, phases=[hypothesis.Phase.generate],
    )
    hypothesis.settings.load_profile("mutants")
"""


def main() -> int:
    """Plant, run, report."""
    options = _options()
    chosen = {
        name: [m for m in KERNELS[name][0] if options.only in m.right]
        for name in options.kernel or sorted(KERNELS)
    }
    unfit = [m for found in chosen.values() for m in found if _source(m).count(m.right) != 1]
    for mutation in unfit:
        print(f"does not fit {mutation.file}: {mutation.right!r}")
    if unfit or not all(_baseline(name) for name in chosen):
        return 2
    survivors = sum(_report(name, found, options.jobs) for name, found in chosen.items())
    print(f"{survivors} not caught" if survivors else "all caught")
    return 1 if survivors else 0


def _options() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    arguments.add_argument("--kernel", choices=sorted(KERNELS), action="append")
    arguments.add_argument("--only", default="", help="mutations of source with this text in it")
    arguments.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    return arguments.parse_args()


def _report(name: str, mutations: list[Mutation], jobs: int) -> int:
    """Run the mutations of one kernel, a line for each; how many were not caught."""
    missed, tests = 0, KERNELS[name][1]
    with ThreadPoolExecutor(jobs) as pool:
        runs = pool.map(_run, mutations, repeat(tests))
        for mutation, found in zip(mutations, runs, strict=True):
            missed += found not in ("caught", "hung")
            print(f"{found:9} {mutation.file}: {_line(mutation)}", flush=True)
    print(f"{name}: {len(mutations)} mutations, {missed} not caught", flush=True)
    return missed


def _source(mutation: Mutation) -> str:
    return (PACKAGE / mutation.file).read_text()


def _line(mutation: Mutation) -> str:
    right, wrong = (" ".join(text.split()) for text in (mutation.right, mutation.wrong))
    return f"{right}  →  {wrong or 'nothing'}"


def _baseline(name: str) -> bool:
    started = time.monotonic()
    found = _run(None, KERNELS[name][1])
    passed = "pass" if found == "survived" else "do not pass"
    print(f"{name}: tests {passed} without a mutation, {time.monotonic() - started:.0f} s")
    return found == "survived"


def _run(mutation: Mutation | None, tests: list[str]) -> str:
    """The tests against a copy of the package: `survived`, `caught`, `hung`, or they `broke`."""
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "millstream"
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        if mutation is not None:
            text = _source(mutation).replace(mutation.right, mutation.wrong)
            (copy / mutation.file).write_text(text)
        (Path(place) / "mutants_profile.py").write_text(PROFILE)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "mutants_profile",
                   "-k", ANSWERS_NOT_COSTS, "--timeout", str(SECONDS // 2), *tests]  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": place, "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            ended = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True,
                timeout=SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "hung"
    return {0: "survived", 1: "caught"}.get(ended.returncode, f"broke ({ended.returncode})")


if __name__ == "__main__":
    sys.exit(main())
