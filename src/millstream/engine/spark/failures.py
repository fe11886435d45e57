"""Distinguishes errors in the user's code from errors in Millstream.

Spark's errors come wrapped in Py4J and JVM traces. Here they become one message that names the
step and the user's line: the line that raised, or the line on which the step was written.
"""

from __future__ import annotations

import re
import sys
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from millstream.errors import InvalidSpec, MillstreamError, UserCodeFailed
from millstream.plan.explain.explain import step_text
from millstream.plan.graph import PACKAGE, Node, Read, Select, Stateful, Where, WithColumns
from millstream.sql import columns as sql

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_FRAME = re.compile(
    r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>[^\n]+)(?:\n\s+(?P<code>[^\n]+))?'
)
_NOT_THE_USERS = ("/site-packages/", "/pyspark/", "/py4j/", "/python3.", ".pxi", "<frozen")
_ADVICE = re.compile(
    r' If necessary set "spark\.sql\.ansi\.enabled".*?(?= SQLSTATE|$)| SQLSTATE:.*'
)
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


@contextmanager
def user_code(step: str, *trees: Node) -> Iterator[None]:
    """Turn an error raised by SQL or a function before a step into a UserCodeFailed.

    `trees` are the stateless steps before it. Errors that none of them can have raised are
    raised unchanged.
    """
    with _quiet():
        try:
            yield
        except MillstreamError:
            raise
        except Exception as error:
            failed = (_translated(error, step, trees) if is_spark_error(error)
                      else _on_driver(error, step))  # fmt: skip
            if failed is None:
                raise
            raise failed from error


@contextmanager
def analysed_step(node: Node) -> Iterator[None]:
    """Turn Spark's type errors in one step into an InvalidSpec that names the step."""
    from pyspark.errors import PySparkException

    with _quiet():
        try:
            yield
        except PySparkException as error:
            raise InvalidSpec(
                f"{step_text(node)} needs types that fit",
                got=_reason(error),
                do=None if node.at is None else f"see {node.at}",
            ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep PySpark from printing each error as JSON."""
    if "pyspark" not in sys.modules:
        yield
        return
    from pyspark.logger import PySparkLogger

    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, was in zip(loggers, before, strict=True):
            logger.disabled = was


def is_spark_error(error: Exception) -> bool:
    """Whether Spark or Py4J raised this error."""
    return type(error).__module__.split(".")[0] in ("pyspark", "py4j")


def _translated(error: Exception, step: str, trees: Sequence[Node]) -> MillstreamError | None:
    text = str(error)
    ours = re.search(r"millstream\.errors\.(\w+): (.+)", text)
    if ours:
        return _ours(ours.group(1), ours.group(2))
    if "Traceback (most recent call last)" in text:
        frame = _users_frame(text)
        raised = re.findall(r"^(\w+(?:\.\w+)*): (.*)$", text, re.MULTILINE)
        if frame is None or not raised:
            return None
        return _failed(step, f"{raised[-1][0]}: {raised[-1][1]}", frame)
    node = _writer(error, trees)
    where = _called_from(error) or (node.at if node is not None else None)
    name = step if node is None else f"{step_text(node)} → {step}"
    return _failed(name, _reason(error), where)


def _on_driver(error: Exception, step: str) -> MillstreamError | None:
    """The error of a user's function that a kernel called on the driver."""
    frame = _users_frame("".join(traceback.format_exception(error)))
    return None if frame is None else _failed(step, f"{type(error).__name__}: {error}", frame)


def _failed(step: str, why: str, where: str | None) -> UserCodeFailed:
    return UserCodeFailed(f"the step {step!r} raised {why}", do=where and f"see {where}")


def _reason(error: Exception) -> str:
    """Spark's message, without plan, trace and advice on settings that do not apply here."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    condition = getattr(error, "getCondition", lambda: None)()
    message = _ADVICE.sub("", lines[0])
    return (message if condition is None or message.startswith("[")
            else f"[{condition}] {message}")  # fmt: skip


def _writer(error: Exception, trees: Sequence[Node]) -> Node | None:
    """The step with the SQL that Spark names in its error."""
    fragments = [c.fragment() for c in _contexts(error) if c.contextType().name == "SQL"]
    if not fragments:
        return None
    nodes = [node for tree in trees for node in _stateless(tree)]
    found = [node for node in nodes
             if any(fragments[0].lower() in text.lower() for text in _texts(node))]  # fmt: skip
    return found[0] if found else next((node for node in nodes if _texts(node)), None)


def _called_from(error: Exception) -> str | None:
    """The user's line in a `transform` that created the failed expression."""
    for context in _contexts(error):
        if context.contextType().name == "DataFrame":
            place = str(context.callSite())
            if place and PACKAGE not in place:
                return place
    return None


def _contexts(error: Exception) -> list[Any]:
    ask = getattr(error, "getQueryContext", None)
    return list(ask()) if callable(ask) else []


def _stateless(tree: Node) -> Iterator[Node]:
    """The stateless steps of a tree, last step first."""
    if isinstance(tree, Read | Stateful):
        return
    yield tree
    for below in tree.inputs:
        yield from _stateless(below)


def _texts(node: Node) -> list[str]:
    if isinstance(node, Where):
        return [node.sql]
    if isinstance(node, Select | WithColumns):
        return [text for _, text in node.items if sql.copied_column(text) is None]
    return []


def _ours(name: str, sentence: str) -> MillstreamError:
    """A Millstream error raised inside a Spark task, with its own class."""
    from millstream import errors

    kind = getattr(errors, name, MillstreamError)
    made: MillstreamError = kind(sentence)
    return made


def _users_frame(text: str) -> str | None:
    frames = [
        m for m in _FRAME.finditer(text)
        if not m["file"].startswith(PACKAGE)
        and not any(part in m["file"] for part in _NOT_THE_USERS)
    ]  # fmt: skip
    if not frames:
        return None
    last = frames[-1]
    code = f": {last['code'].strip()}" if last["code"] else ""
    return f"{last['file']}:{last['line']}, in {last['name'].strip()}{code}"


def where_it_was_raised(error: BaseException) -> str | None:
    """`see` and the user's frame of an error raised on the driver."""
    frame = _users_frame("".join(traceback.format_exception(error)))
    return frame and f"see {frame}"
