"""The `millstream` command.

Command modules are listed in `COMMANDS`; each has `register(app)` and imports what is heavy
(Kafka, Spark, tables) only inside its functions, so that `--help` and `version` stay fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from millstream.cli.demo import demo
from millstream.cli.pipeline import check, commits, dead, dev, init, plan, rewind, run, state
from millstream.cli.stack import about, alerts, doctor, jobs, local
from millstream.cli.terminal.boundary import Guarded, handle_sigterm
from millstream.cli.terminal.options import with_common_options
from millstream.cli.topics import acks, brokers, groups, produce, tail, topics

if TYPE_CHECKING:
    from types import ModuleType

COMMANDS: tuple[ModuleType, ...] = (
    *(demo, init, local),
    *(run, dev, jobs, alerts, check, plan, commits, state, dead, rewind),
    *(topics, produce, tail, groups, brokers, acks),
    *(doctor, about),
)

HELP = """
Stream processing for Python people, on Kafka and Spark.

`millstream up` starts a real Kafka on this machine; --kafka or MILLSTREAM_KAFKA names another.
Data goes to stdout, everything else to stderr; -o json is for programs.
"""
EXAMPLES = """\b
Start here:
  millstream demo                     a web shop on a live page
  millstream init shop                a project with a pipeline and its test
  millstream up                       a broker, the supervisor and the page, in the background
  millstream jobs submit hot.py       a pipeline as a job
  millstream topics create clicks     a topic
  echo '{"n": 1}' | millstream produce clicks
  millstream tail clicks --from-beginning
"""


def build() -> typer.Typer:
    """The whole command tree."""
    app = typer.Typer(
        name="millstream",
        cls=Guarded,
        help=HELP,
        epilog=EXAMPLES,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(with_common_options(_no_further_options))
    for module in COMMANDS:
        module.register(app)
    return app


def _no_further_options() -> None:
    """The common options are all the root command takes."""


app = build()


def main() -> None:
    """The entry point of the installed command."""
    handle_sigterm()
    app(prog_name="millstream")


if __name__ == "__main__":
    main()
