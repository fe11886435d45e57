"""`millstream plan`: a pipeline described without Spark and Kafka."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cli.bids import pipeline_file

if TYPE_CHECKING:
    from tests.cli.command import Command


def test_a_plan_shows_steps_and_both_lanes(tmp_path: Path, offline: Command) -> None:
    said = offline.ok("plan", pipeline_file(tmp_path, "bids"))

    assert "  3. tumbling(auction)  from 2\n" in said.out
    assert "physical plan, wide lane: a batch of more than 4 MiB\n" in said.out
    assert "narrow lane: a batch of 4 MiB or less; while Spark starts, every batch" in said.out
    assert "one Kafka transaction per batch, from the driver: bids.out, bids.late, bids.dead" in (
        said.out
    )


def test_a_plan_says_where_its_sql_runs(tmp_path: Path, offline: Command) -> None:
    file = tmp_path / "where.py"
    file.write_text(
        "import millstream as ms\n"
        's = ms.read(ms.Topic("t", schema="a long, b double, at timestamp"), time="at")\n'
        'n = s.where("b > 1").by("a").window(ms.tumbling("1 s")).agg(n=ms.count())\n'
        'm = s.transform(lambda df: df).by("a").window(ms.tumbling("1 s")).agg(m=ms.max("b"))\n'
        'p = ms.Pipeline("p", n.where("n > 1").to(ms.Topic("x")),\n'
        '                m.where("m > 1").to(ms.Topic("y")), s.to(ms.Topic("z")))\n'
    )
    assert "wide lane: a batch of more than 4 MiB\n" in offline.ok("plan", str(file)).out
    plan = offline.ok("plan", str(file), "-o", "json").json
    wide, short = (
        {stage["name"]: stage["does"].get("SQL") for stage in lane["stages"]}
        for lane in plan["lanes"]
    )

    assert wide == {
        "tumbling(a)": "as Arrow columns, in the Python workers: no row goes to the JVM for it",
        "tumbling(a)#2": "by Spark, in the same tasks",
        "x": "as Arrow columns, in the Python workers: no row goes to the JVM for it",
        "y": "as Arrow columns in the Python workers, where types allow it, else by Spark",
        "z": None,
    }
    assert short == {
        "tumbling(a)": "as Arrow columns",
        "tumbling(a)#2": "by Spark, in a job over the decoded rows",
        "x": "as Arrow columns",
        "y": "as Arrow columns where types allow it, else by Spark in a job over the decoded rows",
        "z": None,
    }


def test_a_plan_for_programs_has_the_same_steps(tmp_path: Path, offline: Command) -> None:
    plan = offline.ok("plan", pipeline_file(tmp_path, "bids"), "-o", "json").json

    assert [step["step"] for step in plan["steps"]] == [
        "read bids", "where price > 0", "tumbling(auction)",
    ]  # fmt: skip
    assert [lane["lane"] for lane in plan["lanes"]] == ["wide", "narrow"]


def test_a_plan_starts_neither_spark_nor_kafka(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom millstream.cli.main import app\n"
        f"try: app(['plan', {pipeline_file(tmp_path, 'bids')!r}])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "print([m for m in ('pyspark', 'confluent_kafka') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stderr == "[]\n"


def test_a_mistake_is_reported_with_the_users_line(tmp_path: Path, offline: Command) -> None:
    file = tmp_path / "bad.py"
    for text, words in (
        ('import millstream as ms\nms.tumbling("0 seconds")\n', f"{file}:2: "),
        ("x = 1\nx.nothing\n", f"{file}:2 raised AttributeError"),
        ("x = (\n", f"{file}:1 needs to be Python"),
        ("import sys\nsys.exit(0)\n", f"{file}:2 raised SystemExit"),
        ("x = 1\n", f"{file} needs a pipeline at its top level"),
    ):
        file.write_text(text)
        said = offline("plan", str(file))
        assert said.code == 3, said
        assert said.err.startswith(f"error: {words}"), said.err
        assert "Traceback" not in said.err


def test_what_a_file_prints_goes_to_stderr(tmp_path: Path, offline: Command) -> None:
    file = tmp_path / "talks.py"
    file.write_text("print('hello')\n" + Path(pipeline_file(tmp_path, "bids")).read_text())
    said = offline.ok("plan", str(file), "-o", "json")

    assert said.json["pipeline"] == "bids"
    assert "hello" in said.err


def test_one_of_several_pipelines_is_chosen_by_name(tmp_path: Path, offline: Command) -> None:
    file = tmp_path / "two.py"
    file.write_text(
        "import millstream as ms\n"
        's = ms.read(ms.Topic("t", schema="a long"))\n'
        'p = ms.Pipeline("one", s.to(ms.Topic("x")))\n'
        'q = ms.Pipeline("two", s.to(ms.Topic("y")))\n'
    )

    assert offline.ok("plan", f"{file}:two").out.startswith("pipeline two\n")
    assert offline.ok("plan", f"{file}:p").out.startswith("pipeline one\n")
    assert offline("plan", str(file)).code == 2
    assert offline("plan", f"{file}:three").code == 4
    assert offline("plan", str(tmp_path / "none.py")).code == 4
    assert offline("plan", str(tmp_path)).code == 2
