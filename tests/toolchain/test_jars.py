"""Jars: complete and as pinned, after any failure of cache, disk, registry or network."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from millstream.errors import SetupFailed
from millstream.toolchain.jars import CONFS, LOCK, digest, every_jar, jars, pins, sha256

if TYPE_CHECKING:
    from pathlib import Path

    from tests.toolchain.conftest import Registry

CLOSED = "http://127.0.0.1:9"
PREPARE = [sys.executable, "-m", "millstream.toolchain.prepare"]


def failure(environment: dict[str, str] | None = None, *, blocks: int | None = None) -> str:
    """The last line of a failing `prepare`, in an environment, with files of at most `blocks`."""
    limited = ["sh", "-c", f'ulimit -f {blocks}; exec "$@"', "sh"] if blocks else []
    done = subprocess.run(
        [*limited, *PREPARE],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    assert done.returncode == SetupFailed.exit_code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


def test_the_lock_matches_jars_xml() -> None:
    assert LOCK.read_text().splitlines()[0] == f"# jars.xml {digest()}"


def test_sparks_class_path_has_exactly_its_four_jars() -> None:
    assert [pin.name for pin in pins("spark")] == [
        "commons-pool2-2.13.1.jar",
        "kafka-clients-3.9.2.jar",
        "spark-sql-kafka-0-10_2.13-4.2.0.jar",
        "spark-token-provider-kafka-0-10_2.13-4.0.0.jar",
    ]


def test_the_broker_has_its_server_and_a_logging_backend() -> None:
    names = {pin.name for pin in pins("broker")}

    assert {"kafka_2.13-4.3.1.jar", "log4j-slf4j-impl-2.25.4.jar", "slf4j-api-1.7.36.jar"} <= names


def test_an_empty_cache_is_filled_once_and_then_needs_no_registry(
    empty_cache: Path, registry: Registry
) -> None:
    said: list[str] = []
    first = every_jar(say=said.append)
    registry.folder.rename(registry.folder.with_name("unplugged"))
    again = every_jar(say=said.append)

    assert again == first
    assert {conf: len(paths) for conf, paths in first.items()} == {"spark": 4, "broker": 46}
    for conf in CONFS:
        assert [(path.name, sha256(path)) for path in first[conf]] == [
            (pin.name, pin.sha256) for pin in pins(conf)
        ]
    assert said[0] == "fetching jars: spark and broker, 55 MB, once"
    assert said[-1].startswith("fetching jars: done in ")
    assert list(empty_cache.rglob("fetching-*")) == []


def test_only_the_requested_class_path_is_fetched(empty_cache: Path) -> None:
    jars("spark")

    assert [folder.name for folder in (empty_cache / "jars" / digest()).iterdir()
            if folder.is_dir()] == ["spark"]  # fmt: skip


def test_truncated_changed_and_missing_jars_are_fetched_again(empty_cache: Path) -> None:
    half, changed, missing, _ = before = jars("spark")
    half.write_bytes(half.read_bytes()[:1000])
    content = bytearray(changed.read_bytes())
    content[500] ^= 1
    changed.write_bytes(content)
    missing.unlink()

    assert jars("spark") == before
    assert [sha256(path) for path in before] == [pin.sha256 for pin in pins("spark")]


def test_a_truncated_jar_without_a_network_is_reported_in_one_sentence(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half, *_ = jars("spark")
    half.write_bytes(half.read_bytes()[:1000])
    monkeypatch.delenv("MILLSTREAM_IVY_SETTINGS")
    monkeypatch.setenv("HTTPS_PROXY", CLOSED)

    with pytest.raises(SetupFailed, match="need to be fetched once from a package registry"):
        jars("spark")


def test_a_touched_jar_is_hashed_again_and_kept(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touched, *_ = jars("spark")
    os.utime(touched)
    monkeypatch.setenv("MILLSTREAM_IVY_SETTINGS", "no-such-file")

    assert jars("spark")[0] == touched


def test_an_unchanged_jar_is_not_hashed_at_each_use(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = jars("spark")
    monkeypatch.setattr("millstream.toolchain.jars.sha256", pytest.fail)

    assert jars("spark") == before


def test_jars_that_do_not_match_their_pins_are_refused_and_not_stored(
    empty_cache: Path, registry: Registry
) -> None:
    jar = registry.jar("commons-pool2-2.13.1.jar")
    content = bytearray(jar.read_bytes())
    content[-1] ^= 1
    jar.unlink()
    jar.write_bytes(content)

    with pytest.raises(SetupFailed) as failed:
        jars("spark")

    assert str(failed.value) == (
        "the jars of spark need to match jars.lock; got other bytes in "
        "commons-pool2-2.13.1.jar from the registry; run it again; if it fails again, check your "
        "mirror or proxy (nothing was stored)"
    )
    assert list(empty_cache.rglob("*.jar")) == []


def test_a_jar_missing_in_the_registry_is_named(empty_cache: Path, registry: Registry) -> None:
    for file in registry.jar("commons-pool2-2.13.1.jar").parent.iterdir():
        file.unlink()

    with pytest.raises(
        SetupFailed, match=r"got no org\.apache\.commons#commons-pool2;2\.13\.1 there"
    ):
        jars("spark")


def test_without_a_network_the_error_names_the_proxy_but_not_its_password(
    tmp_path: Path,
) -> None:
    said = failure(
        {"MILLSTREAM_CACHE": str(tmp_path), "HTTPS_PROXY": "http://ann:secret@127.0.0.1:9"}
    )

    assert said.startswith(
        "the jars for Spark and the broker need to be fetched once from a package"
    )
    assert "got Connection refused from " in said
    assert "through the proxy 127.0.0.1:9; connect to the network, set HTTPS_PROXY" in said
    assert "secret" not in said
    assert list(tmp_path.rglob("*.jar")) == []


def test_a_full_disk_is_reported_and_leaves_no_partial_jar(empty_cache: Path) -> None:
    said = failure(blocks=4000)

    assert said == (
        f"Millstream needs space on the disk of {empty_cache / 'jars' / digest()}; got File too "
        "large; free some space there or set MILLSTREAM_CACHE to a folder on another disk"
    )
    assert list(empty_cache.rglob("*.jar")) == []


def test_two_concurrent_processes_fetch_once_and_both_succeed(empty_cache: Path) -> None:
    both = [subprocess.Popen(PREPARE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate()[1] for process in both]

    assert [process.returncode for process in both] == [0, 0], said
    assert sum("fetching jars: done" in words for words in said) == 1
    assert all("50 jars in" in words for words in said)


def test_a_killed_fetch_does_not_block_the_next(empty_cache: Path) -> None:
    left = empty_cache / "jars" / digest() / "fetching-dead"
    left.mkdir(parents=True)
    (left / "half.jar").write_bytes(b"half")

    jars("spark")

    assert not left.exists()


def test_a_process_reports_that_it_waits_for_another(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    monkeypatch.setattr("millstream.toolchain.jars.QUIET", 0.2)
    folder = empty_cache / "jars" / digest()
    folder.mkdir(parents=True)
    said: list[str] = []
    with (folder / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        waiting = threading.Thread(target=jars, args=("spark",), kwargs={"say": said.append})
        waiting.start()
        while not said:
            time.sleep(0.05)
    waiting.join()

    assert said[0] == "fetching jars: waiting for another process that fetches them"
