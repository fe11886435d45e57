"""`millstream jobs …`: pipelines that run in the background, each in its own process."""

import getpass
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.pipeline.rewind import Again, Into, To, rewind_job
from millstream.cli.pipeline.run import Lane
from millstream.cli.terminal.confirm import confirm
from millstream.cli.terminal.options import Kafka, Shape, Yes, command
from millstream.cli.terminal.output import Output, print_facts, print_rows, say
from millstream.cli.terminal.pipelines import Checkpoint, File, load
from millstream.errors import InvalidInput, MillstreamError, Unavailable
from millstream.viewing.escape import one_line
from millstream.viewing.points_in_time import iso

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.jobs.registry import JobRegistry, JobRow

JobName = Annotated[str, typer.Argument(metavar="JOB", help="The job's name.")]
NoWait = Annotated[
    bool, typer.Option("--no-wait", help="Return at once, without waiting for the supervisor.")
]
COLUMNS = ["job", "state", "since", "application", "owner", "rows_per_second", "lag", "restarts",
           "reason"]  # fmt: skip
INSTANCE_COLUMNS = ["operator", "instance", "where", "in", "out", "rows_per_second", "busy",
                    "watermark", "state_rows", "state_bytes", "late", "dead"]  # fmt: skip
_TIMEOUT = 120.0
_AWAY = 5.0  # seconds for which a job may wait before a command reports it
_POLL = 0.1
STOPPED = ("stopped", "finished", "failed")


def register(app: typer.Typer) -> None:
    """Add `jobs …`."""
    group = typer.Typer(help="Run pipelines in the background.", no_args_is_help=True)
    command(group, "submit", "millstream jobs submit hot.py",
            "millstream jobs submit hot.py:hot-auctions --application shop",
            "millstream jobs submit small.py --share")(submit)  # fmt: skip
    command(group, "list", "millstream jobs list", "millstream jobs list -o json")(list_jobs)
    command(group, "show", "millstream jobs show hot-auctions",
            "millstream jobs show hot-auctions --instances")(show)  # fmt: skip
    command(group, "stop", "millstream jobs stop hot-auctions")(stop)
    command(group, "restart", "millstream jobs restart hot-auctions")(restart)
    command(group, "rewind", "millstream jobs rewind hot-auctions --to -1h --again")(rewind)
    command(group, "logs", "millstream jobs logs hot-auctions --follow",
            "millstream jobs logs hot-auctions --output-of-libraries")(logs)  # fmt: skip
    command(group, "remove", "millstream jobs remove hot-auctions --yes")(remove)
    app.add_typer(group, name="jobs")


def submit(
    file: File,
    application: Annotated[
        str | None,
        typer.Option("--application", metavar="NAME", help="The group it belongs to [the file]."),
    ] = None,
    checkpoint: Checkpoint = None,
    lane: Annotated[
        Lane | None,
        typer.Option(
            "--lane", metavar="wide|narrow", help="Always use this lane [the planner chooses]."
        ),
    ] = None,
    kafka: Kafka = None,
    share: Annotated[
        bool,
        typer.Option(
            "--share", help="Use one Spark application with other such jobs: for small ones."
        ),
    ] = False,
    no_wait: NoWait = False,
) -> None:
    """Submit a pipeline to the supervisor: it runs until it is stopped, and is restarted when
    it dies.

    The file is not copied; it is loaded at every start. The job has the environment of
    `millstream up`. Its name is the pipeline's.
    """
    from millstream.jobs.stack import need_supervisor

    need_supervisor()
    name = submit_job(file, application=application, checkpoint=checkpoint, kafka=kafka,
                      lane=lane.value if lane else None, share=share)  # fmt: skip
    with _registry() as registry:
        if not no_wait:
            _await(registry, name, _has_started, "started")
    say(f"next: `millstream jobs show {name}`, `millstream jobs logs {name}`")


def submit_job(
    file: str,
    *,
    application: str | None = None,
    checkpoint: Path | None = None,
    kafka: str | None = None,
    lane: str | None = None,
    share: bool = False,
) -> str:
    """Add a pipeline to the registry of jobs, and return its name.

    Raises:
        AlreadyRunning: there is a job of that name.
    """
    from millstream.engine.checkpoint.folders import checkpoint_folder
    from millstream.jobs.registry import JobRow

    loaded, pipeline = load(file)
    folder = checkpoint or checkpoint_folder(pipeline.name)
    now = time.time()
    with _registry() as registry:
        registry.add(
            JobRow(
                name=pipeline.name,
                application=application or loaded.file.stem,
                owner=getpass.getuser(),
                file=str(loaded.file.resolve()),
                pipeline=pipeline.name,
                kafka=kafka,
                checkpoint=str(folder.absolute()),
                lane=lane,
                share=share,
                submitted=now,
                since=now,
            )
        )
    say(f"submitted {pipeline.name}; checkpoint {folder}")
    return pipeline.name


def list_jobs(output: Shape = Output.table) -> None:
    """List the jobs: state, rate, lag, restarts."""
    from millstream.jobs.reports.overview import overview

    rows = [_for_people(row) if output is Output.table else row for row in overview()]
    print_rows(rows, COLUMNS, output, none="no jobs; submit one with `millstream jobs submit FILE`")


def show(
    name: JobName,
    instances: Annotated[
        bool,
        typer.Option("--instances", help="Its operators by instance: rows, busy share, state."),
    ] = False,
    output: Shape = Output.table,
) -> None:
    """Show one job: its state, its file, its last events."""
    from millstream.jobs.folders import stack_folder
    from millstream.jobs.reports.overview import overview

    if instances:
        _show_instances(name, output)
        return
    with _registry() as registry:
        job, events = registry.job(name), registry.events(name, last=10)
    [row] = overview(name)
    facts = {
        **row,
        "reason": job.reason,
        "file": job.file,
        "checkpoint": job.checkpoint,
        "log_file": str(stack_folder().job(name).log),
        "submitted": _when(job.submitted),
    }
    history = [{**asdict(event), "at": _when(event.at)} for event in events]
    if output is Output.json:
        print_facts({**facts, "events": history}, output)
        return
    print_facts(_for_people(facts), output)
    sys.stdout.write("\n")
    print_rows(history, ["at", "event", "detail"], output, none="nothing has happened yet")


def _show_instances(name: str, output: Output) -> None:
    from millstream.jobs.folders import stack_folder
    from millstream.jobs.reports.detail import detail

    report = detail(stack_folder(), name)
    rows = [
        {"operator": operator, **one}
        for kind in ("sources", "steps")
        for operator, part in report[kind].items()
        for one in part["instances"]
    ]
    print_rows(rows, INSTANCE_COLUMNS, output, none=f"{name} has committed no batch yet")


def stop(name: JobName, no_wait: NoWait = False) -> None:
    """Stop a job after its current batch; `restart` continues from there."""
    with _registry() as registry:
        _request(registry, name, "stopped")
        if not no_wait:
            _await(registry, name, lambda job: job.state in STOPPED and not job.run,
                   "stopped")  # fmt: skip
    say(f"{name} has stopped" if not no_wait else f"{name} will stop after its current batch")


def restart(name: JobName, no_wait: NoWait = False) -> None:
    """Restart a job with the current version of its file; it continues where it stopped."""
    with _registry() as registry:
        asked = _request(registry, name, "running", restart=True).asked
        if not no_wait:
            _await(registry, name, lambda job: job.ran >= asked and _has_started(job), "started")
    say(f"{name} has restarted" if not no_wait else f"{name} will be restarted")


def rewind(
    name: JobName, to: To, into: Into = None, again: Again = False, no_wait: NoWait = False
) -> None:
    """Stop a job, rewind it, and start it again if it was running; see `millstream rewind`."""
    from millstream.jobs.stack import KAFKA

    with _registry() as registry:
        job = registry.job(name)
        kafka = job.kafka or registry.setting(KAFKA)
        wanted, asked = job.wanted, job.asked
        runs = job.run is not None or wanted == "running"
        if runs:
            _request(registry, name, "stopped")
            _await(registry, name, lambda job: not job.run and job.state in STOPPED,
                   "stopped")  # fmt: skip
        try:
            _, pipeline = load(f"{job.file}:{job.pipeline}")
            rewind_job(pipeline, to, into=into, again=again, kafka=kafka,
                       checkpoint=Path(job.checkpoint))  # fmt: skip
        finally:
            if runs:
                asked = _request(registry, name, wanted, restart=wanted == "running").asked
        if wanted == "running" and not no_wait:
            _await(registry, name, lambda job: job.ran >= asked and _has_started(job), "started")
    say(f"{name} is {'restarting' if wanted == 'running' else 'still stopped'}")


def remove(name: JobName, yes: Yes = False, no_wait: NoWait = False) -> None:
    """Stop a job and remove it; its checkpoint and its results are kept."""
    with _registry() as registry:
        job = registry.job(name)
        confirm(f"remove the job {name}", yes=yes)
        _request(registry, name, "removed")
        if not no_wait:
            _await(registry, name, None, "removed")
    say(f"{name} is removed; its checkpoint is still in {job.checkpoint}")


def logs(
    name: JobName,
    last: Annotated[int, typer.Option("--last", "-n", metavar="N", help="The last N lines.")] = 50,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing new lines.")
    ] = False,
    libraries: Annotated[
        bool,
        typer.Option(
            "--output-of-libraries", help="The output of Java and of the file's own code."
        ),
    ] = False,
) -> None:
    """Print a job's log: JSON lines with `ts`, `level`, `event` and the facts."""
    from millstream.jobs.folders import stack_folder
    from millstream.jobs.logs import follow as follow_lines
    from millstream.jobs.logs import last_lines

    if last < 1:
        raise InvalidInput("--last needs a number of 1 or more", got=str(last))
    with _registry() as registry:
        registry.job(name)
    stack = stack_folder().job(name)
    file = stack.output if libraries else stack.log
    for line in last_lines(file, last):
        sys.stdout.write(one_line(line) + "\n")
    if follow:
        sys.stdout.flush()
        for line in follow_lines(file, lambda: False):
            sys.stdout.write(one_line(line) + "\n")
            sys.stdout.flush()


def _registry() -> "JobRegistry":
    from millstream.jobs.folders import stack_folder
    from millstream.jobs.registry import JobRegistry

    stack = stack_folder()
    stack.make()
    return JobRegistry(stack.registry)


def _request(registry: "JobRegistry", name: str, wanted: Any, *, restart: bool = False) -> "JobRow":
    from millstream.jobs.stack import need_supervisor

    registry.job(name)
    need_supervisor()
    return registry.want(name, wanted, restart=restart)


def _has_started(job: "JobRow") -> bool:
    from millstream.jobs.registry import WORKING

    return job.state in WORKING


def _await(
    registry: "JobRegistry", name: str, done: "Callable[[JobRow], bool] | None", word: str
) -> None:
    """Wait until `done` holds; with `done=None` until the job is gone."""
    deadline, state = time.monotonic() + _TIMEOUT, None
    while time.monotonic() < deadline:
        found = {job.name: job for job in registry.all()}.get(name)
        if found is None or (done is not None and done(found)):
            return
        if found.state == "failed" and word != "removed":
            raise _failure(found)
        if word == "started" and _waits(found):
            raise Unavailable(
                f"the job {name} is submitted and needs another system to work",
                got=found.reason,
                do="it starts by itself when that is there",
            )
        if found.state != state:
            state = found.state
            say(f"{name}: {state}{f' ({found.reason})' if found.reason else ''} …")
        time.sleep(_POLL)
    raise MillstreamError(f"the job {name} needs to have {word}",
                          got=f"{state} after {_TIMEOUT:.0f} s",
                          do=f"see `millstream jobs show {name}`")  # fmt: skip


def _waits(job: "JobRow") -> bool:
    """Whether the requested run has waited for a while."""
    began = max(job.since, job.launched or 0.0)
    return job.state == "waiting" and job.ran >= job.asked and time.time() - began > _AWAY


def _failure(job: "JobRow") -> MillstreamError:
    """The error of a job that has failed, with the exit code its run ended with."""
    from millstream.jobs.folders import stack_folder
    from millstream.jobs.reports.run_log import RunLogReader

    error = MillstreamError(f"the job {job.name} must run", got=job.reason or "a failure",
                            do=f"see `millstream jobs logs {job.name}`")  # fmt: skip
    with RunLogReader(stack_folder().job(job.name).run_log).at_once() as run_log:
        run = run_log.run()
    if run is not None and run.ending is not None and run.ending.code:
        error.exit_code = run.ending.code
    return error


def _for_people(row: dict[str, Any]) -> dict[str, Any]:
    where = ", ".join(f"{batches:,} {place}" for place, batches in row["where"].items())
    return {**row, "since": row["since"][:19].replace("T", " "), "where": where or None}


def _when(at: float) -> str:
    return iso(datetime.fromtimestamp(at, UTC))
