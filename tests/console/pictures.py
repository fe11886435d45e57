"""`make screenshots`: the pictures of the docs, taken of a real demo at work."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import expect
from tests.cli.command import COMMAND
from tests.console.browsing import PATIENCE, browser

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Page

FOLDER = Path(__file__).parent.parent.parent / "docs" / "pictures"
LINK = re.compile(r"http://127\.0\.0\.1:\d+/#token=\S+")
JOB, TOPIC = "shop-views", "shop.views"
AT_WORK = 75.0


@contextmanager
def demo() -> Iterator[str]:
    """The page link of a demo that has been running for a while, in a temporary home."""
    with tempfile.TemporaryDirectory() as home:
        said: list[str] = []
        process = subprocess.Popen(
            [COMMAND, "demo", "--kill-after", "0"],
            env={**os.environ, "MILLSTREAM_HOME": home}, stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert process.stderr is not None
            for line in process.stderr:
                said.append(line)
                if (link := LINK.search(line)) is not None:
                    _await_work(process)
                    yield link[0]
                    return
            raise SystemExit(f"the pictures need a demo; got {''.join(said[-3:])}")
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=180)


def _await_work(process: subprocess.Popen[str]) -> None:
    """Wait until charts have a history; the output of the demo is discarded."""
    assert process.stderr is not None
    deadline = time.monotonic() + AT_WORK
    while time.monotonic() < deadline and process.poll() is None:
        process.stderr.readline()


def opened_record(page: Page) -> None:
    """Open a record; new ones wait."""
    page.get_by_label("where").fill("status >= 500")
    page.get_by_role("button", name="Search").click()
    page.locator("li.record .record-line").first.click()


def asked_to_rewind(page: Page) -> None:
    """Open the rewind dialog."""
    page.get_by_role("button", name="Rewind from batch").nth(8).click()
    expect(page.get_by_role("dialog")).to_be_visible()


def nothing(page: Page) -> None:
    """The page without further action."""


SHOTS: list[tuple[str, str, int, int, str, Callable[[Page], None]]] = [
    ("jobs", "#/jobs", 1280, 620, "light", nothing),
    ("job", f"#/jobs/{JOB}", 1280, 1180, "light", nothing),
    ("job-dark", f"#/jobs/{JOB}", 1280, 720, "dark", nothing),
    ("plan", f"#/jobs/{JOB}/plan", 1280, 900, "light", nothing),
    ("time", f"#/jobs/{JOB}/time", 1280, 760, "light", nothing),
    ("dead", f"#/jobs/{JOB}/side-outputs?output=dead", 1280, 620, "light", nothing),
    ("rewind", f"#/jobs/{JOB}/commits", 1280, 820, "light", asked_to_rewind),
    ("messages", f"#/topics/{TOPIC}", 1280, 820, "dark", opened_record),
    ("alerts", "#/alerts", 1280, 560, "light", nothing),
    ("phone", f"#/jobs/{JOB}", 390, 844, "dark", nothing),
]


def take(link: str) -> None:
    """Take every picture, each in a new browser."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, folder, width, height, scheme, act in SHOTS:
        with browser(width=width, height=height, scheme=scheme) as browsed:
            page = browsed.page
            page.goto(link)
            expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
            page.goto(link.partition("#")[0] + folder)
            expect(page.locator("main .wait")).to_have_count(0, timeout=PATIENCE)
            expect(page.locator("main .card").first).to_be_visible(timeout=PATIENCE)
            act(page)
            page.wait_for_timeout(1500)
            page.screenshot(path=FOLDER / f"{name}.png")
            sys.stderr.write(f"{FOLDER / name}.png\n")


if __name__ == "__main__":
    with demo() as address:
        take(address)
