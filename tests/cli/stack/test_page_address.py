"""A page that other machines can reach needs a token and its public addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.cli.command import Command

from millstream.cli.stack.page_address import PageOptions
from millstream.errors import InvalidInput, InvalidSpec
from millstream.jobs import stack
from millstream.jobs.folders import stack_folder
from millstream.jobs.stack import PageAddress

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "T" * 40
GIVEN = "${env:PAGE_TOKEN}"


@pytest.mark.parametrize("host", [None, "127.0.0.1", "127.0.0.9", "::1"])
def test_the_loopback_needs_no_further_option(host: str | None) -> None:
    assert PageOptions(host).address(8080) == PageAddress(8080, host or "127.0.0.1", ())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.5", "192.168.1.7"])
def test_another_address_needs_a_token_and_a_public_url(host: str) -> None:
    with pytest.raises(InvalidInput, match=r"needs its own token; got --page-host .* without"):
        PageOptions(host, ("https://jobs.example",)).address(8080)
    with pytest.raises(InvalidInput, match="needs its public address"):
        PageOptions(host, (), GIVEN).address(8080)
    page = PageOptions(host, ("https://Jobs.Example/", "http://10.0.0.5:8080"), GIVEN).address(8080)
    assert page == PageAddress(8080, host, ("https://jobs.example", "http://10.0.0.5:8080"))
    assert page.url == "https://jobs.example"


@pytest.mark.parametrize(
    ("host", "near"),
    [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("0::0", "::1"), ("10.0.0.5", "10.0.0.5")],
)
def test_a_page_on_all_addresses_is_reached_by_its_loopback(host: str, near: str) -> None:
    assert stack._reachable_host(host) == near


@pytest.mark.parametrize(
    "url", ["jobs.example", "ftp://jobs.example", "https://", "https://ann:pw@jobs.example",
            "https://jobs.example/page", "https://jobs.example?x=1", "http://h:0", "http://h:99999",
            "http://[::1", "javascript:alert(1)"],
)  # fmt: skip
def test_a_url_with_a_path_or_query_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="--page-url needs an address such as"):
        PageOptions(None, (url,)).address(8080)


@pytest.mark.parametrize("host", ["jobs.example", "0.0.0.0:80", "", "*", "1.2.3"])
def test_a_host_that_is_no_ip_address_is_refused(host: str) -> None:
    if host:
        with pytest.raises(InvalidInput, match="--page-host needs an IP address"):
            PageOptions(host).address(8080)
    else:
        assert PageOptions(host).address(8080).host == "127.0.0.1"


def test_a_token_is_given_by_reference_and_is_long_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGE_TOKEN", TOKEN)
    (tmp_path / "token").write_text(TOKEN + "\n")
    assert PageOptions(token=GIVEN).own_token() == TOKEN
    assert PageOptions(token=f"${{file:{tmp_path / 'token'}}}").own_token() == TOKEN
    assert PageOptions().own_token() is None
    with pytest.raises(InvalidInput, match="needs a reference; got something else") as refused:
        PageOptions(token=TOKEN).own_token()
    assert TOKEN not in str(refused.value)
    monkeypatch.setenv("PAGE_TOKEN", "short")
    with pytest.raises(InvalidInput, match=r"at least 32 .* got 5 characters"):
        PageOptions(token=GIVEN).own_token()
    with pytest.raises(InvalidSpec, match="NOWHERE"):
        PageOptions(token="${env:NOWHERE}").own_token()


def test_only_the_owner_can_read_the_kept_token(tmp_path: Path) -> None:
    folder = stack_folder(tmp_path)
    folder.set_token(TOKEN)
    assert folder.token() == TOKEN
    assert (folder.path / "token").stat().st_mode & 0o777 == 0o600
    assert [file.name for file in folder.path.iterdir() if "token" in file.name] == ["token"]


def test_up_refuses_a_public_page_without_a_token_before_anything_starts(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    said = Command("127.0.0.1:1", {"MILLSTREAM_HOME": str(home)})("up", "--page-host", "0.0.0.0")
    assert said.code == 2
    assert "needs its own token; got --page-host 0.0.0.0 without --page-token" in said.err
    assert not (home / "stack").exists()
