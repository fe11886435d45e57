"""No route can be used without the token, or from another site."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.console.serving import Served, served

from millstream.console.guard.guard import OPEN
from millstream.console.guard.limits import Limits

if TYPE_CHECKING:
    from pathlib import Path


def test_only_the_three_open_routes_answer_without_a_token(tmp_path: Path) -> None:
    with served(tmp_path / "home", limits=Limits(guessing=10_000)) as console:
        console.add_job()
        check_tokens(console)


def check_tokens(console: Served) -> None:
    opened = set()
    for method, path in console.routes():
        for token in (None, "wrong", console.token + "x", "", console.token[:-1]):
            authorization: dict[str, Any] = (
                {} if token is None else {"Authorization": f"Bearer {token}"}
            )
            asked = console(path, method, token=None, **authorization)
            if asked.status != 401:
                opened.add(path)
            else:
                assert "millstream up" in asked.json["error"]
                assert "bearer" in asked.headers["www-authenticate"].lower()
    assert opened - {"/"} == OPEN == {"/healthz", "/readyz", "/metrics"}


@pytest.mark.parametrize(
    "authorization", ["{token}", "Basic {token}", "Bearer", "Bearer {token} {token}",
                      "Bearer\u00e9 {token}", "Bearer \u00e9{token}", "bearer{token}"],
)  # fmt: skip
def test_a_token_in_another_form_is_refused(console: Served, authorization: str) -> None:
    shown = authorization.format(token=console.token)
    assert console("/api/jobs", token=None, Authorization=shown).status == 401


def test_a_token_in_the_url_or_a_cookie_is_ignored(console: Served) -> None:
    for path in (f"/api/jobs?token={console.token}", f"/api/jobs?access_token={console.token}"):
        asked = console(path, token=None, Cookie=f"token={console.token}")
        assert asked.status == 401
        assert console.token.encode() not in asked.body


@pytest.mark.parametrize(
    "header",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example:{port}"},
        {"Host": "127.0.0.1:1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=lambda header: " ".join(f"{k} {v}" for k, v in header.items()),
)
def test_a_request_with_another_host_or_origin_is_refused_on_every_route(
    console: Served, header: dict[str, str]
) -> None:
    console.add_job()
    sent: dict[str, Any] = {n: value.format(port=console.port) for n, value in header.items()}
    for method, path in [*console.routes(), ("GET", "/"), ("GET", "/nothing")]:
        assert console(path, method, **sent).status in (403, 421), path


def test_a_form_on_another_site_changes_nothing(console: Served) -> None:
    """What browsers send without a preflight: no token, plain text, their Origin."""
    console.add_job()
    body = b'{"to": "start", "again": true}'
    for origin, status in (("http://evil.example", 403), (None, 401)):
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            sent: dict[str, Any] = {"Content-Type": kind}
            sent |= {"Origin": origin} if origin else {}
            asked = console("/api/jobs/hot/rewind", "POST", token=None, body=body, **sent)
            assert asked.status == status
    plain = console("/api/jobs/hot/rewind", "POST", body=body, Content_Type="text/plain")
    assert plain.status == 415


def test_a_public_page_accepts_only_its_configured_host_names(
    tmp_path: Path,
) -> None:
    urls = ("https://jobs.example", "http://10.0.0.5:8080")
    with served(tmp_path / "home", urls=urls) as console:
        own = f"127.0.0.1:{console.port}"
        for host, origin in (("jobs.example", "https://jobs.example"),
                             ("10.0.0.5:8080", "http://10.0.0.5:8080"),
                             (own, f"http://{own}")):  # fmt: skip
            assert console("/api/jobs", Host=host, Origin=origin).status == 200
            assert console("/api/jobs", Host=host, token=None).status == 401
        for host, origin in (("jobs.example", "http://jobs.example"),
                             ("jobs.example:443", "https://jobs.example"),
                             ("jobs.example.evil.example", "https://jobs.example"),
                             ("jobs.example", "https://evil.example")):  # fmt: skip
            assert console("/api/jobs", Host=host, Origin=origin).status in (403, 421)


def test_the_page_may_send_requests_under_either_name_of_the_loopback(console: Served) -> None:
    for host in (f"127.0.0.1:{console.port}", f"localhost:{console.port}"):
        asked = console("/api/jobs", Host=host, Origin=f"http://{host}")
        assert asked.status == 200


def test_every_response_forbids_sharing_framing_and_other_scripts(console: Served) -> None:
    for path, token in (("/healthz", None), ("/api/jobs", ""), ("/api/jobs", None), ("/none", "")):
        headers = console(path, token=token).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert not [name for name in headers if name.startswith("access-control")]


def test_a_preflight_of_another_site_is_refused(console: Served) -> None:
    asked = console("/api/jobs/hot/stop", "OPTIONS", token=None, Origin="http://evil.example",
                    Access_Control_Request_Method="POST")  # fmt: skip
    assert asked.status == 403


@pytest.mark.parametrize(
    "path", ["/../jobs.db", "/%2e%2e/token", "/..%2f..%2fetc/passwd", "/assets/../../server.py"]
)
def test_no_request_path_reaches_the_disk(console: Served, path: str) -> None:
    assert console(path).status == 404


def test_an_upgrade_to_another_protocol_is_refused(console: Served) -> None:
    words: dict[str, Any] = {
        "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "x3JJHMbDL1EzLkh9GBhXDw==",
    }  # fmt: skip
    assert console("/api/jobs", **words).status == 200


def test_only_the_owner_can_read_the_token(console: Served) -> None:
    file = console.folder.path / "token"
    assert file.stat().st_mode & 0o777 == 0o600
    assert len(console.token) >= 40
