"""Random hostile values for everything the OpenAPI document names: never an answer that nobody
foresaw, never one without its sentence."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.console.serving import Served, served

from millstream.console.app import application
from millstream.console.limits import Limits
from millstream.log.producer import Producer
from millstream.log.topics import Topics

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
BODIES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["to", "into", "again", "for", "x"]), inner, max_size=4), max_leaves=8,
)  # fmt: skip


@pytest.fixture(scope="module")
def fuzzed(
    tmp_path_factory: pytest.TempPathFactory, broker: ThrowAwayBroker
) -> Iterator[tuple[Served, Any]]:
    """A console with a job, a topic and dead rows; and its OpenAPI document."""
    for topic in ("fuzzed", "hot.late", "hot.dead"):
        Topics(broker.address).create(topic, exists_ok=True)
        with Producer(broker.address) as producer:
            for number in range(5):
                producer.send(topic, {"n": number}, key=f"{number}")
    with served(tmp_path_factory.mktemp("home"), kafka=broker.address) as console:
        console.add_job(about={"late": {"topics": ["hot.late"], "elsewhere": []}})
        yield console, console("/api/openapi.json").json


@given(data=st.data())
@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_asked_the_answer_is_foreseen(
    fuzzed: tuple[Served, Any], data: st.DataObject
) -> None:
    console, document = fuzzed
    app = application(console.place, port=1, page=None, console=console.console,
                      limits=Limits(rate=1e9, burst=10**9))  # fmt: skip
    path, method = data.draw(st.sampled_from(sorted(calm(document))))
    operation = document["paths"][path][method]
    query = []
    for parameter in operation["parameters"]:
        known = st.just(KNOWN.get(parameter["name"], "1"))
        in_path = parameter["in"] == "path"
        value = data.draw(known | VALUES if in_path else VALUES, label=parameter["name"])
        if in_path:
            path = path.replace(f"{{{parameter['name']}}}", quote(value, safe="") or "x")
        elif data.draw(st.booleans()):
            query.append(f"{parameter['name']}={quote(value)}")
    body = json.dumps(data.draw(BODIES)).encode() if "requestBody" in operation else b""
    status, answer = asyncio.run(asked(app, method.upper(), path, "&".join(query), body, console))
    assert status < 500 or status == 503, (path, query, answer)
    assert len(answer) < LARGEST
    if status >= 400 and path != "/readyz":
        assert list(json.loads(answer)) == ["error"]


def calm(document: Any) -> list[tuple[str, str]]:
    """Every route but streams, which do not end, and what would take the fuzzed job away."""
    return [
        (path, method)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if "text/event-stream" not in json.dumps(operation["responses"]) and method != "delete"
    ]


async def asked(
    app: Any, method: str, path: str, query: str, body: bytes, console: Served
) -> tuple[int, bytes]:
    """An answer of the application itself, without a socket between."""
    from urllib.parse import unquote

    headers = [(b"host", b"127.0.0.1:1"), (b"authorization", f"Bearer {console.token}".encode())]
    if body:
        headers.append((b"content-type", b"application/json"))
    scope = {"type": "http", "method": method, "path": unquote(path), "raw_path": path.encode(),
             "query_string": query.encode(), "headers": headers, "http_version": "1.1",
             "scheme": "http", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 1),
             "root_path": ""}  # fmt: skip
    told: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        told.append(message)

    await app(scope, receive, send)
    return told[0]["status"], b"".join(message.get("body", b"") for message in told[1:])
