"""The local stack: broker, supervisor and console, started in the background and ended again.

Each part is a process of its own that outlives its starter. The console looks after the
supervisor and the supervisor after the console: whichever is killed is back in a second.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import ip_address
from signal import SIGKILL, SIGTERM
from typing import TYPE_CHECKING, Literal

from millstream.errors import Unavailable
from millstream.jobs import process
from millstream.jobs.folders import StackPlace, stack_place
from millstream.jobs.policy import GRACE
from millstream.jobs.registry import Book

if TYPE_CHECKING:
    from collections.abc import Callable

Part = Literal["supervisor", "console"]
PARTS: tuple[Part, ...] = ("supervisor", "console")
PROGRAMS = {"supervisor": "millstream.jobs.supervisor", "console": "millstream.console.server"}
UP, KAFKA, PAGE_PORT = "up", "kafka", "page port"
PAGE_HOST, PAGE_URLS = "page host", "page urls"
LOOPBACK = "127.0.0.1"
_READY = 60.0
_ENDING = 10.0
_POLL = 0.05


@dataclass(frozen=True)
class StackStatus:
    """Which parts live, and where the page is."""

    supervisor: int | None
    console: int | None
    page: str | None


@dataclass(frozen=True)
class PageAddress:
    """Where the page listens, and the addresses (`https://jobs.example`) others know it by."""

    port: int
    host: str = LOOPBACK
    urls: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        """What to type to reach it."""
        return self.urls[0] if self.urls else f"http://{LOOPBACK}:{self.port}"


def page_address(book: Book) -> PageAddress:
    """Where the page of a stack is, or will be."""
    return PageAddress(
        port=int(book.setting(PAGE_PORT) or 0),
        host=book.setting(PAGE_HOST) or LOOPBACK,
        urls=tuple((book.setting(PAGE_URLS) or "").split()),
    )


def launch(place: StackPlace, part: Part) -> bool:
    """Start a part of the stack; False when it is living already."""
    life = place.life(part)
    descriptor = life.take()
    if descriptor is None:
        return False
    life.launch(
        [sys.executable, "-m", PROGRAMS[part]],
        descriptor=descriptor,
        folder=place.path,
        output=place.output(part),
        environment={**os.environ, "MILLSTREAM_HOME": str(place.path.parent)},
    )
    return True


def keep(place: StackPlace, part: Part, *, up: bool) -> bool:
    """Start a part that should live and does not; True when that was so."""
    return up and not place.life(part).held() and launch(place, part)


def up(*, kafka: str | None, page: PageAddress) -> StackStatus:
    """Start supervisor and console, and return when the page answers.

    Raises:
        Unavailable: a part ended while starting, or the page does not answer.
    """
    place = stack_place()
    place.make()
    place.token()
    with Book(place.book) as book:
        book.set(KAFKA, kafka)
        book.set(PAGE_PORT, str(page.port))
        book.set(PAGE_HOST, None if page.host == LOOPBACK else page.host)
        book.set(PAGE_URLS, " ".join(page.urls) or None)
        book.set(UP, "yes")
        book.tell("up")
    for part in PARTS:
        launch(place, part)
    deadline = time.monotonic() + _READY
    while not _answers(page, place.token()):
        if time.monotonic() > deadline:
            raise _silent(place)
        time.sleep(_POLL)
    return status()


def down(say: Callable[[str], None]) -> int:
    """End console, supervisor and every job's process; how many processes there were.

    Jobs end after the batch in hand; one that does not is killed. What is wanted of jobs
    stays: the next `up` starts those again that were running.
    """
    place = stack_place()
    if not place.book.exists():
        return 0
    with Book(place.book) as book:
        book.set(UP, None)
        jobs = book.all()
        count = sum(_ended(place, part) for part in PARTS)
        running = [job for job in jobs if place.job(job.name).life.held()]
        if running:
            say(f"stopping {', '.join(job.name for job in running)} …")
        with ThreadPoolExecutor(max_workers=8) as pool:
            list(pool.map(lambda job: _end_job(place, job.name, job.run), running))
        for job in jobs:
            if job.run is not None:
                process.sweep(job.run, process.TIDY)
                book.note(job.name, "ended", "the stack was stopped", run=None, stopping=None,
                          failures=0, retry_at=0.0, asked=job.asked + 1)  # fmt: skip
        book.tell("down")
    return count + len(running)


def status() -> StackStatus:
    """How the stack stands."""
    place = stack_place()
    with Book(place.book, read_only=True) as book:
        address = page_address(book)
    pids = {}
    for part in PARTS:
        holder = place.life(part).holder()
        pids[part] = None if holder is None else holder.pid
    page = f"{address.url}/" if address.port and pids["console"] else None
    return StackStatus(pids["supervisor"], pids["console"], page)


def page_link(page: str) -> str:
    """The address with the token in its fragment, which no browser sends anywhere."""
    return f"{page}#token={stack_place().token()}"


def need_supervisor() -> None:
    """Raise a sentence when nobody is there to look after jobs."""
    if stack_place().life("supervisor").held():
        return
    raise Unavailable(
        "jobs need the local stack to be up",
        got="no supervisor running",
        do="start it with `millstream up`",
    )


def _end_job(place: StackPlace, name: str, run: str | None) -> None:
    job = place.job(name)
    process.ask_to_stop(job)
    if not job.life.ended(GRACE):
        process.kill(job, run)


def _ended(place: StackPlace, part: Part) -> int:
    life = place.life(part)
    if not life.send(SIGTERM):
        return 0
    if not life.ended(_ENDING):
        life.send(SIGKILL)
        life.ended(_ENDING)
    return 1


def _answers(page: PageAddress, token: str) -> bool:
    import http.client

    connection = http.client.HTTPConnection(_near(page.host), page.port, timeout=1)
    try:
        shown = {"Host": f"{LOOPBACK}:{page.port}", "Authorization": f"Bearer {token}"}
        connection.request("GET", "/healthz", headers=shown)
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _near(host: str) -> str:
    """The address on this machine at which who listens on a host is asked."""
    address = ip_address(host)
    if not address.is_unspecified:
        return host
    return LOOPBACK if address.version == 4 else "::1"


def _silent(place: StackPlace) -> Unavailable:
    for part in PARTS:
        if not place.life(part).held():
            words = place.output(part).read_text(errors="replace").strip()
            last = words.splitlines()[-1] if words else "nothing"
            return Unavailable(f"the {part} must come up", got=f"one that ended, saying: {last}",
                               do=f"see {place.log(part)}")  # fmt: skip
    return Unavailable(
        "the page must answer",
        got=f"no answer in {_READY:.0f} s",
        do=f"see {place.log('console')}",
    )
