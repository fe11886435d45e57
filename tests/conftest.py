"""The rules of every test run, and the real parts that tests share.

- A test that is skipped, or expected to fail, fails the run unless `skips.toml` lists it.
- Warnings are errors (`pyproject.toml`).
- The run ends with the ten slowest tests and the time spent in each folder.
- One broker serves a whole run (one per worker); each test has topics of its own.
"""

from __future__ import annotations

import os
import re
import tomllib
import uuid
from collections import defaultdict
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from pyspark.sql import SparkSession

    from millstream.testing.local_broker import ThrowAwayBroker
    from millstream.testing.local_postgres import ThrowAwayPostgres

SKIPS = Path(__file__).with_name("skips.toml")

# A busy machine is no fault of a test: neither its deadline nor how long it takes to draw.
hypothesis.settings.register_profile(
    "millstream",
    deadline=None,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("millstream")


class Rules:
    """What a run must report, during the run and at its end."""

    def __init__(self, skips: Path) -> None:
        entries = tomllib.loads(skips.read_text()).get("skip", []) if skips.exists() else []
        for entry in entries:
            if set(entry) != {"test", "reason"} or not str(entry["reason"]).strip():
                raise pytest.UsageError(
                    f"{skips.name}: an entry needs a test and a reason: {entry}"
                )
        self._listed = {str(entry["test"]) for entry in entries}
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        self._refuse(report, item.nodeid)
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        self._refuse(report, collector.nodeid)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self._seconds:
            return
        terminalreporter.section("time")
        slowest = sorted(self._seconds.items(), key=lambda entry: -entry[1])[:10]
        for test, seconds in slowest:
            terminalreporter.write_line(f"{seconds:8.2f} s  {test}")
        folders: defaultdict[str, list[float]] = defaultdict(list)
        for test, seconds in self._seconds.items():
            folders[str(PurePosixPath(test.partition("::")[0]).parent)].append(seconds)
        for folder, times in sorted(folders.items(), key=lambda entry: -sum(entry[1])):
            terminalreporter.write_line(f"{sum(times):8.2f} s  {folder}/ ({len(times)} tests)")

    def _refuse(self, report: pytest.TestReport | pytest.CollectReport, test: str) -> None:
        if not report.skipped or test.partition("[")[0] in self._listed or test in self._listed:
            return
        expected = getattr(report, "wasxfail", None)
        if expected is None:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        else:
            reason = f"Expected to fail: {expected}"
            del report.wasxfail
        report.outcome = "failed"
        report.longrepr = f"{reason}\n{test} is not listed in tests/{SKIPS.name}"


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Rules(SKIPS), "millstream-rules")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for fixture, mark in (("broker", "kafka"), ("spark", "spark")):
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(mark)


@pytest.fixture(autouse=True, scope="session")
def own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests do not use the user's brokers and clusters, but share the user's cache of jars."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("MILLSTREAM_KAFKA")]:
            patch.delenv(name)
        patch.setenv("MILLSTREAM_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="session")
def broker(own_home: None) -> Iterator[ThrowAwayBroker]:
    """A real broker for the whole run: `broker.address`."""
    from millstream.testing import broker as started

    with started() as running:
        yield running


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[ThrowAwayPostgres]:
    """A real PostgreSQL for the whole run; each test has its own database."""
    from millstream.testing import postgres

    with postgres() as running:
        yield running


@pytest.fixture
def database(postgres_server: ThrowAwayPostgres) -> Iterator[str]:
    """The address of an empty database for this test only."""
    import psycopg

    name = f"t{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(f"create database {name}")
        yield postgres_server.url.rpartition("/")[0] + f"/{name}"
        connection.execute(f"drop database {name} with (force)")


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """The name of a topic for this test only; the test creates it."""
    words = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)[:80]
    return f"{words}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The Spark session of this run, configured as for pipelines."""
    from millstream.engine.spark.session import session

    spark = session()
    yield spark
    spark.stop()


@pytest.fixture
def derby(spark: SparkSession, tmp_path: Path) -> str:
    """The JDBC address of an empty database in Spark's memory, with the driver that Spark ships."""
    jvm: Any = spark._jvm
    jvm.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    return f"jdbc:derby:memory:{uuid.uuid4().hex};create=true"
