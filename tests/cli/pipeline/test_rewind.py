"""`millstream rewind` and `millstream run --skip-lost`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.cli.bids import lines, pipeline_file, two_batches, windows
from tests.faults.broker_files import batch_places, flip, log_file
from tests.faults.record_files import names

import millstream as ms

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.command import Command

    from millstream.testing.local_broker import ThrowAwayBroker

pytestmark = pytest.mark.usefixtures("spark")


def records(millstream: Command, topic: str) -> list[dict[str, Any]]:
    return millstream.ok("tail", topic, "--from-beginning", "--until-end", "-o", "json").records


def test_a_job_is_rewound_into_new_outputs_then_again_in_those(
    millstream: Command, topic: str, tmp_path: Path
) -> None:
    folder = ["--checkpoint", str(tmp_path / "job")]
    file = pipeline_file(tmp_path, topic)
    millstream.ok("topics", "create", topic)
    for seconds in ([1, 2, 11], [12, 21]):
        millstream.ok("produce", topic, stdin=lines(seconds))
        millstream.ok("run", file, *folder, "--until", "caught-up")
    millstream.ok("produce", topic, "--format", "text", stdin="no JSON\n")
    said = millstream.ok("rewind", file, *folder, "--to", "start", "--into", "-2").err
    assert f"{topic} is back at the start, into outputs that end in -2; this was batch 3" in said
    millstream.ok("run", file, *folder, "--until", "caught-up")

    first = records(millstream, f"{topic}.out-2")
    assert windows(first) == windows(records(millstream, f"{topic}.out"))
    assert all(record["headers"] == [] for record in first)
    lanes = [row["lane"] for row in millstream.ok("commits", *folder, "-o", "json").json]
    assert lanes == ["narrow", "narrow", "rewind", "narrow"]
    [dead] = millstream.ok("dead", "list", file, *folder, "-o", "json").json
    assert (dead["source"], dead["waiting"]) == (topic, 1)
    assert "no dead rows in" in millstream.ok("dead", "list", file).err

    taken = millstream("rewind", file, *folder, "--to", "start", "--into", "-2")
    assert (taken.code, f"got the topic '{topic}.out-2'" in taken.err) == (2, True)

    millstream.ok("rewind", file, *folder, "--to", "3", "--again")
    millstream.ok("run", file, *folder, "--until", "caught-up")
    second = records(millstream, f"{topic}.out-2")
    assert windows(second) == sorted([*windows(first), *windows(first)])
    assert [record["headers"] for record in second[len(first) :]] == [
        [{"name": "millstream.again", "value": "5"}] for _ in first
    ]
    [dead] = millstream.ok("dead", "list", file, *folder, "-o", "json").json
    assert dead["waiting"] == 2
    assert "1 dead row" in millstream.ok("dead", "retry", file, *folder, "--dry-run").err


def test_what_cannot_be_rewound_is_refused_and_left_unchanged(
    millstream: Command, topic: str, tmp_path: Path
) -> None:
    folder = two_batches(millstream, topic, tmp_path)
    file = tmp_path / "hot.py"
    before = names(tmp_path / "job")

    def refused(*words: str) -> tuple[int, str]:
        said = millstream("rewind", str(file), *folder, *words)
        return said.code, said.err

    assert refused("--to", "1") == (
        2, "error: rewind needs one of --into SUFFIX and --again; got neither\n"
    )  # fmt: skip
    assert refused("--to", "99", "--again")[0] == 4
    assert refused("--to", "yesterday", "--again")[0] == 2
    assert refused("--to", "2000-01-01", "--again")[0] == 4
    offline = millstream("rewind", str(file), "--to", "1", "--again", "--checkpoint", "offline")
    assert offline.code == 4

    text = file.read_text()
    table = 'hot.to(ms.Postgres("rows", url="postgresql://localhost:1/none")), hot.to('
    file.write_text(text.replace("hot.to(", table))
    code, said = refused("--to", "1", "--again")
    assert code == 2
    assert "which only appends: its rows would be duplicated; give it a key=" in said
    function = "hot.to(ms.Function(print), name='f'), hot.to("
    file.write_text(text.replace("hot.to(", function))
    assert "sinks with a topic, a table or a path" in refused("--to", "1", "--into", "-2")[1]
    file.write_text(text)

    ms.Topics(millstream.environment["MILLSTREAM_KAFKA"]).truncate(topic, {0: 2})
    code, said = refused("--to", "start", "--again")
    assert code == 6
    assert "2 records are gone" in said
    assert names(tmp_path / "job") == before


def test_a_job_continues_without_lost_records_only_with_skip_lost(
    millstream: Command, topic: str, tmp_path: Path
) -> None:
    folder = two_batches(millstream, topic, tmp_path)
    file = str(tmp_path / "hot.py")
    millstream.ok("produce", topic, stdin=lines([13, 14, 15, 31]))
    ms.Topics(millstream.environment["MILLSTREAM_KAFKA"]).truncate(topic, {0: 9})

    stopped = millstream("run", file, *folder, "--until", "caught-up")
    assert stopped.code == 6
    assert "2 records are gone; continue without them by `millstream run" in stopped.err
    continued = millstream.ok("run", file, *folder, "--until", "caught-up", "--skip-lost")
    assert f"warning: {topic}/0: 2 records from offset 7 on are skipped" in continued.err
    assert windows(records(millstream, f"{topic}.out"))[-1] == ("2026-01-01T00:00:10.000000Z", 3)
    again = millstream.ok("run", file, *folder, "--until", "caught-up", "--skip-lost")
    assert "skipped" not in again.err


def test_a_job_continues_after_a_damaged_record_batch_with_skip_damaged(
    millstream: Command, broker: ThrowAwayBroker, topic: str, tmp_path: Path
) -> None:
    folder = two_batches(millstream, topic, tmp_path)
    file = str(tmp_path / "hot.py")
    before = len(batch_places(log_file(broker, topic).read_bytes()))
    for seconds in ([13, 14], [31]):
        millstream.ok("produce", topic, stdin=lines(seconds))
    offset = flip(broker, topic, batch=before)

    for _ in range(2):
        stopped = millstream("run", file, *folder, "--until", "caught-up")
        assert stopped.code == 6
        assert f"{topic}/0 needs an intact record batch at offset {offset}; got" in stopped.err
        assert "continue after that batch by `millstream run … --skip-damaged`" in stopped.err
    continued = millstream.ok("run", file, *folder, "--until", "caught-up", "--skip-damaged")
    skipped = f"{topic}/0: damaged offsets {offset} to {offset + 1} (up to 2 records) are skipped"
    assert f"warning: {skipped}" in continued.err
    lanes = [row["lane"] for row in millstream.ok("commits", *folder, "-o", "json").json]
    assert lanes.count("skip") == 1
    again = millstream.ok("run", file, *folder, "--until", "caught-up", "--skip-damaged")
    assert "skipped" not in again.err


def test_a_checkpoint_says_of_each_step_whether_it_is_kept_new_dropped_or_refused(
    millstream: Command, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "steps.py"
    folder = ["--checkpoint", str(tmp_path / "job")]

    def steps(*names: str, size: str = "10 seconds") -> str:
        made = ", ".join(
            f'rows.by("auction").window(ms.tumbling("{size if name == "b" else "10 seconds"}"))'
            f'.agg(n=ms.count(), name="{name}").to(ms.Topic("{topic}.{name}"))'
            for name in names
        )
        file.write_text(
            "import millstream as ms\n"
            f'rows = ms.read(ms.Topic("{topic}", schema="auction long, ts timestamp"), time="ts")\n'
            f'pipeline = ms.Pipeline("{topic}", {made})\n'
        )
        return str(file)

    millstream.ok("topics", "create", topic)
    millstream.ok("produce", topic, stdin=lines([1]))
    millstream.ok("run", steps("a", "b", "c"), *folder, "--until", "caught-up")
    said = millstream("check", steps("a", "b", "d", size="20 seconds"), *folder, "-o", "json")
    assert said.code == 3
    assert {row["step"]: row["verdict"] for row in said.json[0]["steps"]} == {
        "a": "kept", "b": "refused", "d": "new", "c": "dropped",
    }  # fmt: skip


def test_files_are_read_and_written_again_without_kafka(offline: Command, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"k": 1}\n{"k": 2}\n')
    file, folder = tmp_path / "files.py", ["--checkpoint", str(tmp_path / "job")]
    file.write_text(
        "import millstream as ms\n"
        f'rows = ms.read(ms.Files("{tmp_path}/in", format="json", schema="k long"))\n'
        f'pipeline = ms.Pipeline("files", rows.to(ms.Files("{tmp_path}/out", format="json")))\n'
    )

    def out(folder: str = "out") -> list[str]:
        return sorted(path.read_text() for path in (tmp_path / folder).glob("*.json"))

    offline.ok("run", str(file), *folder, "--until", "caught-up")
    (tmp_path / "in" / "b.json").write_text('{"k": 3}\n')
    offline.ok("run", str(file), *folder, "--until", "caught-up")
    whole = out()
    offline.ok("rewind", str(file), *folder, "--to", "1", "--again")
    assert out() == ['{"k":1}\n{"k":2}\n']
    offline.ok("run", str(file), *folder, "--until", "caught-up")
    assert out() == whole
    offline.ok("rewind", str(file), *folder, "--to", "start", "--into", "-2")
    said = offline.ok("run", str(file), *folder, "--until", "caught-up")
    assert "its outputs end in -2" in said.err
    assert out("out-2") == ['{"k":1}\n{"k":2}\n{"k":3}\n']
    assert out() == whole


def test_a_job_that_never_ran_cannot_be_rewound(
    offline: Command, topic: str, tmp_path: Path
) -> None:
    said = offline("rewind", pipeline_file(tmp_path, topic), "--to", "start", "--again", "--kafka",
                   "localhost:1")  # fmt: skip
    assert said.code == 4
    assert "run the pipeline first" in said.err
