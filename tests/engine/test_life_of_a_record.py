"""`docs/life-of-a-record.md` is true: a real batch calls what it names, in its order."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import millstream as ms
from millstream.engine.engine import Engine

if TYPE_CHECKING:
    from types import FrameType

    from millstream.api.pipeline import EngineName
    from millstream.testing.local_broker import ThrowAwayBroker

PACKAGE = Path(ms.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "life-of-a-record.md"
START = 1_767_225_600_000

Call = tuple[str, str]  # a file of the package, and the function called there


def feed(address: str, topic: str, first: int) -> None:
    with ms.Producer(address) as producer:
        for second in range(first, first + 30, 3):
            row = {"auction": 1, "price": 2.5, "ts": START + second * 1000}
            producer.send(topic, json.dumps(row).encode())


def traced_batch(address: str, folder: Path, engine: EngineName) -> list[Call]:
    """The driver's calls of one batch that reads rows and closes windows, by a job with open
    windows."""
    topic = f"life.{engine}.bids"
    bids = ms.read(ms.Topic(topic, schema="auction long, price double, ts timestamp"), time="ts")
    windows = bids.where("price > 0").by("auction").window(ms.tumbling("10 seconds"))
    counts = windows.agg(n=ms.count())
    table = ms.Sqlite(folder / "counts.db", "counts", key=["auction", "window_start"])
    outputs = (counts.to(ms.Topic(f"life.{engine}.counts")), counts.to(table))
    pipeline = ms.Pipeline(f"life-{engine}", *outputs, engine=engine)

    def run() -> None:
        pipeline.run(until="caught_up", kafka=address, checkpoint=folder / "job", lane="narrow")

    ms.Topics(address).create(topic)
    feed(address, topic, 0)
    run()
    feed(address, topic, 30)
    calls: list[Call] = []

    def on_event(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(f"{PACKAGE}/"):
            calls.append((str(Path(code.co_filename).relative_to(PACKAGE)), code.co_qualname))

    step = Engine.step

    def traced(engine: Engine, **options: Any) -> Any:
        sys.setprofile(None if calls else on_event)
        try:
            return step(engine, **options)
        finally:
            sys.setprofile(None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "step", traced)
        run()
    return calls


@pytest.fixture(scope="module")
def calls(broker: ThrowAwayBroker, tmp_path_factory: pytest.TempPathFactory) -> list[Call]:
    return traced_batch(broker.address, tmp_path_factory.mktemp("life"), "driver")


def section(page: str, title: str) -> str:
    """The part of the page under a title."""
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def named(page: str) -> list[Call]:
    """The functions that a part of the page names, in its order."""
    return re.findall(r"`([\w/]+\.py)` · `([\w.]+)`", page)


def out_of_order(page: str, calls: list[Call]) -> list[Call]:
    """Functions of the page that are not called after the previous ones."""
    missing, at = [], 0
    for call in named(page):
        try:
            at = calls.index(call, at) + 1
        except ValueError:
            missing.append(call)
    return missing


def unnamed_folders(page: str, calls: list[Call]) -> set[str]:
    """Folders with called functions that the page does not mention."""
    mentioned = re.findall(r"`([\w/]+)/[\w.]*`", page)
    return {file.rpartition("/")[0] for file, _ in calls} - {*mentioned, ""}


def in_one_process() -> str:
    """The page without what Spark adds."""
    page = PAGE.read_text()
    return page.replace(section(page, "On Spark"), "")


def test_a_batch_calls_the_functions_of_the_page_in_its_order(calls: list[Call]) -> None:
    page = in_one_process()

    assert len(named(page)) > 40
    assert out_of_order(page, calls) == []


@pytest.mark.usefixtures("spark")
def test_on_spark_the_driver_leaves_reading_and_closing_to_a_task(
    broker: ThrowAwayBroker, tmp_path: Path
) -> None:
    page, calls = PAGE.read_text(), traced_batch(broker.address, tmp_path, "spark")
    on_driver = ("Plan: which records", "On Spark", "Sinks", "Commit")
    in_task = {
        call
        for title in ("Read: bytes become rows", "Close: rows become results")
        for call in named(section(page, title))
        if call[0].startswith(("engine/lanes/narrow.py", "operators/", "state/keys/"))
    }

    assert len(named(section(page, "On Spark"))) == 4
    assert out_of_order("".join(section(page, title) for title in on_driver), calls) == []
    assert len(in_task) > 4
    assert not in_task & set(calls)


def test_the_page_names_every_folder_that_a_batch_uses(calls: list[Call]) -> None:
    assert unnamed_folders(PAGE.read_text(), calls) == set()


def test_a_wrong_page_is_found(calls: list[Call]) -> None:
    page = in_one_process()
    first, second = (f"`{file}` · `{name}`" for file, name in named(page)[:2])
    swapped = page.replace(first, "%").replace(second, first).replace("%", second)

    assert out_of_order(page.replace("NarrowLane.read`", "NarrowLane.run`"), calls)
    assert out_of_order(swapped, calls) == [("engine/engine.py", "Engine.step")]
    assert unnamed_folders(page.replace("operators/aggregates/", "operators/"), calls)
