"""`Postgres`: the suite of all sinks."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

import millstream as ms
from millstream.testing.sink_suite import SinkSuite


class TestPostgres(SinkSuite):
    @pytest.fixture(autouse=True)
    def place(self, database: str) -> None:
        self.url = database

    def sink(self) -> ms.Postgres:
        return ms.Postgres('hot"; drop table x', url=self.url)

    def keyed_sink(self) -> ms.Postgres:
        return ms.Postgres('hot"; drop table x', key="k", url=self.url)

    def rows(self) -> list[dict[str, Any]]:
        with psycopg.connect(self.url, row_factory=dict_row) as connection:
            connection.execute("set timezone to 'UTC'")
            return connection.execute('select * from "hot""; drop table x"').fetchall()
