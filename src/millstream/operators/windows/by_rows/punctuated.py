"""Windows that a row closes: a frozen value, checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.errors import InvalidSpec

PUNCTUATION = "_punctuation"  # the column that says whether a row closes a window


@dataclass(frozen=True, slots=True)
class Punctuated:
    """A row for which `sql` is true closes its key's window, in order of origin.

    With `member` the row is the last of the window it closes; without, it is a marker that
    belongs to no window. With `all_keys` it closes the windows of all keys: those rows
    belong to them that come before it in order of origin. Null is not true.
    """

    sql: str
    member: bool = True
    all_keys: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.sql, str) or not self.sql.strip():
            raise InvalidSpec(
                "punctuated needs an SQL expression",
                got=repr(self.sql),
                do="write punctuated(\"kind = 'end'\")",
            )
        for name in ("member", "all_keys"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise InvalidSpec(
                    f"the `{name}` of punctuated needs to be True or False",
                    got=repr(value),
                    do=f"write {name}=True, or leave it out",
                )

    def __str__(self) -> str:
        member = "" if self.member else ", member=False"
        all_keys = ", all_keys=True" if self.all_keys else ""
        return f'punctuated("{self.sql}"{member}{all_keys})'


def punctuated(sql: str, *, member: bool = True, all_keys: bool = False) -> Punctuated:
    """Windows that end with the row for which `sql` is true, per key or for all keys.

    >>> print(punctuated("kind = 'end'", member=False))
    punctuated("kind = 'end'", member=False)

    Raises:
        InvalidSpec: no expression, or an option that is neither True nor False.
    """
    return Punctuated(sql, member, all_keys)
