"""`/metrics`, read by Prometheus' own parser, and the dashboard and alerts that use it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from millstream.console import metrics
from millstream.jobs.database import open_database, transaction
from millstream.jobs.reports.lag import SCHEMA, VERSION, lag_file

if TYPE_CHECKING:
    from tests.console.serving import Served

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
_METRIC = re.compile(r"\bmillstream_[a-z_]+")


def samples(console: Served) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample by name and labels, as Prometheus reads them."""
    asked = console("/metrics", token=None)
    assert asked.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(asked.body.decode())
        for sample in family.samples
    }


def add_lag(console: Served, warning: str | None) -> None:
    connection = open_database(lag_file(console.folder), SCHEMA, version=VERSION, durable=False)
    with transaction(connection):
        connection.execute("INSERT INTO lag VALUES ('hot', 'bids', 'bids', 0, 10, 0, 25, 15, 3.5, "
                           "?, 1.0)", (warning,))  # fmt: skip
    connection.close()


def test_the_metrics_of_a_job_have_the_documented_names(console: Served) -> None:
    console.add_job()
    add_lag(console, "soon gone")
    found = samples(console)

    def value(name: str, **labels: str) -> float:
        return found[f"millstream_{name}", frozenset({"pipeline": "hot", **labels}.items())]

    lag = {"source": "bids", "topic": "bids", "partition": "0"}
    assert value("pipeline_up") == 0
    assert value("job_state", state="stopped") == 1
    assert value("job_state", state="running") == 0
    assert value("rows_in_total", source="bids") == 300
    assert value("rows_out_total", sink="hot") == 9
    assert value("rows_dropped_total", reason="late") == 3
    assert value("rows_dropped_total", reason="dead") == value("dlq_records") == 6
    assert value("batches_total", where="driver") == 3
    assert value("batch_duration_seconds_bucket", le="0.1") == 0
    assert value("batch_duration_seconds_bucket", le="0.25") == 3
    assert value("batch_duration_seconds_bucket", le="+Inf") == 3
    assert value("batch_duration_seconds_count") == 3
    assert value("batch_duration_seconds_sum") == pytest.approx(0.6)
    assert value("batch_phase_seconds", phase="run") == 0.1
    assert value("state_rows") == 5
    assert value("state_bytes") == 500
    assert (value("checkpoint_files"), value("checkpoint_bytes")) == (70, 3000)
    assert value("checkpoint_disk_free_bytes") == 10**9
    assert value("step_rows_in_total", step="tumbling(auction)") == 300
    assert value("lag_records", **lag) == 15
    assert value("lag_seconds", **lag) == 3.5
    assert value("retention_warning", **lag) == 1
    assert value("watermark_delay_seconds", source="bids") > 0
    assert value("restarts_total") == 0


def test_batches_are_counted_by_what_ran_them(console: Served) -> None:
    console.add_job(places=("", "bridge", "spark", "spark", "driver"))
    assert {
        dict(labels)["where"]: count
        for (name, labels), count in samples(console).items()
        if name == "millstream_batches_total"
    } == {"driver": 2, "bridge": 1, "spark": 2}


def test_names_that_would_break_the_format_are_escaped(console: Served) -> None:
    text = 'a "quoted" \\ step\nof two lines'
    made = metrics._Metrics()
    made.add("millstream_state_rows", 1, pipeline=text)
    [family] = text_string_to_metric_families("\n".join(made.lines()) + "\n")
    assert family.samples[0].labels == {"pipeline": text}


def used(text: str) -> set[str]:
    """The metrics in a dashboard or a rule, without the suffixes of histograms."""
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in _METRIC.findall(text)}


def test_every_metric_of_the_dashboard_and_the_alerts_exists(console: Served) -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "millstream.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    expressions += [rule["expr"] for rule in alerts]
    wanted = set().union(*map(used, expressions))
    assert len(wanted) > 12
    assert wanted <= set(metrics.HELP)
    console.add_job()
    add_lag(console, None)
    there = {re.sub(r"_(bucket|sum|count)$", "", name) for name, _ in samples(console)}
    assert wanted <= there
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    assert len({rule["alert"] for rule in alerts}) == len(alerts)


def test_a_metric_that_does_not_exist_would_be_found() -> None:
    assert not used("rate(millstream_rows_imagined_total[5m])") <= set(metrics.HELP)
