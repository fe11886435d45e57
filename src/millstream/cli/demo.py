"""`millstream demo`: a broker, a shop that produces page views, and a live tail of them."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.bodies import Format
from millstream.cli.connect import cluster_of
from millstream.cli.options import Kafka, Shape, command
from millstream.cli.output import Output, counted, say
from millstream.cli.stdout import watched_stdout
from millstream.cli.tail import section_of, writer
from millstream.cli.views import page_views, stamped
from millstream.errors import InvalidInput, MillstreamError

if TYPE_CHECKING:
    from millstream.cli.reading import Section
    from millstream.log.records import Record
    from millstream.log.settings import Cluster

TOPIC, PARTITIONS = "shop.views", 3


class Shop:
    """Sends page views in the background at a steady pace."""

    def __init__(
        self, cluster: "Cluster", *, views: Iterator[dict[str, object]], rate: float
    ) -> None:
        self._cluster, self._views, self._rate = cluster, views, rate
        self._closing = threading.Event()
        self.sent = 0
        self.problem: MillstreamError | None = None

    @contextmanager
    def open(self, *, ended: Callable[[], None]) -> Iterator[None]:
        """Produces for the length of the block; calls `ended` if that fails meanwhile."""
        thread = threading.Thread(target=self._produce, args=(ended,), name="shop")
        thread.start()
        try:
            yield
        finally:
            self._closing.set()
            thread.join()

    def _produce(self, ended: Callable[[], None]) -> None:
        from millstream.log.producer import Producer

        try:
            with Producer(self._cluster) as producer:
                opened = time.monotonic()
                while not self._closing.wait(self._until_next(opened)):
                    view = stamped(next(self._views), datetime.now(UTC))
                    producer.send(TOPIC, view, key=str(view["user"]))
                    self.sent += 1
        except MillstreamError as problem:
            self.problem = problem
            ended()

    def _until_next(self, opened: float) -> float:
        return max(0.0, opened + self.sent / self._rate - time.monotonic())


def register(app: typer.Typer) -> None:
    """Adds `demo`."""
    command(app, "demo", "millstream demo", "millstream demo --seconds 10 -o json")(demo)


def demo(
    seconds: Annotated[
        float | None, typer.Option("--seconds", metavar="N", help="End by itself after this long.")
    ] = None,
    rate: Annotated[
        float, typer.Option("--rate", metavar="N", help="Page views per second.")
    ] = 4.0,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Another seed, another day in the shop.")
    ] = 1,
    kafka: Kafka = None,
    output: Shape = Output.table,
) -> None:
    """See it work: a shop's page views, live.

    Page views go into a topic and a tail shows them as they arrive. Starts the local broker
    if none runs, and stops it again at the end. Ctrl-C ends it all.
    """
    if not 0 < rate <= 10_000:
        raise InvalidInput("--rate needs a number above 0, up to 10000", got=str(rate))
    if seconds is not None and not 0 < seconds < 1e9:
        raise InvalidInput("--seconds needs a number above 0", got=str(seconds))
    with _some_kafka(kafka) as cluster:
        from millstream.log.topics import Topics

        Topics(cluster).create(TOPIC, partitions=PARTITIONS, exists_ok=True)
        shop = Shop(cluster, views=page_views(seed), rate=rate)
        _introduce(cluster)
        with suppress(KeyboardInterrupt):
            _watch(shop, section_of(TOPIC, [], cluster), writer(output, Format.json), seconds)
        say(f"the shop is closed: {counted(shop.sent, 'page view')} went into {TOPIC}")
        if shop.problem is not None:
            raise shop.problem


def _watch(
    shop: Shop, section: "Section", write: Callable[["Record"], None], seconds: float | None
) -> None:
    """Shows what the shop produces until somebody or something ends it."""
    with section.reader(section.places("end"), until_end=False) as reader:
        timer = threading.Timer(seconds or 0, reader.stop)
        timer.daemon = True
        with watched_stdout(reader.stop), shop.open(ended=reader.stop):
            if seconds is not None:
                timer.start()
            try:
                for record in reader:
                    write(record)
            finally:
                timer.cancel()


@contextmanager
def _some_kafka(kafka: str | None) -> "Iterator[Cluster]":
    """The cluster that is named, else the local broker, else one started for this demo."""
    from millstream.log import broker

    if kafka is not None or broker.running_address() is not None:
        yield cluster_of(kafka)
        return
    say("starting a local broker …")
    broker.start(say=say)
    try:
        yield cluster_of(None)
    finally:
        say("stopping the local broker …")
        broker.stop(say=say)


def _introduce(cluster: "Cluster") -> None:
    from millstream.log.broker import running_address

    where = "" if cluster.address == running_address() else f" --kafka {cluster.address}"
    say(
        f"""a shop's page views are going into the topic {TOPIC} on {cluster.address}
try in another terminal:
  millstream tail {TOPIC} --where "page = '/cart'"{where}
  millstream tail {TOPIC} --from -1min --until-end -o json{where}
  millstream topics describe {TOPIC}{where}
Ctrl-C ends it all
"""
    )
