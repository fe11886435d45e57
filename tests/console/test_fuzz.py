"""Random hostile values for every parameter in the OpenAPI document: each answer has a documented
status, and each error a sentence."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.console.serving import Served, served

from millstream.console.api.routes import openapi
from millstream.console.app import Console, application
from millstream.console.guard.limits import Limits
from millstream.jobs.folders import stack_folder
from millstream.kafka.admin.topics import Topics
from millstream.kafka.clients.producing.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import Message

    from millstream.testing.local_broker import ThrowAwayBroker

LARGEST = 2_000_000
HOSTILE = st.sampled_from(
    ["..", "../../etc/passwd", "%00", "\x00", "\u202e", "<script>", "'; drop table jobs; --",
     "${env:HOME}", "{{7*7}}", "-1", "0", "1e9", "9" * 400, "NaN", "@", "@1", "@" + "9" * 30,
     "-1h", "-9999999999999 days", "0001-01-01", "9999-12-31T23:59:59", "0@0", "0@0,0@1", "9@9",
     "0@" + "9" * 18, "end", "beginning", "n = 1", "n like '%" + "a%" * 400 + "'", "(" * 200,
     "__class__.__mro__", "not " * 150 + "n", "true", "hot", "hot.dead", "fuzzed", "auto", "hex",
     "waiting", "s", "tumbling(auction)", "auction=7", "x" * 3_000]
)  # fmt: skip
VALUES = HOSTILE | st.text(max_size=40) | st.integers(-(10**20), 10**20).map(str)
KNOWN = {"job": "hot", "topic": "fuzzed", "step": "tumbling(auction)"}
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
WORDS = st.sampled_from(["to", "into", "again", "for", "key", "x"])
BODIES = LEAVES | st.lists(LEAVES, max_size=3) | st.dictionaries(
    WORDS, LEAVES | st.lists(LEAVES, max_size=2) | st.dictionaries(WORDS, LEAVES), max_size=4
)  # fmt: skip
MOST = 12


def fuzzed_routes() -> list[tuple[str, str, Any]]:
    """Every route of the OpenAPI document but streams, which do not end, and what would take the
    fuzzed job away."""
    document = openapi(Console(stack_folder(Path("nowhere"))).endpoints(), "1")
    return [
        (path, method, operation)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if "text/event-stream" not in json.dumps(operation["responses"]) and method != "delete"
    ]


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory, broker: ThrowAwayBroker) -> Iterator[Served]:
    """A console with a job, a topic, late and dead rows."""
    for topic in ("fuzzed", "hot.late", "hot.dead"):
        Topics(broker.address).create(topic, exists_ok=True)
        with Producer(broker.address) as producer:
            for number in range(5):
                producer.send(topic, {"n": number}, key=f"{number}")
    with served(tmp_path_factory.mktemp("home"), kafka=broker.address) as console:
        console.add_job(about={"late": {"topics": ["hot.late"], "other_sinks": []}})
        yield console


@given(
    route=st.sampled_from(fuzzed_routes()),
    values=st.lists(VALUES | st.none(), min_size=MOST, max_size=MOST),
    body=BODIES,
)
@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_request_gets_a_documented_answer(
    fuzzed: Served, route: tuple[str, str, Any], values: list[str | None], body: Any
) -> None:
    """None stands for what is known in a path, and for what is left out of a query."""
    app = application(fuzzed.folder, port=1, page=None, console=fuzzed.console,
                      limits=Limits(rate=1e9, burst=10**9))  # fmt: skip
    path, method, operation = route
    query = []
    for parameter, value in zip(operation["parameters"], values, strict=False):
        name = parameter["name"]
        if parameter["in"] == "path":
            known = KNOWN.get(name, "1") if value is None else value
            path = path.replace(f"{{{name}}}", quote(known, safe="") or "x")
        elif value is not None:
            query.append(f"{name}={quote(value)}")
    sent = json.dumps(body).encode() if "requestBody" in operation else b""
    status, answer = asyncio.run(asked(app, method.upper(), path, "&".join(query), sent, fuzzed))
    assert status < 500 or status == 503, (path, query, answer)
    assert len(answer) < LARGEST
    if status >= 400 and path != "/readyz":
        assert list(json.loads(answer)) == ["error"]


def test_every_parameter_of_every_route_has_a_value_to_be_fuzzed_with() -> None:
    assert max(len(operation["parameters"]) for _, _, operation in fuzzed_routes()) <= MOST


async def asked(
    app: Any, method: str, path: str, query: str, body: bytes, console: Served
) -> tuple[int, bytes]:
    """An answer of the application itself, without a socket between."""
    headers = [(b"host", b"127.0.0.1:1"), (b"authorization", f"Bearer {console.token}".encode())]
    if body:
        headers.append((b"content-type", b"application/json"))
    scope = {"type": "http", "method": method, "path": unquote(path), "raw_path": path.encode(),
             "query_string": query.encode(), "headers": headers, "http_version": "1.1",
             "scheme": "http", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 1),
             "root_path": ""}  # fmt: skip
    messages: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        messages.append(message)

    await app(scope, receive, send)
    return messages[0]["status"], b"".join(message.get("body", b"") for message in messages[1:])
