"""A real browser for the page: Chromium, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from playwright.sync_api import expect, sync_playwright

from millstream.toolchain.folders import cache_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update"]  # fmt: skip
PATIENCE = 60_000

expect.set_options(timeout=PATIENCE)


def cached_chromium() -> Path:
    """Where `make browser` installs one from npm."""
    return cache_folder() / "chromium" / "chromium"


def chromium() -> str:
    """The browser in `MILLSTREAM_CHROMIUM`, on the PATH, or in the cache folder."""
    named = os.environ.get("MILLSTREAM_CHROMIUM")
    if named:
        assert os.access(named, os.X_OK), f"MILLSTREAM_CHROMIUM needs a program; got {named!r}"
        return named
    for name in NAMES:
        found = shutil.which(name)
        if found is not None:
            return found
    if os.access(cached_chromium(), os.X_OK):
        return str(cached_chromium())
    raise AssertionError(
        "the tests of the page need Chromium; got none in MILLSTREAM_CHROMIUM, on the PATH or in "
        "the cache folder; run `make browser`, or install it (Debian, Ubuntu: apt-get install "
        "chromium)"
    )


@dataclass
class Browsed:
    """A page in the browser, its requests and its errors."""

    page: Page
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def text(self, selector: str) -> str:
        """The text of the only matching element, once it exists."""
        return self.page.locator(selector).inner_text(timeout=PATIENCE).strip()

    def number(self, selector: str) -> int:
        """The integer that the element shows."""
        return int(self.text(selector).replace(",", ""))

    def overflow(self) -> int:
        """How many pixels the page is wider than its window."""
        width: int = self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        return width

    def hosts(self) -> set[str]:
        """The hosts of all requests."""
        return {address.split("/")[2] for address in self.asked if "://" in address}


@contextmanager
def browser(*, width: int = 1280, height: int = 900, scheme: str = "light") -> Iterator[Browsed]:
    """A browser with one empty page."""
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        try:
            context = running.new_context(
                viewport={"width": width, "height": height},
                color_scheme="dark" if scheme == "dark" else "light",
                locale="en-US",
            )
            context.set_default_timeout(PATIENCE)
            browsed = Browsed(context.new_page())
            page = browsed.page
            page.on("request", lambda request: browsed.asked.append(request.url))
            page.on("pageerror", lambda error: browsed.complaints.append(str(error)))
            page.on("console", lambda said: browsed.complaints.append(said.text)
                    if said.type in ("error", "warning") else None)  # fmt: skip
            yield browsed
        finally:
            running.close()
