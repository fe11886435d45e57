"""Nobody reads or changes anything without the token, or from another site, on any route."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.console.app import Console
from millstream.console.guard import OPEN
from millstream.jobs.places import stack_place

if TYPE_CHECKING:
    from pathlib import Path

    from tests.console.serving import Served


def routes(home: Path) -> list[tuple[str, str]]:
    """Every documented route with a job in place of the name."""
    return [
        (endpoint.method, endpoint.documented_path.replace("{job}", "hot").replace("{step}", "s"))
        for endpoint in Console(stack_place(home)).endpoints()
    ]


def test_only_the_three_open_routes_answer_without_a_token(console: Served, tmp_path: Path) -> None:
    console.add_job()
    opened = set()
    for method, path in routes(tmp_path / "home"):
        for token in (None, "wrong", console.token + "x"):
            asked = console(path, method, token=token)
            if asked.status != 401:
                opened.add(path)
            else:
                assert "millstream up" in asked.json["error"]
                assert "bearer" in asked.headers["www-authenticate"].lower()
    assert opened == OPEN == {"/healthz", "/readyz", "/metrics"}


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
def test_a_request_for_or_from_another_place_is_refused_on_every_route(
    console: Served, tmp_path: Path, header: dict[str, str]
) -> None:
    console.add_job()
    sent = {name: value.format(port=console.port) for name, value in header.items()}
    for method, path in [*routes(tmp_path / "home"), ("GET", "/"), ("GET", "/nothing")]:
        assert console(path, method, **sent).status in (403, 421), path


def test_the_page_itself_may_ask_under_either_name_of_this_machine(console: Served) -> None:
    for host in (f"127.0.0.1:{console.port}", f"localhost:{console.port}"):
        asked = console("/api/jobs", Host=host, Origin=f"http://{host}")
        assert asked.status == 200


def test_no_answer_lets_a_browser_share_frame_or_run_anything_else(console: Served) -> None:
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
def test_no_path_of_a_request_reaches_the_disk(console: Served, path: str) -> None:
    assert console(path).status == 404


def test_a_large_request_is_refused(console: Served) -> None:
    assert console("/api/jobs/hot/stop", "POST", Content_Length="1000000").status == 413


def test_the_token_is_readable_by_its_owner_alone(console: Served) -> None:
    file = console.place.path / "token"
    assert file.stat().st_mode & 0o777 == 0o600
    assert len(console.token) >= 40
