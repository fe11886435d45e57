"""`millstream up | down | status`: the broker, the supervisor and the page on this machine."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.stack.page_address import PageHost, PageOptions, PageToken, PageUrl
from millstream.cli.terminal.connect import topics_of
from millstream.cli.terminal.options import Kafka, Shape, command
from millstream.cli.terminal.output import Output, print_facts, say, warn
from millstream.errors import InvalidInput, Unavailable
from millstream.viewing.points_in_time import iso

if TYPE_CHECKING:
    from millstream.kafka.local.cluster import ClusterStatus


def register(app: typer.Typer) -> None:
    """Add `up`, `down` and `status`."""
    command(app, "up", "millstream up", "millstream up --port 9092 --page-port 8080",
            "millstream up --brokers 3",
            "millstream up --kafka kafka.example:9092")(up)  # fmt: skip
    command(app, "down", "millstream down")(down)
    command(app, "status", "millstream status", "millstream status -o json")(status)


def up(
    *,
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="N", help="Kafka's port [the last one, or a free one]."),
    ] = None,
    page_port: Annotated[
        int | None,
        typer.Option(
            "--page-port", metavar="N", help="The page's port [the last one, or a free one]."
        ),
    ] = None,
    brokers: Annotated[
        int | None,
        typer.Option("--brokers", metavar="N", help="The number of brokers [as last time, or 1]."),
    ] = None,
    only_broker: Annotated[
        bool, typer.Option("--only-broker", help="Start only Kafka, without jobs and page.")
    ] = False,
    page_host: PageHost = None,
    page_url: PageUrl = None,
    page_token: PageToken = None,
    kafka: Kafka = None,
    output: Shape = Output.table,
) -> None:
    """Start the local stack in the background: a Kafka broker, the supervisor, the page.

    The broker is a real one on the loopback: any Kafka client can use its address. It keeps its
    data and its port until the next `millstream up`. With --kafka no broker is started and jobs
    use that cluster. What already runs is left as it is; jobs that ran before `down` run again.

    With --brokers 3 Kafka is a cluster: topics have three replicas, and one broker may die
    without loss or delay. The cluster has a separate folder.
    """
    for option, value in (("--port", port), ("--page-port", page_port)):
        if value is not None and not 0 < value < 65536:
            raise InvalidInput(f"{option} needs a number from 1 to 65535", got=str(value))
    options = PageOptions(page_host, tuple(page_url or ()), page_token)
    options.check()
    if kafka is None:
        start_broker(port, brokers)
    if not only_broker:
        start_stack(kafka, page_port, options)
    _show(output, kafka)
    say("next: `millstream jobs submit FILE`, `millstream topics create clicks`, "
        "`millstream demo`, or `millstream down`")  # fmt: skip


def start_broker(port: int | None, brokers: int | None = None) -> None:
    """Start the local Kafka; what already runs is left as it is, dead nodes are restarted."""
    from millstream.kafka.local import broker, cluster

    single, several = broker.running_address(), cluster.running_address()
    _refuse_change_while_running(single, several, port=port, brokers=brokers)
    if several or (single is None and (cluster.is_chosen() if brokers is None else brokers != 1)):
        _start_cluster(port, brokers)
    elif single is None:
        say("starting the local broker …")
        broker.start(port=port, say=say)
        cluster.choose(chosen=False)


def _start_cluster(port: int | None, brokers: int | None) -> None:
    from millstream.kafka.local import cluster

    now = cluster.status()
    if now.nodes and not now.down:
        return
    names = f" {', '.join(map(str, now.down))}" if now.running else "s"
    say(f"starting the local broker{names} …")
    cluster.start(brokers=brokers, port=port, say=say)
    cluster.choose(chosen=True)


def _refuse_change_while_running(
    single: str | None, several: str | None, *, port: int | None, brokers: int | None
) -> None:
    """A running Kafka can change neither its port nor its number of brokers."""
    running = single or several
    if running is None:
        return
    first = running.partition(",")[0]
    if port is not None and first != f"127.0.0.1:{port}":
        raise InvalidInput(f"--port {port} needs a broker that is not running yet",
                           got=f"one at {first}", do="stop it with `millstream down`")  # fmt: skip
    if brokers is not None and (brokers == 1) != (single is not None):
        raise InvalidInput(f"--brokers {brokers} needs no other Kafka to run here",
                           got="one broker" if single else "a cluster of several",
                           do="stop it with `millstream down`")  # fmt: skip


def start_stack(
    kafka: str | None, page_port: int | None, options: PageOptions | None = None
) -> None:
    """Start the supervisor and the page; what already runs is left as it is."""
    from millstream.jobs import stack
    from millstream.jobs.folders import stack_folder
    from millstream.jobs.registry import JobRegistry
    from millstream.kafka.local.broker_folder import free_port, refuse_taken

    now, options = stack.status(), options or PageOptions()
    if now.supervisor is None or now.console is None:
        say("starting the supervisor and the page …")
    with JobRegistry(stack_folder().registry, read_only=True) as registry:
        before = stack.page_address(registry)
    page = options.address(page_port or before.port or free_port())
    if now.console is None:
        refuse_taken(page.port)
    elif page.port != before.port or options.token or (options.given and page != before):
        raise InvalidInput(f"a page at {page.host} port {page.port} needs one that is not up yet",
                           got=f"one at {now.page}",
                           do="stop it with `millstream down`")  # fmt: skip
    else:
        page = before
    if options.token is not None and now.console is None:
        stack_folder().set_token(str(options.own_token()))
    if any(url.startswith("http://") for url in page.urls):
        warn("the page and its token go over the network unencrypted: put a proxy with TLS before "
             "it, and give its https address as --page-url")  # fmt: skip
    stack.up(kafka=kafka, page=page)


def down() -> None:
    """Stop the page, the jobs, the supervisor and the local Kafka; their data is kept."""
    from millstream.jobs import stack
    from millstream.kafka.local import cluster

    if stack.down(say):
        say("the page and the supervisor have stopped")
    ended = cluster.stop_all(say=say)
    if ended > 1:
        say(f"the {ended} local brokers have stopped")
    else:
        say("the local broker has stopped" if ended else "no local broker was running")


def status(kafka: Kafka = None, output: Shape = Output.table) -> None:
    """Show whether Kafka runs, its address and topics, and the page's address."""
    _show(output, kafka)


def _show(output: Output, kafka: str | None) -> None:
    from millstream.jobs import stack

    stack_now = stack.status()
    page = None if stack_now.page is None else stack.page_link(stack_now.page)
    facts, advice = _broker_facts() if kafka is None else _kafka_facts(kafka)
    print_facts({**facts, "supervisor": stack_now.supervisor, "page": page}, output)
    if advice is not None:
        say(advice)


def _kafka_facts(kafka: str) -> tuple[dict[str, object], str | None]:
    topics = topics_of(kafka)
    count = len(topics.list())
    return {"running": True, "address": topics.address, "topics": count}, None


def _broker_facts() -> tuple[dict[str, object], str | None]:
    """The facts of the local broker, and advice if something is wrong."""
    from millstream.kafka.local import broker, cluster

    now = broker.status()
    if not now.running and cluster.is_chosen():
        return _cluster_facts(cluster.status())
    started = None if now.started is None else datetime.fromtimestamp(now.started, UTC)
    facts: dict[str, object] = {
        "running": now.running,
        "answering": now.answering,
        "address": now.address if now.running else None,
        "pid": now.pid,
        "since": None if started is None else iso(started),
        "topics": len(topics_of(now.address).list()) if now.answering else None,
        "folder": str(now.folder),
        "log_file": str(now.log_file),
    }
    if not now.running:
        return facts, "start it with `millstream up`"
    if not now.answering:
        return facts, (
            f"it runs but does not answer: it may be starting, paused or stuck; see {now.log_file}"
        )
    return facts, None


def _cluster_facts(now: "ClusterStatus") -> tuple[dict[str, object], str | None]:
    """The facts of the local cluster, and advice if nodes are down or do not answer."""
    silent = sorted({*now.running} - {*now.answering})
    facts: dict[str, object] = {
        "running": bool(now.running),
        "answering": bool(now.answering),
        "address": now.address if now.running else None,
        "brokers": len(now.nodes),
        "up": list(now.answering),
        "down": list(now.down),
        "controllers": list(now.controllers),
        "pids": [status.pid for status in now.nodes.values()],
        "topics": _topics(now) if _has_quorum(now) else None,
        "folder": str(now.folder),
        "log_files": [str(status.log_file) for status in now.nodes.values()],
    }
    if not now.running:
        return facts, "start it with `millstream up`"
    problems = [f"broker {node} is down" for node in now.down]
    problems += [f"broker {node} runs but does not answer" for node in silent]
    if not problems:
        return facts, None
    reach = "" if _has_quorum(now) else "; without a majority of controllers nothing is written"
    return facts, f"{', '.join(problems)}{reach}; `millstream up` starts those that are down"


def _topics(now: "ClusterStatus") -> int | None:
    """The number of topics; None while the cluster is recovering from the loss of a node."""
    try:
        return len(topics_of(now.address).list())
    except Unavailable:
        return None


def _has_quorum(now: "ClusterStatus") -> bool:
    """Whether a majority of controllers answers."""
    return 2 * len({*now.controllers} & {*now.answering}) > len(now.controllers)
