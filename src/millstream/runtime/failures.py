"""A fault of the user's code reads differently from a fault of ours.

What Spark raises comes wrapped in Py4J and JVM traces. Here it becomes one sentence
that names the step, with the user's own frame where there is one.
"""

from __future__ import annotations

import re
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING

from millstream.errors import MillstreamError, UserCodeFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

_FRAME = re.compile(
    r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)\n\s+(?P<code>.+)'
)
_OURS = ("/millstream/", "pyspark", "py4j", "<frozen", "/cloudpickle/", ".pxi", "site-packages")
_CONDITION = re.compile(r"\[(?P<condition>[A-Z0-9_.]+)\]\s*(?P<text>[^\n]+)")


@contextmanager
def user_code(step: str) -> Iterator[None]:
    """Turn what the step's SQL or function raises into a UserCodeFailed that names it."""
    try:
        yield
    except MillstreamError:
        raise
    except Exception as error:
        if not _is_sparks(error):
            raise
        raise _translated(error, step) from error


def _is_sparks(error: Exception) -> bool:
    return type(error).__module__.split(".")[0] in ("pyspark", "py4j")


def _translated(error: Exception, step: str) -> MillstreamError:
    text = str(error)
    ours = re.search(r"millstream\.errors\.(\w+): (.+)", text)
    if ours:
        return _ours(ours.group(1), ours.group(2))
    raised = re.findall(r"^(\w+(?:\.\w+)*(?:Error|Exception)): (.*)$", text, re.MULTILINE)
    frame = _users_frame(text)
    condition = _CONDITION.search(text)
    if condition and not frame:
        why = f"[{condition['condition']}] {condition['text'].strip()}"
    elif raised:
        why = f"{raised[-1][0]}: {raised[-1][1]}"
    else:
        why = text.strip().splitlines()[0]
    return UserCodeFailed(f"the step {step!r} raised {why}", do=frame)


def _ours(name: str, sentence: str) -> MillstreamError:
    """An error of our own that was raised inside a Spark task, as itself."""
    from millstream import errors

    kind = getattr(errors, name, MillstreamError)
    made: MillstreamError = kind(sentence)
    return made


def _users_frame(text: str) -> str | None:
    frames = [m for m in _FRAME.finditer(text) if not any(part in m["file"] for part in _OURS)]
    if not frames:
        return None
    last = frames[-1]
    return f"see {last['file']}:{last['line']}, in {last['name']}: {last['code'].strip()}"


def where_it_was_raised(error: BaseException) -> str | None:
    """The user's own frame of an error raised on the driver."""
    lines = "".join(traceback.format_exception(error))
    return _users_frame(lines)
