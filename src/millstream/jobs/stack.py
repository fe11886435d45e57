"""The local stack: broker, supervisor and console, run as background processes.

Supervisor and console watch each other: whichever is killed is restarted within a second. The
Spark application that jobs share runs while one of them is meant to.
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

from millstream.engine.spark.shared import VARIABLE
from millstream.errors import Unavailable
from millstream.jobs import process
from millstream.jobs.folders import StackFolder, stack_folder
from millstream.jobs.policy import STOP_TIMEOUT
from millstream.jobs.registry import JobRegistry

if TYPE_CHECKING:
    from collections.abc import Callable

Part = Literal["supervisor", "console", "spark"]
PARTS: tuple[Part, ...] = ("supervisor", "console")
PROGRAMS = {"supervisor": "millstream.jobs.supervisor", "console": "millstream.console.server",
            "spark": "millstream.jobs.shared_spark"}  # fmt: skip
UP, KAFKA, PAGE_PORT = "up", "kafka", "page port"
PAGE_HOST, PAGE_URLS = "page host", "page urls"
LOOPBACK = "127.0.0.1"
_READY = 60.0
_ENDING = 10.0
_POLL = 0.05


@dataclass(frozen=True)
class StackStatus:
    """The process ids of the running parts, and the page's address."""

    supervisor: int | None
    console: int | None
    page: str | None


@dataclass(frozen=True)
class PageAddress:
    """Where the page listens, and its public addresses (`https://jobs.example`)."""

    port: int
    host: str = LOOPBACK
    urls: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        """The address to open in a browser."""
        return self.urls[0] if self.urls else f"http://{LOOPBACK}:{self.port}"


def page_address(registry: JobRegistry) -> PageAddress:
    """Return the configured address of the page."""
    return PageAddress(
        port=int(registry.setting(PAGE_PORT) or 0),
        host=registry.setting(PAGE_HOST) or LOOPBACK,
        urls=tuple((registry.setting(PAGE_URLS) or "").split()),
    )


def launch(stack: StackFolder, part: Part) -> bool:
    """Start a part of the stack; return False if it is running already."""
    lock = stack.lock(part)
    descriptor = lock.take()
    if descriptor is None:
        return False
    shared = {VARIABLE: str(stack.shared_spark)} if part == "spark" else {}
    lock.launch(
        [sys.executable, "-m", PROGRAMS[part]],
        descriptor=descriptor,
        folder=stack.path,
        output=stack.output(part),
        environment={**os.environ, "MILLSTREAM_HOME": str(stack.path.parent), **shared},
    )
    return True


def ensure_running(stack: StackFolder, part: Part, *, up: bool) -> bool:
    """Start a part that should run and does not; return whether it was started."""
    return up and not stack.lock(part).held() and launch(stack, part)


def up(*, kafka: str | None, page: PageAddress) -> StackStatus:
    """Start supervisor and console, and wait until the page answers.

    Raises:
        Unavailable: a part ended while starting, or the page does not answer.
    """
    stack = stack_folder()
    stack.make()
    stack.token()
    with JobRegistry(stack.registry) as registry:
        registry.set(KAFKA, kafka)
        registry.set(PAGE_PORT, str(page.port))
        registry.set(PAGE_HOST, None if page.host == LOOPBACK else page.host)
        registry.set(PAGE_URLS, " ".join(page.urls) or None)
        registry.set(UP, "yes")
        registry.add_event("up")
    for part in PARTS:
        launch(stack, part)
    deadline = time.monotonic() + _READY
    while not _answers(page, stack.token()):
        if time.monotonic() > deadline:
            raise _not_ready(stack)
        time.sleep(_POLL)
    return status()


def down(say: Callable[[str], None]) -> int:
    """Stop console, supervisor and every job's process; return how many processes there were.

    Jobs end after the current batch; one that does not end in time is killed. The jobs' desired
    state is kept: the next `up` starts those that were running.
    """
    stack = stack_folder()
    if not stack.registry.exists():
        return 0
    with JobRegistry(stack.registry) as registry:
        registry.set(UP, None)
        jobs = registry.all()
        count = sum(_stop(stack, part) for part in PARTS)
        running = [job for job in jobs if stack.job(job.name).lock.held()]
        if running:
            say(f"stopping {', '.join(job.name for job in running)} …")
        with ThreadPoolExecutor(max_workers=8) as pool:
            list(pool.map(lambda job: _end_job(stack, job.name, job.run), running))
        count += _stop(stack, "spark")
        for job in jobs:
            if job.run is not None:
                process.sweep(job.run, process.TIDY)
                registry.update(job.name, "ended", "the stack was stopped", run=None, stopping=None,
                          failures=0, retry_at=0.0, asked=job.asked + 1)  # fmt: skip
        registry.add_event("down")
    return count + len(running)


def status() -> StackStatus:
    """Return which parts run, and where the page is."""
    stack = stack_folder()
    with JobRegistry(stack.registry, read_only=True) as registry:
        address = page_address(registry)
    pids = {}
    for part in PARTS:
        holder = stack.lock(part).holder()
        pids[part] = None if holder is None else holder.pid
    page = f"{address.url}/" if address.port and pids["console"] else None
    return StackStatus(pids["supervisor"], pids["console"], page)


def page_link(page: str) -> str:
    """Return the page's address with the token in its fragment, which browsers do not send."""
    return f"{page}#token={stack_folder().token()}"


def need_supervisor() -> None:
    """Raise Unavailable unless the supervisor is running."""
    if stack_folder().lock("supervisor").held():
        return
    raise Unavailable(
        "jobs need the local stack to be up",
        got="no supervisor running",
        do="start it with `millstream up`",
    )


def _end_job(stack: StackFolder, name: str, run: str | None) -> None:
    job = stack.job(name)
    process.ask_to_stop(job)
    if not job.lock.ended(STOP_TIMEOUT):
        process.kill(job, run)


def end_shared_spark(stack: StackFolder) -> None:
    """Ask the Spark application that jobs share to end."""
    stack.lock("spark").send(SIGTERM, wait=0)


def _stop(stack: StackFolder, part: Part) -> int:
    lock = stack.lock(part)
    if not lock.send(SIGTERM):
        return 0
    if not lock.ended(_ENDING):
        lock.send(SIGKILL)
        lock.ended(_ENDING)
    return 1


def _answers(page: PageAddress, token: str) -> bool:
    import http.client

    connection = http.client.HTTPConnection(_reachable_host(page.host), page.port, timeout=1)
    try:
        shown = {"Host": f"{LOOPBACK}:{page.port}", "Authorization": f"Bearer {token}"}
        connection.request("GET", "/healthz", headers=shown)
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _reachable_host(host: str) -> str:
    """Return the address at which a server that listens on `host` can be reached from here."""
    address = ip_address(host)
    if not address.is_unspecified:
        return host
    return LOOPBACK if address.version == 4 else "::1"


def _not_ready(stack: StackFolder) -> Unavailable:
    for part in PARTS:
        if not stack.lock(part).held():
            words = stack.output(part).read_text(errors="replace").strip()
            last = words.splitlines()[-1] if words else "nothing"
            return Unavailable(f"the {part} must start", got=f"it exited with: {last}",
                               do=f"see {stack.log(part)}")  # fmt: skip
    return Unavailable(
        "the page must answer",
        got=f"no answer in {_READY:.0f} s",
        do=f"see {stack.log('console')}",
    )
