"""Options that all commands share, and the registration of a command."""

from __future__ import annotations

import functools
import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.terminal.output import Output, screen, use_screen

if TYPE_CHECKING:
    from collections.abc import Callable

Kafka = Annotated[
    str | None,
    typer.Option(
        "--kafka",
        metavar="HOST:PORT",
        envvar="MILLSTREAM_KAFKA",
        help="The Kafka to use; without it, the local broker.",
    ),
]
Shape = Annotated[
    Output, typer.Option("--output", "-o", metavar="table|json", help="For people or programs.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would change; change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]

_COMMON: dict[str, Any] = {
    "quiet": Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")],
    "verbose": Annotated[bool, typer.Option("--verbose", "-v", help="Print more.")],
    "no_color": Annotated[bool, typer.Option("--no-color", help="No colour (also NO_COLOR).")],
    "debug": Annotated[bool, typer.Option("--debug", help="Show tracebacks.")],
}


def command(
    app: typer.Typer, name: str, *examples: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function as a command with `--quiet --verbose --no-color --debug`.

    The examples are shown at the end of its help, one per line.
    """
    title = "Example" if len(examples) == 1 else "Examples"
    epilog = "\b\n" + "\n".join([f"{title}:", *(f"  {line}" for line in examples)])

    def register(function: Callable[..., None]) -> Callable[..., None]:
        app.command(name, epilog=epilog)(with_common_options(function))
        return function

    return register


def with_common_options(function: Callable[..., None]) -> Callable[..., None]:
    """The function with the options of `_COMMON` added; they are applied before it runs."""
    signature = inspect.signature(function, eval_str=True)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)
        for name, kind in _COMMON.items()
    ]

    @functools.wraps(function)
    def with_options(**values: Any) -> None:
        chosen = {name: values.pop(name) for name in _COMMON}
        now = screen()
        use_screen(
            replace(
                now,
                quiet=now.quiet or chosen["quiet"],
                verbose=now.verbose or chosen["verbose"],
                debug=now.debug or chosen["debug"],
                color=now.color and not chosen["no_color"],
            )
        )
        function(**values)

    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in signature.parameters.values()
    ]
    with_options.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*parameters, *added]
    )
    with_options.__annotations__ = {p.name: p.annotation for p in [*parameters, *added]}
    del with_options.__wrapped__
    return with_options
