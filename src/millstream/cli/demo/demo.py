"""`millstream demo`: a web shop at work, with jobs that count it and a page that shows it."""

import shutil
import signal
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.demo.mailbox import Mailbox
from millstream.cli.demo.shop import PARTITIONS, TOPIC, Shop
from millstream.cli.stack.jobs import handed_over
from millstream.cli.stack.local import start_broker, start_stack
from millstream.cli.terminal.connect import cluster_of
from millstream.cli.terminal.options import Kafka, command
from millstream.cli.terminal.output import say
from millstream.errors import AlreadyRunning, InvalidInput, SetupFailed
from millstream.jobs.folders import stack_folder
from millstream.jobs.registry import JobRegistry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.kafka.settings import Cluster

JOBS = ("shop-views", "shop-visitors")
_LINE = 4.0
_READY = 180.0
_BACK = 120.0
_LOOK = 0.25
_RUNNING = ("running", "catching up", "idle")


def register(app: typer.Typer) -> None:
    """Adds `demo`."""
    command(app, "demo", "millstream demo", "millstream demo --rate 500 --seed 2")(demo)


def demo(
    seconds: Annotated[
        float | None, typer.Option("--seconds", metavar="N", help="End by itself after this long.")
    ] = None,
    rate: Annotated[
        float, typer.Option("--rate", metavar="N", help="Page views per second.")
    ] = 50.0,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Another seed, another day in the shop.")
    ] = 1,
    kill_after: Annotated[
        float,
        typer.Option(
            "--kill-after", metavar="N", help="Kill a job after so many seconds; 0: never."
        ),
    ] = 25.0,
    kafka: Kafka = None,
) -> None:
    """See it work: a shop's page views, counted by event time on a live page.

    Starts the local stack if it is not up, opens a shop that sends page views (some of them
    late, some broken, some from phones with wrong clocks), and runs two jobs on them: views are
    stored and counted, searches joined with clicks, and the owner gets a mail when pages fail.
    One job is killed in front of you and comes back without losing a row. Enter closes the shop,
    and opens it again. Ctrl-C ends it all and leaves no process.
    """
    _check(seconds, rate, kill_after)
    _refuse_a_second()
    with _mailbox(), _some_stack(kafka) as (cluster, page):
        from millstream.kafka.admin.topics import Topics

        Topics(cluster).create(TOPIC, partitions=PARTITIONS, exists_ok=True)
        shop = Shop(cluster, seed=seed, rate=rate)
        try:
            with shop.open(), suppress(KeyboardInterrupt):
                say(f"the shop is open: {rate:g} page views a second go into {TOPIC}")
                _submit(shop, kafka)
                _introduce(page, cluster, kafka)
                threading.Thread(target=_hear_enter, args=(shop,), daemon=True).start()
                _watch(shop, seconds, kill_after)
        finally:
            say(_balance(shop))
        if shop.problem is not None:
            raise shop.problem


def _check(seconds: float | None, rate: float, kill_after: float) -> None:
    if not 0 < rate <= 10_000:
        raise InvalidInput("--rate needs a number above 0, up to 10000", got=str(rate))
    if seconds is not None and not 0 < seconds < 1e9:
        raise InvalidInput("--seconds needs a number above 0", got=str(seconds))
    if not 0 <= kill_after < 1e9:
        raise InvalidInput("--kill-after needs a number from 0 on", got=str(kill_after))


def _refuse_a_second() -> None:
    """A demo leaves another one alone: it would end by taking the other's jobs away."""
    living = [row["job"] for row in _jobs() if row["pid"] is not None]
    if living:
        raise AlreadyRunning(
            "one demo runs at a time", got=f"{' and '.join(living)}, at work for another",
            do="see its page with `millstream status`, or end it with Ctrl-C or `millstream down`",
        )  # fmt: skip


@contextmanager
def _mailbox() -> "Iterator[None]":
    """A mail server of the demo's own, where its pipelines find it."""
    address = _folder() / "mail-server"
    with Mailbox(lambda to, subject: say(f"mail for {to}: {subject}")) as mailbox:
        address.write_text(mailbox.url)
        try:
            yield
        finally:
            address.unlink(missing_ok=True)


def _folder() -> Path:
    """Where the demo keeps its copy of the pipelines, and what they store."""
    from millstream.toolchain.folders import home_folder

    folder = home_folder() / "demo"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@contextmanager
def _some_stack(kafka: str | None) -> "Iterator[tuple[Cluster, str]]":
    """The stack that is up, or one started for this demo and ended after it."""
    from millstream.jobs import stack
    from millstream.kafka.local import cluster
    from millstream.kafka.local.running import running_address

    found = stack.status()
    mine = found.supervisor is None
    broker_is_mine = mine and kafka is None and running_address() is None
    if broker_is_mine:
        with _still("starting the broker"):
            start_broker(None)
    try:
        if mine:
            with _still("starting the supervisor and the page"):
                start_stack(kafka, None)
        page = stack.status().page
        assert page is not None
        yield cluster_of(kafka), stack.page_link(page)
    finally:
        with _undisturbed(), _still("stopping"):
            if mine:
                stack.down(say)
                _forget()
            else:
                _remove()
                _await_gone()
            if broker_is_mine:
                say("stopping the local broker …")
                cluster.stop_all(say=say)


@contextmanager
def _undisturbed() -> "Iterator[None]":
    """A second Ctrl-C does not end the tidying up of the first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _still(doing: str) -> "Iterator[None]":
    """What takes longer than a few seconds is said again and again, for the length of a block."""
    over = threading.Event()

    def repeat() -> None:
        began = time.monotonic()
        while not over.wait(_LINE):
            say(f"still {doing} … ({time.monotonic() - began:.0f} s)")

    thread = threading.Thread(target=repeat, name="still", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def shop_file() -> Path:
    """The shop's pipelines: in the wheel beside this file, in the repository among the examples."""
    here = Path(__file__)
    for file in (here.parent / "examples" / "shop.py", here.parents[4] / "examples" / "shop.py"):
        if file.exists():
            return file
    raise SetupFailed("the demo needs its pipelines", got="an installation without shop.py",
                      do="install Millstream anew")  # fmt: skip


def _submit(shop: Shop, kafka: str | None) -> None:
    """Hand both pipelines over, from a copy that the user may edit; wait until they run."""
    file = _folder() / "shop.py"
    shutil.copy(shop_file(), file)
    _forget()
    with _still("reading the pipelines"):
        for name in JOBS:
            handed_over(f"{file}:{name}", application="shop", kafka=kafka)
    began, said = time.monotonic(), time.monotonic()
    while not all(row["state"] in _RUNNING for row in _jobs()):
        _refuse_failed(shop)
        if time.monotonic() - began > _READY:
            raise SetupFailed("the jobs need to run", got=f"{_line(shop)} after {_READY:.0f} s",
                              do="see `millstream jobs logs shop-views`")  # fmt: skip
        if time.monotonic() - said > _LINE:
            said = time.monotonic()
            say(_line(shop))
        time.sleep(_LOOK)


def _jobs() -> list[dict[str, Any]]:
    from millstream.jobs.reports.overview import overview

    return [row for row in overview() if row["job"] in JOBS]


def _refuse_failed(shop: Shop) -> None:
    if shop.problem is not None:
        raise shop.problem
    for row in _jobs():
        if row["state"] == "failed":
            raise SetupFailed(f"the job {row['job']} needs to run", got=str(row["reason"]),
                              do=f"see `millstream jobs logs {row['job']}`")  # fmt: skip


def _watch(shop: Shop, seconds: float | None, kill_after: float) -> None:
    """A line every few seconds until somebody or something ends it; meanwhile a job is killed."""
    began = said = time.monotonic()
    killed = kill_after == 0
    while seconds is None or time.monotonic() - began < seconds:
        _refuse_failed(shop)
        if not killed and time.monotonic() - began >= kill_after and _has_read(JOBS[0]):
            killed = True
            _kill(shop, JOBS[0])
        if time.monotonic() - said > _LINE:
            said = time.monotonic()
            say(_line(shop))
        time.sleep(_LOOK)


def _hear_enter(shop: Shop) -> None:
    """Each line on stdin closes the shop, or opens it again."""
    for _ in sys.stdin:
        opened = shop.toggle()
        say("the shop is open again" if opened else f"{_balance(shop)}; Enter opens it again")


def _has_read(name: str) -> bool:
    return any(row["rows"] > 0 for row in _jobs() if row["job"] == name)


def _kill(shop: Shop, name: str) -> None:
    """`kill -9` for a job, and a word when it is back."""
    holder = stack_folder().job(name).lock.holder()
    if holder is None:
        return
    holder.kill()
    began = said = time.monotonic()
    say(f"kill -9 {holder.pid}: {name} is dead; the supervisor brings it back …")
    while time.monotonic() - began < _BACK:
        row = next(row for row in _jobs() if row["job"] == name)
        if row["pid"] not in (None, holder.pid) and row["state"] in _RUNNING:
            say(f"{name} is back after {time.monotonic() - began:.0f} s and goes on where it was")
            return
        if time.monotonic() - said > _LINE:
            said = time.monotonic()
            say(_line(shop))
        time.sleep(_LOOK)


def _line(shop: Shop) -> str:
    parts = [f"{shop.sent:,} views sent"]
    for row in _jobs():
        doing = row["phase"] if row["state"] in ("starting", "failing") else None
        parts.append(
            f"{row['job']} {row['state']}{f' ({doing})' if doing else ''}, {row['rows']:,} read, "
            f"{row['late']:,} late, {row['dead']:,} dead"
        )
    return " · ".join(parts)


def _balance(shop: Shop) -> str:
    """The demo in figures: what was sent, and what each job has made of it."""
    read = "; ".join(f"{row['job']} has read {row['rows']:,}" for row in _jobs())
    return (
        f"the shop is closed: {shop.sent:,} records sent, {shop.late:,} of them very late and "
        f"{shop.broken:,} broken{f'; {read}' if read else ''}"
    )


def _remove() -> None:
    with JobRegistry(stack_folder().registry) as registry:
        for row in _jobs():
            registry.want(row["job"], "removed")


def _await_gone() -> None:
    deadline = time.monotonic() + _BACK
    while _jobs() and time.monotonic() < deadline:
        time.sleep(_LOOK)


def _forget() -> None:
    """Jobs of an earlier demo whose process is gone are no longer in the book."""
    with JobRegistry(stack_folder().registry) as registry:
        for row in _jobs():
            if row["pid"] is None:
                registry.forget(row["job"])


def _introduce(page: str, cluster: "Cluster", kafka: str | None) -> None:
    from millstream.engine.checkpoint.folders import checkpoint_folder

    where = "" if kafka is None else f" --kafka {cluster.address}"
    checkpoint = checkpoint_folder(JOBS[0])
    say(
        f"""
  the page:  {page}

try in another terminal:
  millstream jobs list
  millstream alerts list
  millstream tail shop.pages{where}
  millstream tail shop.clicks{where}
  millstream tail shop-views.dead{where}
  millstream state show --checkpoint {checkpoint} 'tumbling(page)' --key page=/
  kill -9 a job's process (`millstream jobs list -o json` has its pid), and watch it come back
the checkout fails for a quarter of each minute: the owner's mails are shown here
Enter closes the shop (watch the chart go flat) and opens it again; Ctrl-C ends it all
"""
    )
