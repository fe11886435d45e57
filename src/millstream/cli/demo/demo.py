"""`millstream demo`: a web shop that produces page views, and two jobs on Spark."""

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
from millstream.cli.stack.jobs import submit_job
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
_REPORT_EVERY = 4.0
_START_TIMEOUT = 180.0
_RESTART_TIMEOUT = 120.0
_POLL = 0.25
_RUNNING = ("running", "idle", "degraded")


def register(app: typer.Typer) -> None:
    """Add `demo`."""
    command(app, "demo", "millstream demo", "millstream demo --rate 500 --seed 2")(demo)


def demo(
    seconds: Annotated[
        float | None, typer.Option("--seconds", metavar="N", help="Stop after so many seconds.")
    ] = None,
    rate: Annotated[
        float, typer.Option("--rate", metavar="N", help="Page views per second.")
    ] = 50.0,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Seed of the generated views.")
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

    Starts the local stack if it is not running, then a shop that produces page views (some
    late, some malformed, some from phones with wrong clocks), and submits two jobs on Spark: views
    are stored and counted, searches joined with clicks, and the owner gets a mail when pages fail.
    One job is killed and restarts without losing a row. Enter closes and reopens the shop.
    Ctrl-C stops everything and leaves no process.
    """
    _check_options(seconds, rate, kill_after)
    _refuse_second_demo()
    with _mailbox(), _stack(kafka) as (cluster, page):
        from millstream.kafka.admin.topics import Topics

        Topics(cluster).create(TOPIC, partitions=PARTITIONS, exists_ok=True)
        shop = Shop(cluster, seed=seed, rate=rate)
        try:
            with shop.open(), suppress(KeyboardInterrupt):
                say(f"the shop is open: {rate:g} page views a second go to {TOPIC}")
                _submit(shop, kafka)
                _print_introduction(page, cluster, kafka)
                threading.Thread(target=_toggle_on_enter, args=(shop,), daemon=True).start()
                _watch(shop, seconds, kill_after)
        finally:
            say(_summary(shop))
        if shop.problem is not None:
            raise shop.problem


def _check_options(seconds: float | None, rate: float, kill_after: float) -> None:
    if not 0 < rate <= 10_000:
        raise InvalidInput("--rate needs a number above 0, up to 10000", got=str(rate))
    if seconds is not None and not 0 < seconds < 1e9:
        raise InvalidInput("--seconds needs a number above 0", got=str(seconds))
    if not 0 <= kill_after < 1e9:
        raise InvalidInput("--kill-after needs a number from 0 on", got=str(kill_after))


def _refuse_second_demo() -> None:
    """Two demos would use the same jobs, and the first to end would remove them."""
    running = [row["job"] for row in _jobs() if row["pid"] is not None]
    if running:
        raise AlreadyRunning(
            "one demo runs at a time", got=f"{' and '.join(running)}, running for another one",
            do="open its page with `millstream status`, or end it with `millstream down`",
        )  # fmt: skip


@contextmanager
def _mailbox() -> "Iterator[None]":
    """Run the demo's mail server, and write its address where the pipelines read it."""
    address = _folder() / "mail-server"
    with Mailbox(lambda to, subject: say(f"mail for {to}: {subject}")) as mailbox:
        address.write_text(mailbox.url)
        try:
            yield
        finally:
            address.unlink(missing_ok=True)


def _folder() -> Path:
    """The folder of the demo's copy of the pipelines and of their stores."""
    from millstream.toolchain.folders import home_folder

    folder = home_folder() / "demo"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@contextmanager
def _stack(kafka: str | None) -> "Iterator[tuple[Cluster, str]]":
    """The running stack, or one that is started for this demo and stopped after it."""
    from millstream.jobs import stack
    from millstream.kafka.local import cluster
    from millstream.kafka.local.running import running_address

    starts_stack = stack.status().supervisor is None
    starts_broker = starts_stack and kafka is None and running_address() is None
    if starts_broker:
        with _reporting("starting the broker"):
            start_broker(None)
    try:
        if starts_stack:
            with _reporting("starting the supervisor and the page"):
                start_stack(kafka, None)
        page = stack.status().page
        assert page is not None
        yield cluster_of(kafka), stack.page_link(page)
    finally:
        with _ignoring_ctrl_c(), _reporting("stopping"):
            if starts_stack:
                stack.down(say)
                _forget_dead_jobs()
            else:
                _remove_jobs()
            if starts_broker:
                say("stopping the local broker …")
                cluster.stop_all(say=say)


@contextmanager
def _ignoring_ctrl_c() -> "Iterator[None]":
    """A second Ctrl-C does not interrupt the cleanup after the first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _reporting(doing: str) -> "Iterator[None]":
    """Print `still …` every few seconds while the block runs."""
    done = threading.Event()

    def repeat() -> None:
        began = time.monotonic()
        while not done.wait(_REPORT_EVERY):
            say(f"still {doing} … ({time.monotonic() - began:.0f} s)")

    thread = threading.Thread(target=repeat, name="reporting", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def shop_file() -> Path:
    """The shop's pipelines: beside this file in a wheel, in `examples` in the repository."""
    here = Path(__file__)
    for file in (here.parent / "examples" / "shop.py", here.parents[4] / "examples" / "shop.py"):
        if file.exists():
            return file
    raise SetupFailed("the demo needs its pipelines", got="an installation without shop.py",
                      do="reinstall Millstream")  # fmt: skip


def _submit(shop: Shop, kafka: str | None) -> None:
    """Submit both pipelines from a copy that the user may edit; wait until they run."""
    file = _folder() / "shop.py"
    shutil.copy(shop_file(), file)
    _forget_dead_jobs()
    with _reporting("reading the pipelines"):
        for name in JOBS:
            submit_job(f"{file}:{name}", application="shop", kafka=kafka)
    began, said = time.monotonic(), time.monotonic()
    while not all(row["state"] in _RUNNING for row in _jobs()):
        _refuse_failed(shop)
        if time.monotonic() - began > _START_TIMEOUT:
            raise SetupFailed("the jobs need to run",
                              got=f"{_line(shop)} after {_START_TIMEOUT:.0f} s",
                              do="see `millstream jobs logs shop-views`")  # fmt: skip
        if time.monotonic() - said > _REPORT_EVERY:
            said = time.monotonic()
            say(_line(shop))
        time.sleep(_POLL)


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
    """Report every few seconds until the demo ends; kill a job on the way."""
    began = said = time.monotonic()
    killed = kill_after == 0
    on_spark: set[str] = set()
    while seconds is None or time.monotonic() - began < seconds:
        _refuse_failed(shop)
        if not killed and time.monotonic() - began >= kill_after and _has_read(JOBS[0]):
            killed = True
            _kill(shop, JOBS[0])
        if time.monotonic() - said > _REPORT_EVERY:
            said = time.monotonic()
            say(_line(shop))
            _print_spark(on_spark)
        time.sleep(_POLL)


def _print_spark(printed: set[str]) -> None:
    """Say once per process of a job that Spark has started, and where its UI is."""
    for row in _jobs():
        if row["spark_ui"] is not None and row["spark_ui"] not in printed:
            printed.add(row["spark_ui"])
            say(f"{row['job']} is on Spark, whose UI is at {row['spark_ui']}")


def _toggle_on_enter(shop: Shop) -> None:
    """Each line on stdin closes or reopens the shop."""
    for _ in sys.stdin:
        opened = shop.toggle()
        say("the shop is open again" if opened else f"{_summary(shop)}; Enter reopens it")


def _has_read(name: str) -> bool:
    return any(row["rows"] > 0 for row in _jobs() if row["job"] == name)


def _kill(shop: Shop, name: str) -> None:
    """`kill -9` a job, and report when the supervisor has restarted it."""
    holder = stack_folder().job(name).lock.holder()
    if holder is None:
        return
    holder.kill()
    began = said = time.monotonic()
    say(f"kill -9 {holder.pid}: {name} is dead; the supervisor restarts it …")
    while time.monotonic() - began < _RESTART_TIMEOUT:
        row = next(row for row in _jobs() if row["job"] == name)
        if row["pid"] not in (None, holder.pid) and row["state"] in _RUNNING:
            took = time.monotonic() - began
            say(f"{name} is back after {took:.0f} s and continues where it stopped")
            return
        if time.monotonic() - said > _REPORT_EVERY:
            said = time.monotonic()
            say(_line(shop))
        time.sleep(_POLL)


def _line(shop: Shop) -> str:
    parts = [f"{shop.sent:,} views sent"]
    for row in _jobs():
        doing = row["phase"] if row["state"] in ("starting", "failing") else None
        parts.append(
            f"{row['job']} {row['state']}{f' ({doing})' if doing else ''}, {row['rows']:,} read, "
            f"{row['late']:,} late, {row['dead']:,} dead"
        )
    return " · ".join(parts)


def _summary(shop: Shop) -> str:
    """How many records the shop produced, and how many each job has read."""
    read = "; ".join(f"{row['job']} has read {row['rows']:,}" for row in _jobs())
    return (
        f"the shop is closed: {shop.sent:,} records sent, {shop.late:,} of them very late and "
        f"{shop.broken:,} broken{f'; {read}' if read else ''}"
    )


def _remove_jobs() -> None:
    with JobRegistry(stack_folder().registry) as registry:
        for row in _jobs():
            registry.want(row["job"], "removed")
    deadline = time.monotonic() + _RESTART_TIMEOUT
    while _jobs() and time.monotonic() < deadline:
        time.sleep(_POLL)


def _forget_dead_jobs() -> None:
    """Remove jobs of an earlier demo from the registry if their process is gone."""
    with JobRegistry(stack_folder().registry) as registry:
        for row in _jobs():
            if row["pid"] is None:
                registry.forget(row["job"])


def _print_introduction(page: str, cluster: "Cluster", kafka: str | None) -> None:
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
  kill -9 a job's process (`millstream jobs list -o json` has its pid), and watch it restart
the checkout fails for a quarter of each minute: the owner's mails are shown here
Enter closes the shop (the chart goes flat) and reopens it; Ctrl-C stops everything
"""
    )
