"""The supervisor's decisions, tested without processes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millstream.errors import AlreadyFinished
from millstream.jobs import policy
from millstream.jobs.policy import Ending, Seen, decide, settle
from millstream.jobs.registry import JobRow
from millstream.outages import Outage

NOW = 1_000_000.0
JOB = JobRow(
    name="hot", application="shop", owner="ann", file="hot.py", pipeline="hot", kafka=None,
    checkpoint="jobs/hot", lane=None, submitted=NOW, ran=1, run="r1", launched=NOW - 100,
)  # fmt: skip
DEAD = Seen(alive=False)
WELL = Seen(alive=True, running=True)


def crashed(kind: str = "RuntimeError") -> Ending:
    return Ending(code=1, kind=kind, sentence="it broke")


def test_a_new_job_is_started() -> None:
    assert decide(replace(JOB, run=None, ran=0), DEAD, NOW).action == "start"


def test_a_running_job_is_left_alone() -> None:
    verdict = decide(JOB, WELL, NOW)
    assert (verdict.action, verdict.state) == ("nothing", "running")


def test_the_end_of_a_run_is_handled_first() -> None:
    for wanted in ("running", "stopped", "removed"):
        assert decide(replace(JOB, wanted=wanted), DEAD, NOW).action == "settle"


def test_a_job_to_stop_is_signalled_once_and_killed_after_the_grace_period() -> None:
    job = replace(JOB, wanted="stopped")
    assert decide(job, WELL, NOW).action == "stop"
    asked = replace(job, stopping=NOW)
    assert decide(asked, WELL, NOW + 1).action == "nothing"
    assert decide(asked, WELL, NOW + policy.STOP_TIMEOUT + 1).action == "kill"


def test_a_requested_new_run_first_ends_the_current_one() -> None:
    job = replace(JOB, asked=2)
    assert decide(job, WELL, NOW).action == "stop"
    settled = settle(job, crashed("stopped"), NOW)
    assert (settled.failures, settled.state) == (0, "starting")
    assert decide(replace(job, run=None), DEAD, NOW).action == "start"


def test_a_frozen_process_is_killed_in_seconds_and_says_why() -> None:
    seen = Seen(alive=True, running=True, frozen=True, heartbeat_age=policy.FROZEN_TIMEOUT + 0.1)
    verdict = decide(JOB, seen, NOW)
    assert (verdict.action, verdict.state) == ("kill", "failing")
    killed = replace(JOB, state=verdict.state, reason=verdict.reason)
    assert settle(killed, None, NOW).reason == "its process was killed: it was suspended"
    assert (
        settle(replace(JOB, reason="an earlier one"), None, NOW).reason == "its process was killed"
    )
    assert decide(JOB, replace(seen, heartbeat_age=0.5), NOW).action == "nothing"


def test_a_slow_process_gets_more_time_than_a_suspended_one() -> None:
    seen = Seen(alive=True, running=True, heartbeat_age=policy.FROZEN_TIMEOUT + 5)
    assert decide(JOB, seen, NOW).action == "nothing"
    assert (
        decide(JOB, replace(seen, heartbeat_age=policy.HEARTBEAT_TIMEOUT + 1), NOW).action == "kill"
    )


def test_a_running_job_without_progress_is_reported_as_degraded_and_not_killed() -> None:
    verdict = decide(JOB, Seen(alive=True, running=True, loop_age=policy.PROGRESS_TIMEOUT + 1), NOW)
    assert (verdict.action, verdict.state) == ("nothing", "degraded")
    assert verdict.reason == "no progress for more than 300 s"


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        (Seen(alive=True), "starting"),
        (Seen(alive=True, running=True, idle_for=policy.IDLE_AFTER + 1), "idle"),
        (Seen(alive=True, running=True), "running"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_state_of_a_running_job_follows_its_activity(seen: Seen, state: str) -> None:
    assert decide(JOB, seen, NOW).state == state


def test_a_job_that_catches_up_is_running_and_says_so() -> None:
    verdict = decide(JOB, replace(WELL, catch_up_time=policy.CATCHING_UP_AFTER + 1), NOW)
    assert (verdict.state, verdict.reason) == ("running", policy.CATCHING_UP)


KAFKA = Outage(system="Kafka at k:9092", why="Connection refused", since=NOW - 3)
MAILS = Outage(system="notifications", why="no server", since=NOW - 9, kind="degraded")


@pytest.mark.parametrize("seen", [WELL, Seen(alive=True), replace(WELL, idle_for=60, loop_age=900)])
def test_an_outage_makes_a_job_wait_whatever_else_it_does(seen: Seen) -> None:
    verdict = decide(JOB, replace(seen, outages=(MAILS, KAFKA)), NOW)
    assert verdict.state == "waiting"
    assert verdict.reason == "waiting for Kafka at k:9092: Connection refused"


def test_what_does_not_keep_a_job_from_working_degrades_it() -> None:
    assert decide(JOB, replace(WELL, outages=(MAILS,)), NOW).state == "degraded"
    verdict = decide(JOB, replace(WELL, warnings=("bids/0: 7 unread records",)), NOW)
    assert (verdict.state, verdict.reason) == ("degraded", "bids/0: 7 unread records")


def test_a_run_that_gave_up_waiting_is_started_again_for_ever() -> None:
    job = replace(JOB, launched=NOW - 1)
    for _ in range(3 * policy.MOST_FAILURES):
        settled = settle(job, crashed("Unavailable"), NOW)
        assert (settled.state, settled.wanted, settled.reason) == ("waiting", "running", "it broke")
        assert settled.retry_at - NOW <= policy.RETRY_SECONDS
        job = replace(job, failures=settled.failures, restarts=settled.restarts,
                      state=settled.state)  # fmt: skip
    between = decide(replace(job, run=None, retry_at=NOW + 1), DEAD, NOW)
    assert (between.action, between.state) == ("nothing", "waiting")
    assert decide(job, Seen(alive=True), NOW).state == "waiting"
    assert decide(job, WELL, NOW).state == "running"


def test_failing_runs_are_restarted_with_backoff_until_the_job_has_failed() -> None:
    job, waits = replace(JOB, launched=NOW - 1), []
    while True:
        settled = settle(job, None, NOW)
        if settled.state == "failed":
            break
        assert settled.state == "failing"
        waits.append(settled.retry_at - NOW)
        job = replace(job, failures=settled.failures, restarts=settled.restarts)
    assert waits == [0, 1, 2, 4, 8, 15, 30, 60, 60, 60]
    assert (len(waits), settled.wanted) == (policy.MOST_FAILURES, "stopped")
    assert job.restarts == policy.MOST_FAILURES


def test_a_long_enough_run_resets_earlier_failures() -> None:
    job = replace(JOB, failures=9, launched=NOW - policy.STABLE_AFTER - 1)
    assert settle(job, None, NOW).failures == 1


@pytest.mark.parametrize("kind", sorted(policy.FINAL_ERRORS))
def test_a_permanent_failure_is_not_retried(kind: str) -> None:
    settled = settle(JOB, crashed(kind), NOW)
    assert (settled.state, settled.reason) == ("failed", "it broke")


def test_a_finished_job_stops_with_a_reason() -> None:
    settled = settle(JOB, Ending(code=0, kind=policy.FINISHED, sentence="all done"), NOW)
    assert (settled.state, settled.wanted, settled.reason) == ("finished", "stopped", "all done")
    finished = replace(JOB, run=None, state="finished", wanted="stopped")
    assert decide(finished, DEAD, NOW).state == "finished"


def test_a_failed_job_stays_failed_until_a_new_run_is_requested() -> None:
    failed = replace(JOB, run=None, state="failed", wanted="stopped")
    assert decide(failed, DEAD, NOW).state == "failed"
    assert decide(replace(failed, wanted="running", asked=2), DEAD, NOW).action == "start"


def test_a_removed_job_is_stopped_and_then_removed_from_the_registry() -> None:
    job = replace(JOB, wanted="removed")
    assert decide(job, WELL, NOW).action == "stop"
    assert decide(replace(job, run=None), DEAD, NOW).action == "forget"


def test_a_finished_job_with_new_input_waits_for_a_decision() -> None:
    settled = settle(JOB, crashed(AlreadyFinished.__name__), NOW)
    assert (settled.wanted, settled.state) == ("stopped", "failed")
