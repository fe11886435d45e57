from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import InvalidInput, InvalidSpec, Unavailable
from millstream.kafka.settings import ALLOWED, Cluster, Settings, outside_settings

if TYPE_CHECKING:
    from pathlib import Path

CANARY = "canary-4f9b1d"


def test_an_explicit_address_has_precedence_over_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MILLSTREAM_KAFKA", "there:9092")

    assert Cluster.resolve("here:1").address == "here:1"
    assert Cluster.resolve().address == "there:9092"


def test_without_a_broker_the_error_says_how_to_start_one() -> None:
    with pytest.raises(Unavailable, match=r"millstream up.*--kafka.*MILLSTREAM_KAFKA"):
        Cluster.resolve()


@pytest.mark.parametrize(
    "address", ["", "host", "host:", "host:0", "host:65536", "host:9092,", "a b:1", ":9092", 7]
)
def test_an_address_needs_host_and_port(address: str) -> None:
    with pytest.raises(InvalidInput, match=r"host:port") as refused:
        Cluster(address)
    assert repr(address) in str(refused.value)


@pytest.mark.parametrize("address", ["localhost:9092", "a:1,b-2.c:65535", "[::1]:9092"])
def test_valid_addresses_are_accepted(address: str) -> None:
    assert Cluster(address).address == address


def test_a_password_in_the_address_is_masked_in_the_error() -> None:
    with pytest.raises(InvalidInput) as refused:
        Cluster(f"ada:{CANARY}@host:9092")
    assert CANARY not in str(refused.value)
    assert "***@host:9092" in str(refused.value)


def test_variables_have_precedence_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text("# ours\nsecurity.protocol = SASL_SSL\n\nsasl.username=from file\n")

    found = outside_settings(
        {
            "MILLSTREAM_KAFKA_SETTINGS": str(file),
            "MILLSTREAM_KAFKA_SASL_USERNAME": "from variable",
            "MILLSTREAM_KAFKA": "host:1",
            "OTHER": "x",
        }
    )

    assert dict(found) == {"security.protocol": "SASL_SSL", "sasl.username": "from variable"}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("sasl.jaas.config", "sasl.username"),
        ("ssl.truststore.location", "ssl.ca.location"),
        ("enable.ssl.certificate.verification", "ssl.ca.location"),
        ("sasl.login.callback.handler.class", "allowed ones are"),
        ("interceptor.classes", "allowed ones are"),
        ("plugin.library.paths", "allowed ones are"),
        ("sasl.kerberos.kinit.cmd", "sasl.kerberos"),
        ("ssl.engine.location", "ssl"),
        ("ssl.providers", "ssl"),
        ("bootstrap.servers", "allowed ones are"),
        ("sasl.pasword", "did you mean sasl.password"),
    ],
)
def test_a_setting_outside_the_list_is_refused_by_name(name: str, hint: str) -> None:
    with pytest.raises(InvalidSpec, match=re.escape(name)) as refused:
        Settings({name: CANARY})
    assert hint in str(refused.value)
    assert CANARY not in str(refused.value)


def test_a_misspelled_variable_is_refused_with_a_suggestion() -> None:
    with pytest.raises(InvalidSpec, match=r"SASL_PASWORD.*mean MILLSTREAM_KAFKA_SASL_PASSWORD"):
        outside_settings({"MILLSTREAM_KAFKA_SASL_PASWORD": CANARY})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"sasl.password {CANARY}", "line 1"),
        (f"security.protocol=SSL\n={CANARY}", "line 2"),
        (f"sasl.username={CANARY}\nsasl.username=b", "sasl.username a second time"),
    ],
)
def test_a_bad_line_of_the_file_is_named_by_number(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text(text)

    with pytest.raises(InvalidSpec, match=problem) as refused:
        outside_settings({"MILLSTREAM_KAFKA_SETTINGS": str(file)})
    assert CANARY not in str(refused.value)


def test_a_missing_file_of_settings_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=r"nowhere\.properties: No such file"):
        outside_settings({"MILLSTREAM_KAFKA_SETTINGS": str(tmp_path / "nowhere.properties")})


def test_references_are_resolved_when_the_client_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "password"
    secret.write_text(f"{CANARY}\n")
    monkeypatch.setenv("USER_OF_KAFKA", "ada")
    cluster = Cluster(
        "host:1",
        {"sasl.password": f"${{file:{secret}}}", "sasl.username": "team-${env:USER_OF_KAFKA}"},
    )

    assert cluster.settings["sasl.password"] == f"${{file:{secret}}}"
    assert cluster.client()["sasl.password"] == CANARY
    assert cluster.client()["sasl.username"] == "team-ada"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("${env:NOT_SET_ANYWHERE}", "variable NOT_SET_ANYWHERE"),
        ("${file:nowhere/at/all}", "file nowhere/at/all to be readable; got No such file"),
        ("${vault:x}", r"\$\{env:NAME\} or \$\{file:PATH\}"),
        ("${env:}", r"\$\{env:NAME\}"),
        ("${}", r"\$\{env:NAME\}"),
    ],
)
def test_a_reference_to_nothing_names_the_setting_and_the_reference(
    value: str, problem: str
) -> None:
    cluster = Cluster("host:1", {"sasl.password": value})

    with pytest.raises(InvalidSpec, match=problem) as refused:
        cluster.client()
    assert "sasl.password" in str(refused.value)


def test_nothing_that_prints_a_cluster_prints_its_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("THE_KEY", CANARY)
    cluster = Cluster(
        "host:1",
        {
            "sasl.username": "ada",
            "sasl.password": CANARY,
            "ssl.key.pem": CANARY,
            "ssl.key.password": "${env:THE_KEY}",
            "ssl.ca.pem": "${env:THE_KEY}",
        },
    )
    config = cluster.client()

    shown = f"{cluster} {cluster!r} {cluster.settings} {config} {config!r} {[config]}"

    assert CANARY not in shown
    assert "'sasl.password': '***'" in shown
    assert "'sasl.username': 'ada'" in shown
    assert "'ssl.key.password': '${env:THE_KEY}'" in repr(cluster)


def test_the_error_of_a_client_that_cannot_be_opened_has_no_secret(tmp_path: Path) -> None:
    cluster = Cluster(
        "host:1",
        {
            "security.protocol": "SSL",
            "ssl.key.location": str(tmp_path / CANARY),
            "ssl.key.password": CANARY,
        },
    )

    with pytest.raises(InvalidSpec, match=r"ssl\.key\.location failed") as refused:
        cluster.ping()
    assert CANARY not in str(refused.value)


def test_a_wrong_value_is_named_with_its_setting() -> None:
    with pytest.raises(InvalidInput, match=r"security\.protocol.*'SSLL'"):
        Cluster("host:1", {"security.protocol": "SSLL"}).ping()


@given(
    st.dictionaries(
        st.sampled_from(sorted(ALLOWED)),
        st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1).filter(
            lambda text: "${" not in text
        ),
    )
)
def test_a_file_and_variables_give_the_same_settings(
    tmp_path_factory: pytest.TempPathFactory, written: dict[str, str]
) -> None:
    file = tmp_path_factory.mktemp("settings") / "kafka.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in written.items()))
    variables = {
        "MILLSTREAM_KAFKA_" + name.upper().replace(".", "_"): value
        for name, value in written.items()
    }

    assert dict(outside_settings({"MILLSTREAM_KAFKA_SETTINGS": str(file)})) == written
    assert dict(outside_settings(variables)) == written


@given(st.text(min_size=1).filter(lambda name: name not in ALLOWED))
def test_no_other_name_is_ever_taken(name: str) -> None:
    with pytest.raises(InvalidSpec):
        Settings({name: "x"})
