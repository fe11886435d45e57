"""`Alert`: watches rows per key, and notifies once per episode.

    failing.to(ms.Alert("pages fail", when="failures > 5", for_="30 seconds",
                        to=[ms.Email("ops@example.com"), ms.Webhook("https://ops.example/hook")]))

`JobAlert` watches a job itself: `ms.Pipeline(…, alerts=[ms.JobAlert("lag", above=10_000)])`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from millstream.duration import Duration, not_negative_micros, positive_micros, text
from millstream.errors import InvalidSpec
from millstream.sinks.alerts.email import SYSTEM, Email
from millstream.sinks.alerts.rule import Rule
from millstream.sinks.keys import Key, keys_of
from millstream.sinks.webhook.webhook import Webhook

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sinks.spec import Opening, Writer

Notified = Email | Webhook
Fact = Literal["lag", "late", "dead", "waiting", "degraded", "failing", "failed", "down"]
STATES_WATCHED = ("waiting", "degraded", "failing", "failed", "down")
SHARES, NUMBERS = ("late", "dead"), ("lag",)
MOST_RECIPIENTS = 20


@dataclass(frozen=True, init=False)
class Alert:
    """An alert per key: pending when `when` becomes true, firing once it was true for `for_`,
    resolved when it no longer is.

    `when` is a condition in SQL over the columns, and `clears` the condition that ends an episode
    (by default, a row for which `when` is not true). `by` names the keys to watch, by default the
    operator's keys. Times are those of the rows. A key without rows for `absent` is resolved as
    well: by default after twice the length of a window, otherwise never. After an episode the
    key's next one fires `hold` later at the earliest, if the condition is still true, so an alert
    that flaps notifies once. Each of `to` is notified when the alert fires and when it is
    resolved, at least once, under the episode's id.

    State: the state of each key that is pending, firing or recently resolved, in the job's store.
    Emits: one notification per episode and recipient when it fires, and one when it is resolved.
    """

    name: str
    when: str
    for_: int
    clears: str | None
    by: tuple[str, ...] | None
    hold: int
    absent: int | None
    to: tuple[Notified, ...] = field(repr=False)
    kind: ClassVar[Literal["Alert"]] = "Alert"
    accepts_retractions: ClassVar[bool] = True
    at_least_once: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        *,
        when: str,
        for_: Duration = "0 seconds",
        to: Notified | Sequence[Notified] = (),
        by: Key = None,
        clears: str | None = None,
        hold: Duration = "1 minute",
        absent: Duration | None = None,
    ) -> None:
        _check_name("Alert", name)
        for part, sql in (("when", when), ("clears", clears)):
            if sql is None and part == "clears":
                continue
            if not isinstance(sql, str) or not sql.strip():
                raise InvalidSpec(f"Alert({part}=…) needs a condition in SQL", got=repr(sql),
                                  do=f'write {part}="failures > 5"')  # fmt: skip
        for part, value in (
            ("name", name), ("when", when), ("clears", clears),
            ("for_", not_negative_micros(for_, what="Alert(for_=…)")),
            ("hold", not_negative_micros(hold, what="Alert(hold=…)")),
            ("absent", None if absent is None else positive_micros(absent, what="Alert(absent=…)")),
            ("by", () if by in ([], ()) else keys_of(by, "Alert") or None),
            ("to", _recipients("Alert", to)),
        ):  # fmt: skip
            object.__setattr__(self, part, value)

    def __repr__(self) -> str:
        held = f" for {text(self.for_)}" if self.for_ else ""
        recipients = f" → {', '.join(map(repr, self.to))}" if self.to else ""
        return f"Alert({self.name!r}, when {self.when}{held}{recipients})"

    @property
    def conditions(self) -> tuple[str, ...]:
        """Its conditions, to be checked against the columns of the rows."""
        return (self.when,) if self.clears is None else (self.when, self.clears)

    @property
    def system(self) -> str:
        """All alerts and mails of a job share one store, for all recipients."""
        return SYSTEM

    def rule(self, *, level: bool) -> Rule:
        """Return the rule for its keys."""
        return Rule(self.for_, self.hold, level)

    def describe(self) -> dict[str, Any]:
        """Return it as shown by commands and the page, without secrets."""
        return {"when": self.when, "clears": self.clears, "for": text(self.for_),
                "to": [repr(one) for one in self.to]}  # fmt: skip

    def into(self, suffix: str) -> Alert:
        """Return itself: episodes are distinguished by the name of their output."""
        return self

    def writer(self, opening: Opening) -> Writer:
        """Return the writer of the job's alerts and mails."""
        from millstream.sinks.alerts.writer import NotificationWriter

        return NotificationWriter(opening)


@dataclass(frozen=True, init=False)
class JobAlert:
    """An alert on a job itself, evaluated by the supervisor because the job may be dead.

    `fact` is `lag` (unread records above `above`), `late` or `dead` (their share of a minute's
    rows above `above`), or a state of the job: `waiting`, `degraded`, `failing`, `failed`, or
    `down` for `waiting`, `failing` and `failed`. `for_`, `hold` and `to` are as in `Alert`, in
    wall-clock time. Secrets of its recipients must be references, because the supervisor resolves
    them.

    >>> JobAlert("lag", above=10_000).name
    'lag above 10000'
    """

    fact: Fact
    above: float | None
    name: str
    for_: int
    hold: int
    to: tuple[Notified, ...] = field(repr=False)

    def __init__(
        self,
        fact: Fact,
        *,
        above: float | None = None,
        for_: Duration = "0 seconds",
        to: Notified | Sequence[Notified] = (),
        hold: Duration = "1 minute",
        name: str | None = None,
    ) -> None:
        if fact not in get_args(Fact):
            raise InvalidSpec(f"JobAlert needs one of {', '.join(get_args(Fact))}", got=repr(fact))
        _check_limit(fact, above)
        made = name if name is not None else fact if above is None else f"{fact} above {above:g}"
        _check_name("JobAlert", made)
        recipients = _recipients("JobAlert", to)
        for recipient in recipients:
            part = recipient.literal_secret()
            if part is not None:
                raise InvalidSpec("JobAlert needs secrets as references, because the supervisor "
                                  "resolves them", got=f"a literal secret in {part}",
                                  do='write "${env:NAME}" instead')  # fmt: skip
        for part, value in (("fact", fact), ("above", above), ("name", made), ("to", recipients),
                            ("for_", not_negative_micros(for_, what="JobAlert(for_=…)")),
                            ("hold", not_negative_micros(hold, what="JobAlert(hold=…)")),
                            ):  # fmt: skip
            object.__setattr__(self, part, value)

    def __repr__(self) -> str:
        held = f" for {text(self.for_)}" if self.for_ else ""
        recipients = f" → {', '.join(map(repr, self.to))}" if self.to else ""
        return f"JobAlert({self.name!r}, when {self.describe()['when']}{held}{recipients})"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON for the supervisor, with references unresolved."""
        return {"fact": self.fact, "above": self.above, "name": self.name, "for_": self.for_,
                "hold": self.hold, "to": [one.to_json() for one in self.to]}  # fmt: skip

    def describe(self) -> dict[str, Any]:
        """Return it as shown by commands and the page, without secrets."""
        limit = "" if self.above is None else f" above {self.above:g}"
        return {"when": f"{self.fact}{limit}", "clears": None, "for": text(self.for_),
                "to": [repr(one) for one in self.to]}  # fmt: skip


def from_json(body: dict[str, Any]) -> JobAlert:
    """Return the `JobAlert` that `to_json` has written."""
    to = [_recipient(one) for one in body["to"]]
    return JobAlert(body["fact"], above=body["above"], name=body["name"], to=to,
                    for_=text(body["for_"]), hold=text(body["hold"]))  # fmt: skip


def _recipient(body: dict[str, Any]) -> Notified:
    options = {name: value for name, value in body.items() if name != "kind"}
    if body["kind"] == "Webhook":
        return Webhook(**options)
    digest = options.pop("digest")
    return Email(**options, digest=None if digest is None else text(digest))


def _check_limit(fact: str, above: object) -> None:
    number = isinstance(above, int | float) and above is not True and above is not False
    if fact in SHARES and not (number and 0 <= above <= 1):  # type: ignore[operator]
        raise InvalidSpec(f'JobAlert("{fact}") needs above=, a share from 0 to 1', got=repr(above),
                          do="write above=0.05")  # fmt: skip
    if fact in NUMBERS and not (number and above >= 0):  # type: ignore[operator]
        raise InvalidSpec(f'JobAlert("{fact}") needs above=, a number of records',
                          got=repr(above), do="write above=10_000")  # fmt: skip
    if fact not in (*SHARES, *NUMBERS) and above is not None:
        raise InvalidSpec(f'JobAlert("{fact}") needs no limit', got=f"above={above!r}",
                          do="leave it out")  # fmt: skip


def _check_name(kind: str, name: object) -> None:
    if not isinstance(name, str) or not name.strip() or len(name) > 100 or not name.isprintable():
        raise InvalidSpec(f"{kind} needs a name of 1 to 100 characters", got=repr(name))


def _recipients(kind: str, to: object) -> tuple[Notified, ...]:
    given = (to,) if isinstance(to, Email | Webhook) else to
    if not isinstance(given, list | tuple) or len(given) > MOST_RECIPIENTS:
        raise InvalidSpec(f"{kind}(to=…) needs a list of at most {MOST_RECIPIENTS}", got=repr(to))
    for one in given:
        if not isinstance(one, Email | Webhook):
            raise InvalidSpec(f"{kind}(to=…) needs ms.Email(…) and ms.Webhook(…)", got=repr(one))
    return tuple(given)
