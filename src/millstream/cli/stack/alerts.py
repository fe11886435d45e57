"""`millstream alerts`: the state of alerts, their notifications, and silences."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.terminal.options import Shape, command
from millstream.cli.terminal.output import Output, print_facts, print_json, print_rows, say
from millstream.cli.terminal.settings import key_values
from millstream.duration import micros
from millstream.errors import NotFound

if TYPE_CHECKING:
    from millstream.jobs.folders import StackFolder

COLUMNS = ["job", "alert", "key", "state", "since", "notified", "silenced_until", "problem"]
NOTIFICATIONS = ["at", "state", "key", "outcome", "tries", "problem", "episode"]
Job = Annotated[str, typer.Argument(metavar="JOB", help="The job.")]
Alert = Annotated[str, typer.Argument(metavar="ALERT", help="The alert.")]
Keys = Annotated[
    list[str] | None,
    typer.Option("--key", "-k", metavar="NAME=VALUE", help="Only this key of it (repeatable)."),
]


def register(app: typer.Typer) -> None:
    """Add `alerts …`."""
    group = typer.Typer(help="Show alerts, and silence them.", no_args_is_help=True)
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
    firing: Annotated[bool, typer.Option("--firing", help="Only those that are firing.")] = False,
    output: Shape = Output.table,
) -> None:
    """List alerts, the worst first: the state of each key that is not ok, and its notifications.

    Needs neither the job nor the supervisor to run.
    """
    from millstream.jobs.alerts.alerts import alerts

    found = [row for row in alerts(_stack(), job) if not firing or row["state"] == "firing"]
    rows = found if output is Output.json else [_for_people(row) for row in found]
    none = "no alert is firing" if firing else "no alerts; stream.to(ms.Alert(…)) makes one"
    print_rows(rows, COLUMNS, output, none=none)


def show(job: Job, alert: Alert, output: Shape = Output.table) -> None:
    """Show one alert: its rule, the state of its keys, and its notifications."""
    from millstream.jobs.alerts.alerts import alerts, notifications

    found = alerts(_stack(), job, alert)
    if not found:
        known = sorted({row["alert"] for row in alerts(_stack(), job)})
        raise NotFound(f"this needs an alert {alert!r} of the job {job}",
                       got=", ".join(known) or "no alerts")  # fmt: skip
    sent = notifications(_stack(), job, alert)
    facts = {name: found[0][name] for name in ("job", "alert", "on", "when", "for", "to",
                                               "untracked")}  # fmt: skip
    keys = [row for row in found if row["key"] is not None]
    if output is Output.json:
        print_json({**facts, "keys": keys, "notifications": sent})
        return
    print_facts(facts, output)
    print_rows(
        [_for_people(row) for row in keys], COLUMNS[2:], output, none="no key is pending or firing"
    )
    print_rows(sent, NOTIFICATIONS, output, none="no notifications yet")


def silence(
    job: Job,
    alert: Alert,
    length: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="How long: '30 minutes'.")
    ] = "1 hour",
    key: Keys = None,
    output: Shape = Output.table,
) -> None:
    """Silence an alert for a while; if it still fires afterwards, it notifies."""
    from millstream.jobs.alerts.alerts import silence as silence_alert

    seconds = micros(length, what="--for") / 1e6
    done = silence_alert(
        _stack(), job, alert, seconds=seconds, key=key_values(key) if key else None
    )
    if output is Output.json:
        print_json(done)
    else:
        say(f"{alert} of {job} is silenced until {done['silenced_until']}")


def unsilence(job: Job, alert: Alert, key: Keys = None, output: Shape = Output.table) -> None:
    """End a silence."""
    from millstream.jobs.alerts.alerts import unsilence as unsilence_alert

    done = unsilence_alert(_stack(), job, alert, key=key_values(key) if key else None)
    if output is Output.json:
        print_json(done)
    else:
        say(f"{alert} of {job} is no longer silenced")


def _stack() -> "StackFolder":
    from millstream.jobs.folders import stack_folder

    return stack_folder()


def _for_people(row: dict[str, Any]) -> dict[str, Any]:
    since = row["since"]
    return {**row, "since": None if since is None else since[:19].replace("T", " ")}
