"""`millstream alerts`: how alerts stand, what was told of them, and silence for a while."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.pipeline.state import key_pairs
from millstream.cli.terminal.options import Shape, command
from millstream.cli.terminal.output import Output, print_facts, print_json, print_rows, say
from millstream.duration import micros
from millstream.errors import NotFound

if TYPE_CHECKING:
    from millstream.jobs.folders import StackFolder

COLUMNS = ["job", "alert", "key", "state", "since", "notified", "silenced_until", "problem"]
TOLD = ["at", "state", "key", "outcome", "tries", "problem", "episode"]
Job = Annotated[str, typer.Argument(metavar="JOB", help="The job.")]
Alert = Annotated[str, typer.Argument(metavar="ALERT", help="The alert.")]
Keys = Annotated[
    list[str] | None,
    typer.Option("--key", "-k", metavar="NAME=VALUE", help="Only this key of it (repeatable)."),
]


def register(app: typer.Typer) -> None:
    """Adds `alerts …`."""
    group = typer.Typer(
        help="See what is wrong, and keep what you know of quiet.", no_args_is_help=True
    )
    command(group, "list", "millstream alerts list", "millstream alerts list --firing -o json")(
        list_alerts
    )
    command(group, "show", "millstream alerts show shop-views 'pages fail'")(show)
    command(
        group,
        "silence",
        "millstream alerts silence shop-views 'pages fail' --for '2 hours'",
        "millstream alerts silence shop-views 'pages fail' --key page=/cart",
    )(silence)
    command(group, "unsilence", "millstream alerts unsilence shop-views 'pages fail'")(unsilence)
    app.add_typer(group, name="alerts")


def list_alerts(
    job: Annotated[
        str | None, typer.Option("--job", metavar="JOB", help="Only those of this job.")
    ] = None,
    firing: Annotated[bool, typer.Option("--firing", help="Only what fires now.")] = False,
    output: Shape = Output.table,
) -> None:
    """List alerts, the worst first: per key that stands out its state, and who has been told.

    Needs neither the job nor the supervisor to run.
    """
    from millstream.jobs.alerts.alerts import alerts

    found = [row for row in alerts(_stack(), job) if not firing or row["state"] == "firing"]
    rows = found if output is Output.json else [_for_people(row) for row in found]
    none = "nothing fires" if firing else "no alerts; stream.to(ms.Alert(…)) makes one"
    print_rows(rows, COLUMNS, output, none=none)


def show(job: Job, alert: Alert, output: Shape = Output.table) -> None:
    """Show one alert: its rule, how its keys stand, and what was told of it."""
    from millstream.jobs.alerts.alerts import alerts, notifications

    found = alerts(_stack(), job, alert)
    if not found:
        known = sorted({row["alert"] for row in alerts(_stack(), job)})
        raise NotFound(f"this needs an alert {alert!r} of the job {job}",
                       got=", ".join(known) or "no alerts")  # fmt: skip
    told = notifications(_stack(), job, alert)
    facts = {name: found[0][name] for name in ("job", "alert", "on", "when", "for", "to",
                                               "untracked")}  # fmt: skip
    keys = [row for row in found if row["key"] is not None]
    if output is Output.json:
        print_json({**facts, "keys": keys, "notifications": told})
        return
    print_facts(facts, output)
    print_rows([_for_people(row) for row in keys], COLUMNS[2:], output, none="no key stands out")
    print_rows(told, TOLD, output, none="nobody has been told anything")


def silence(
    job: Job,
    alert: Alert,
    length: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="How long: '30 minutes'.")
    ] = "1 hour",
    key: Keys = None,
    output: Shape = Output.table,
) -> None:
    """Tell nobody of an alert for a while; it goes on standing, and is told if it still fires."""
    from millstream.jobs.alerts.alerts import silence as silenced

    seconds = micros(length, what="--for") / 1e6
    done = silenced(_stack(), job, alert, seconds=seconds, key=key_pairs(key) if key else None)
    if output is Output.json:
        print_json(done)
    else:
        say(f"{alert} of {job} is silent until {done['silenced_until']}")


def unsilence(job: Job, alert: Alert, key: Keys = None, output: Shape = Output.table) -> None:
    """End a silence."""
    from millstream.jobs.alerts.alerts import unsilence as heard

    done = heard(_stack(), job, alert, key=key_pairs(key) if key else None)
    if output is Output.json:
        print_json(done)
    else:
        say(f"{alert} of {job} is heard again")


def _stack() -> "StackFolder":
    from millstream.jobs.folders import stack_folder

    return stack_folder()


def _for_people(row: dict[str, Any]) -> dict[str, Any]:
    since = row["since"]
    return {**row, "since": None if since is None else since[:19].replace("T", " ")}
