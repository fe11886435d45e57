"""The rules of a test run: pytest in a separate process, on small bad files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

TESTS = Path(__file__).parent
UNCACHED = "PYTHONDONTWRITEBYTECODE"  # left out of the runs: it would cost each of them a second


class Run:
    """A run of pytest under this repository's configuration and conftest."""

    def __init__(self, folder: Path, source: str, *options: str, skips: str = "") -> None:
        tests = folder / "tests"
        (tests / "small").mkdir(parents=True)
        shutil.copy(TESTS / "conftest.py", tests)
        (tests / "skips.toml").write_text(skips)
        (tests / "small" / "test_it.py").write_text(dedent(source))
        configuration = TESTS.parent / "pyproject.toml"
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-c", str(configuration), "--rootdir", str(folder),
             "--color=no", *options, str(tests)],
            capture_output=True, text=True, cwd=folder, check=False,
            env={name: value for name, value in os.environ.items() if name != UNCACHED},
        )  # fmt: skip
        self.code = done.returncode
        self.output = done.stdout + done.stderr


def listed(test: str, reason: str = "this machine has no such disk") -> str:
    return f'[[skip]]\ntest = "tests/small/test_it.py::{test}"\nreason = "{reason}"\n'


SKIPPED = """
    import pytest

    @pytest.mark.skip(reason="too slow today")
    def test_it(): ...
"""
EXPECTED = """
    import pytest

    @pytest.mark.xfail(reason="known to be wrong")
    def test_it(): assert False
"""


def test_a_passing_test_passes(tmp_path: Path) -> None:
    run = Run(tmp_path, "def test_it(): ...")

    assert run.code == 0, run.output


@pytest.mark.parametrize(
    ("source", "reason"),
    [(SKIPPED, "too slow today"), (EXPECTED, "known to be wrong")],
    ids=["skipped", "expected to fail"],
)
def test_a_skipped_or_expected_failure_fails_the_run_and_says_why(
    tmp_path: Path, source: str, reason: str
) -> None:
    run = Run(tmp_path, source)

    assert run.code == 1
    assert reason in run.output
    assert "tests/small/test_it.py::test_it is not listed in tests/skips.toml" in run.output


@pytest.mark.parametrize(
    ("source", "outcome"),
    [(SKIPPED, "1 skipped"), (EXPECTED, "1 xfailed")],
    ids=["skipped", "expected to fail"],
)
def test_a_listed_skip_or_expected_failure_does_not_fail_the_run(
    tmp_path: Path, source: str, outcome: str
) -> None:
    run = Run(tmp_path, source, skips=listed("test_it"))

    assert run.code == 0, run.output
    assert outcome in run.output


def test_an_entry_covers_every_parameter_of_its_test_and_no_other_test(tmp_path: Path) -> None:
    source = """
        import pytest

        @pytest.mark.parametrize("n", [1, 2])
        def test_it(n): pytest.skip("no disk")

        def test_it_too(): pytest.skip("no disk either")
    """

    run = Run(tmp_path, source, skips=listed("test_it"))

    assert run.code == 1
    assert "1 failed, 2 skipped" in run.output


def test_a_module_that_skips_itself_fails_the_run(tmp_path: Path) -> None:
    run = Run(tmp_path, "import pytest; pytest.importorskip('a_module_nobody_has')")

    assert run.code == 2
    assert "tests/small/test_it.py is not listed in tests/skips.toml" in run.output


def test_an_empty_list_of_parameters_is_a_skip_and_fails_the_run(tmp_path: Path) -> None:
    source = """
        import pytest

        @pytest.mark.parametrize("n", [])
        def test_it(n): ...
    """

    assert Run(tmp_path, source).code == 1


def test_a_skip_listed_without_a_reason_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path, SKIPPED, skips=listed("test_it", reason=" "))

    assert run.code == 4
    assert "skips.toml: an entry needs a test and a reason" in run.output


def test_an_expected_failure_that_passes_fails_the_run(tmp_path: Path) -> None:
    run = Run(tmp_path, EXPECTED.replace("False", "True"), skips=listed("test_it"))

    assert run.code == 1


@pytest.mark.parametrize(
    "body",
    [
        "import warnings; warnings.warn('careful', UserWarning)",
        "import threading; t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()",
        "open(__file__)",
    ],
    ids=["a warning", "an error in a thread", "a file left open"],
)
def test_a_warning_fails_the_run(tmp_path: Path, body: str) -> None:
    run = Run(
        tmp_path, f"def test_it():\n    {body}\n\ndef test_after():\n    import gc; gc.collect()"
    )

    assert run.code == 1, run.output
    assert "failed" in run.output


def test_an_unknown_mark_fails_the_run(tmp_path: Path) -> None:
    run = Run(tmp_path, "import pytest\n@pytest.mark.kafak\ndef test_it(): ...")

    assert run.code == 2


SOAKING = "import pytest\n@pytest.mark.soak\ndef test_long(): ...\ndef test_short(): ..."


def test_soak_tests_are_deselected_and_not_skipped(tmp_path: Path) -> None:
    run = Run(tmp_path, SOAKING)

    assert run.code == 0, run.output
    assert "1 passed, 1 deselected" in run.output


def test_soak_tests_run_on_request(tmp_path: Path) -> None:
    run = Run(tmp_path, SOAKING, "-m", "soak", "-v")

    assert run.code == 0, run.output
    assert re.search(r"test_long\s+PASSED", run.output)


def test_the_ten_slowest_tests_and_the_time_per_folder_are_printed(tmp_path: Path) -> None:
    source = """
        import time
        import pytest

        @pytest.mark.parametrize("n", range(12))
        def test_it(n): time.sleep(n / 50)
    """

    run = Run(tmp_path, source)

    lines = re.findall(r"^ +[\d.]+ s  (\S+)", run.output, re.MULTILINE)
    assert lines[:10] == [f"tests/small/test_it.py::test_it[{n}]" for n in range(11, 1, -1)]
    assert lines[10:] == ["tests/small/"]
    assert "tests/small/ (12 tests)" in run.output


def test_each_test_has_a_topic_name_of_its_own_that_kafka_accepts(tmp_path: Path) -> None:
    source = """
        import re
        import pytest
        seen = set()

        @pytest.mark.parametrize("word", ["a b/ö", "a b/ö ", "x" * 400])
        def test_it(topic, word):
            assert re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", topic)
            assert topic not in seen
            seen.add(topic)
    """

    run = Run(tmp_path, source)

    assert run.code == 0, run.output


def test_tests_do_not_see_the_users_home_or_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_KAFKA", "the-users-cluster:9092")
    monkeypatch.setenv("MILLSTREAM_KAFKA_SASL_PASSWORD", "secret")
    monkeypatch.setenv("MILLSTREAM_HOME", "the-users-home")
    source = """
        import os

        def test_it():
            assert [name for name in os.environ if name.startswith("MILLSTREAM_KAFKA")] == []
            assert os.environ["MILLSTREAM_HOME"] != "the-users-home"
    """

    run = Run(tmp_path, source)

    assert run.code == 0, run.output
