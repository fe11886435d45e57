"""Runs the verifier, and counts the kills."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.faults.driver import Config


def verdict_on(config: Config, *, finished: bool = True) -> dict[str, Any]:
    """The verdict of the verifier, a process that does not import Millstream, on a job."""
    question = {"kafka": config.kafka, "topic": config.topic, "name": config.name,
                "finished": finished}  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("verifier.py")), json.dumps(question)],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    verdict: dict[str, Any] = json.loads(done.stdout)
    return verdict


def differences(
    verdict: dict[str, Any], *kinds: str, outputs: tuple[str, ...] = ("windows", "once", "dead")
) -> list[str]:
    """The differences of these kinds in a verdict: lost, doubled, phantom, wrong."""
    return [found for output in outputs for kind in kinds for found in verdict[output][kind]]


@dataclass
class Report:
    """The kills of a job, and the verdict on it."""

    seed: int
    kills: Counter[str] = field(default_factory=Counter)

    def text(self, verdict: dict[str, Any]) -> str:
        """One line of JSON."""
        return json.dumps({"seed": self.seed, "kills": self.kills.total(),
                           "kills per step": dict(self.kills), "verdict": verdict})  # fmt: skip
