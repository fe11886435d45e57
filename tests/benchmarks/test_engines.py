"""The engines of the benchmarks: environments, settings on the page, and exclusions."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from benchmarks.__main__ import COMPARED, main, taking_part
from benchmarks.abilities import WHY_NOT, why_not
from benchmarks.engines.librdkafka import drained, milliseconds, moment
from benchmarks.measure import Cost
from benchmarks.page import ROWS, SETTINGS
from benchmarks.page_rows import drained as by_cpu
from benchmarks.processes import ENGINES, WHEN_NAMED

from benchmarks import cells, page, report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOLDER = Path(report.__file__).parent / "engines"
ALONE = [*FOLDER.glob("flink_*.py"), FOLDER / "librdkafka.py",
         *(FOLDER / f"{name}_engine.py" for name in WHEN_NAMED)]  # fmt: skip
DRAINED = [name for name, row in ROWS.items() if row.show is by_cpu]
CARRIED = ("benchmarks.processes", "benchmarks.measure", "benchmarks.engines.librdkafka",
           "benchmarks.engines.flink_queries")  # fmt: skip


def module_of(engine: str) -> Path:
    return FOLDER / f"{engine.partition('-')[0]}_engine.py"


def imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def works(file: Path) -> set[str]:
    """The keys of the dictionary that a module calls WORKS."""
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "WORKS":
            assert isinstance(node.value, ast.Dict)
            return {ast.literal_eval(key) for key in node.value.keys if key is not None}
    raise AssertionError(f"{file.name} has no WORKS")


def test_every_engine_has_a_module_and_a_text_of_its_settings() -> None:
    assert {engine for engine in ENGINES if not module_of(engine).exists()} == {"duckdb"}
    assert list(SETTINGS) == list(ENGINES)


@pytest.mark.parametrize("file", ALONE, ids=lambda file: file.stem)
def test_an_engine_with_its_own_environment_does_not_import_millstream(file: Path) -> None:
    names = list(imported(file))

    assert not [name for name in names if name.partition(".")[0] == "millstream"]
    assert not [name for name in names if name.startswith("benchmarks") and name not in CARRIED]


def test_benchmark_modules_that_these_engines_import_do_not_need_millstream() -> None:
    code = (
        "import importlib, sys; sys.modules['millstream'] = None\n"
        f"for name in {CARRIED!r}: importlib.import_module(name)"
    )

    subprocess.run([sys.executable, "-c", code], check=True, cwd=FOLDER.parent.parent)


@pytest.mark.parametrize("engine", WHEN_NAMED)
def test_a_peer_does_the_rows_it_is_not_excused_from(engine: str) -> None:
    due = {row.partition("-")[0] for row in DRAINED if engine not in WHY_NOT.get(row, {})}

    assert works(module_of(engine)) == due


def test_only_known_engines_are_excused_from_known_rows() -> None:
    assert set(WHY_NOT) <= set(DRAINED) <= set(COMPARED)
    assert {engine for excused in WHY_NOT.values() for engine in excused} <= set(ENGINES)


def test_slow_peers_run_when_named_or_in_a_whole_run() -> None:
    everyday = tuple(engine for engine in ENGINES if engine not in WHEN_NAMED)

    assert taking_part("", whole=False) == everyday
    assert taking_part("", whole=True) == ENGINES
    assert taking_part("quix", whole=False) == ("millstream", "quix")
    assert taking_part("quix,spark-heap", whole=True) == ("millstream", "spark-heap", "quix")


def test_a_whole_run_continues_with_the_rows_without_a_result_of_this_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A void row is no end: those after it are measured, and the run says that not all is right."""
    measured: list[str] = []
    runs = {row: _measuring(row, measured, right=row != "q1") for row in COMPARED}
    monkeypatch.setattr("benchmarks.__main__.COMPARED", runs)
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr(report, "commit", lambda: "abc1234")
    (tmp_path / "decode.json").write_text('{"commit": "abc1234"}')
    (tmp_path / "session.json").write_text('{"commit": "0ff481e"}')

    assert main(["--all"]) == 1
    assert measured == [row for row in COMPARED if row != "decode"]

    measured.clear()
    monkeypatch.setattr(report, "commit", lambda: "abc1234+")
    (tmp_path / "decode.json").write_text('{"commit": "abc1234+"}')
    main(["--all"])
    assert measured == [*COMPARED]


def _measuring(row: str, measured: list[str], *, right: bool) -> Callable[[Any], bool]:
    def measure(_engines: Any) -> bool:
        measured.append(row)
        return right

    return measure


def test_an_environment_that_cannot_be_created_is_a_reason_to_exclude_an_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "WARNING: slow\nERROR: No matching distribution found for pathway==9\nbye\n"

    def fail(command: Any, **_options: Any) -> None:
        raise subprocess.CalledProcessError(1, command, stderr=said)

    monkeypatch.setenv("MILLSTREAM_CACHE", str(tmp_path))
    monkeypatch.setattr(subprocess, "run", fail)

    assert why_not("q1", "pathway") == (
        "cannot be installed: No matching distribution found for pathway==9"
    )
    assert why_not("session", "pathway") == WHY_NOT["session"]["pathway"]
    assert why_not("q1", "millstream") == ""


def test_an_excluded_engine_is_on_the_page_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr(cells, "ROUNDS", 2)
    asked: list[str] = []

    def cell(engine: str) -> report.Round:
        asked.append(engine)
        return {"cpu": 2.0, "wall": 1.0, "check": {"checked": 5, "faults": {"wrong": 0}}}

    assert cells.turns("session", ("millstream", "quix"), cell)
    page.main(tmp_path, tmp_path)

    assert asked == ["millstream"] * 2
    reason = WHY_NOT["session"]["quix"]
    assert json.loads((tmp_path / "session.json").read_text())["absent"] == {"quix": reason}
    [line] = [line for line in (tmp_path / "benchmarks.md").read_text().splitlines()
              if line.startswith("| quix")]  # fmt: skip
    assert line.endswith(f"| – | – | {reason} |")


def test_a_slow_engine_may_have_a_single_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr(cells, "ROUNDS", 3)
    monkeypatch.setattr(cells, "ONCE", ("bytewax",))
    asked: list[str] = []

    def cell(engine: str) -> report.Round:
        asked.append(engine)
        cpu = 8.0 if engine == "bytewax" else float(len(asked))
        return {"cpu": cpu, "wall": 1.0, "check": {"checked": 5, "faults": {"wrong": 0}}}

    assert cells.turns("session", ("millstream", "bytewax"), cell)
    page.main(tmp_path, tmp_path)

    assert asked == ["millstream", "bytewax", "millstream", "millstream"]
    text = (tmp_path / "benchmarks.md").read_text()
    assert "3 rounds (bytewax 1)" in text
    [line] = [line for line in text.splitlines() if line.startswith("| bytewax")]
    assert "| 8.00× |" in line


def test_a_stopped_benchmark_ends_the_processes_it_started() -> None:
    code = (
        "import subprocess, sys\n"
        "from benchmarks.__main__ import ends_on_sigterm\n"
        "ends_on_sigterm()\n"
        "engine = subprocess.Popen(['sleep', '60'])\n"
        "try:\n"
        "    print('started', flush=True)\n"
        "    engine.wait()\n"
        "finally:\n"
        "    engine.kill()\n"
        "    print('ended', flush=True)\n"
    )
    bench = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True,
                             cwd=FOLDER.parent.parent)  # fmt: skip
    assert bench.stdout is not None
    assert bench.stdout.readline() == "started\n"
    bench.terminate()

    assert bench.communicate(timeout=60)[0] == "ended\n"
    assert bench.returncode == 143


def test_durations_and_moments_are_read_and_written_in_milliseconds() -> None:
    assert milliseconds("10 seconds") == 10_000
    assert milliseconds("1 second") == 1_000
    assert milliseconds("250 milliseconds") == 250
    assert moment(1_767_225_600_007) == "2026-01-01T00:00:00.007000+00:00"


def test_a_peer_warms_up_into_another_topic_and_reports_the_second_run() -> None:
    runs: list[dict[str, Any]] = []

    def run(_address: str, spec: dict[str, Any]) -> Cost:
        runs.append(spec)
        return Cost(wall=float(len(runs)), cpu=10.0 * len(runs))

    figures = drained("here:1", {"topic": "bids", "warm": "few", "out": "answers"}, run)

    assert figures == {"wall": 2.0, "cpu": 20.0}
    assert [one["topic"] for one in runs] == ["few", "bids"]
    assert runs[0]["out"] != runs[1]["out"] == "answers"
