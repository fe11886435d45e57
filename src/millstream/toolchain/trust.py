"""A trust store for a Java with its own certificates: what Python trusts, in Java's format.

SSL_CERT_FILE or SSL_CERT_DIR set -> the certificates they name
the system keeps a Java store     -> that store
otherwise                         -> the certificates Python finds by default
"""

from __future__ import annotations

import hashlib
import os
import ssl
import struct
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.toolchain.folders import cache_folder, written_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SYSTEM_STORES = (
    Path("/etc/ssl/certs/java/cacerts"),
    Path("/etc/pki/java/cacerts"),
    Path("/etc/ssl/ca-bundle.jks"),
)
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_PASSWORD = "changeit"  # noqa: S105 - the stores hold public certificates; Java wants a word


def trust_options() -> list[str]:
    """The options that make a Java trust what this machine trusts; empty if that is unknown."""
    named = os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR")
    system = next((store for store in SYSTEM_STORES if store.is_file()), None)
    if system is not None and not named:
        return [f"-Djavax.net.ssl.trustStore={system}"]
    certificates = trusted_certificates()
    if not certificates:
        return []
    return [
        f"-Djavax.net.ssl.trustStore={_kept(java_store(certificates))}",
        "-Djavax.net.ssl.trustStoreType=JKS",
        f"-Djavax.net.ssl.trustStorePassword={_PASSWORD}",
    ]


def trusted_certificates() -> tuple[bytes, ...]:
    """The authorities that Python's `ssl` trusts on this machine, as DER, distinct and in order."""
    paths = ssl.get_default_verify_paths()
    files = [Path(paths.cafile)] if paths.cafile else []
    if paths.capath:
        files += sorted(file for file in Path(paths.capath).iterdir() if file.is_file())
    return tuple(sorted({der for file in files for der in _certificates_in(file)}))


def java_store(certificates: Iterable[bytes]) -> bytes:
    """A Java key store (the JKS format, version 2) that trusts these DER certificates.

    Written here because `keytool` adds one certificate per call: about a minute for the usual
    150 certificates.
    """
    entries = [
        struct.pack(">I", 2)  # a trusted certificate
        + _text(f"authority-{number}")
        + struct.pack(">q", 0)
        + _text("X.509")
        + struct.pack(">I", len(der))
        + der
        for number, der in enumerate(certificates)
    ]
    body = struct.pack(">III", 0xFEEDFEED, 2, len(entries)) + b"".join(entries)
    seal = hashlib.sha1(usedforsecurity=False)
    seal.update(_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body)
    return body + seal.digest()


def _kept(store: bytes) -> Path:
    folder = cache_folder() / "trust"
    path = folder / f"{hashlib.sha256(store).hexdigest()[:16]}.jks"
    with written_in(folder):
        if not (path.exists() and path.stat().st_size == len(store)):
            folder.mkdir(exist_ok=True)
            fresh = path.with_name(f"{path.name}.{os.getpid()}")
            fresh.write_bytes(store)
            fresh.replace(path)
    return path


def _certificates_in(file: Path) -> Iterator[bytes]:
    try:
        text = file.read_text(encoding="latin-1")
    except OSError:
        return
    judge = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for block in text.split(_BEGIN)[1:]:
        body, end, _ = block.partition(_END)
        if not end:
            continue
        with suppress(ValueError, ssl.SSLError):  # Java rejects a store with an invalid entry
            der = ssl.PEM_cert_to_DER_cert(f"{_BEGIN}{body}{_END}\n")
            judge.load_verify_locations(cadata=der)
            yield der


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()
