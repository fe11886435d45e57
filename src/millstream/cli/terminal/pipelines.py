"""Load the user's file and find its pipelines: `FILE` or `FILE:name`.

Errors in it name the line of the user's file, not one of Millstream's.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import traceback
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from millstream.cli.terminal.output import screen
from millstream.errors import InvalidInput, InvalidSpec, MillstreamError, NotFound
from millstream.jobs.logs import limit_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.api.pipeline import Pipeline
    from millstream.jobs.registry import JobRow

File = Annotated[
    str,
    typer.Argument(metavar="FILE", help="A Python file; FILE:NAME is one of its pipelines."),
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint",
        metavar="DIR",
        help="The job's checkpoint folder [MILLSTREAM_HOME/jobs/NAME].",
    ),
]
_MILLSTREAM = str(Path(__file__).parents[2]) + os.sep
_NOT_USERS = (_MILLSTREAM, sysconfig.get_path("stdlib") + os.sep, "<frozen", "site-packages")


@dataclass(frozen=True)
class Loaded:
    """A file's pipelines by the names of their variables, and its module."""

    file: Path
    module: ModuleType
    pipelines: dict[str, Pipeline]

    def one(self, name: str | None) -> Pipeline:
        """The pipeline of that name, or the only one there is."""
        found = {id(p): p for v, p in self.pipelines.items() if name in (None, p.name, v)}
        if len(found) == 1:
            return next(iter(found.values()))
        names = ", ".join(sorted({p.name for p in self.pipelines.values()}))
        if name is not None and not found:
            raise NotFound(f"{self.file} needs a pipeline named {name!r}", got=names)
        raise InvalidInput(f"{self.file} needs one pipeline, or the name of one",
                           got=f"{len(found)}: {names}",
                           do=f"write {self.file}:{next(iter(found.values())).name}")  # fmt: skip

    def all(self) -> list[Pipeline]:
        """Every pipeline once, in the order of the file."""
        return list({id(p): p for p in self.pipelines.values()}.values())

    def for_spark(self) -> None:
        """Make the file's functions and the modules beside it available to Spark's workers.

        Turns off what Spark logs about an invalid expression: the error describes it.
        """
        from pyspark import cloudpickle
        from pyspark.logger import PySparkLogger

        PySparkLogger.getLogger("SQLQueryContextLogger").disabled = not screen().debug
        cloudpickle.register_pickle_by_value(self.module)
        python_path = os.environ.get("PYTHONPATH")
        folder = str(self.file.resolve().parent)
        if folder not in (python_path or "").split(os.pathsep):
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, python_path]))


@contextmanager
def libraries_print_to(log: Path) -> Iterator[None]:
    """Append what Java, Spark's workers and the Kafka client print to a file of bounded size.

    They write to file descriptor 2 and would break a progress line; Millstream's own messages
    still go to stderr. Under `--debug` nothing is redirected.
    """
    if screen().debug:
        yield
        return
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, before = os.dup(2), sys.stderr
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    if _is_descriptor_2(before):
        sys.stderr = os.fdopen(descriptor, "w", buffering=1, encoding="utf-8",
                               errors="backslashreplace", closefd=False)  # fmt: skip
    try:
        with limit_size(log):
            yield
    finally:
        sys.stderr.flush()
        sys.stderr = before
        os.dup2(descriptor, 2)
        os.close(descriptor)


def _is_descriptor_2(stream: TextIO) -> bool:
    try:
        return stream.fileno() == 2
    except (OSError, ValueError):
        return False


def load(text: str) -> tuple[Loaded, Pipeline]:
    """The pipeline named by `FILE` or `FILE:name`, and its file."""
    loaded, name = load_file(text)
    return loaded, loaded.one(name)


def find_job(name: str) -> JobRow | None:
    """The registered job of that name."""
    from millstream.jobs.folders import stack_folder
    from millstream.jobs.registry import JobRegistry

    with JobRegistry(stack_folder().registry, read_only=True) as registry:
        return {job.name: job for job in registry.all()}.get(name)


def load_file(text: str) -> tuple[Loaded, str | None]:
    """The file and the name in `FILE` or `FILE:name`.

    Raises:
        NotFound: no such file.
        InvalidSpec: the file raised (the error names its line), or has no pipeline.
    """
    from millstream.api.pipeline import Pipeline

    file, name = _split(text)
    module = _execute(file)
    found = {v: p for v, p in vars(module).items() if isinstance(p, Pipeline)}
    if not found:
        raise InvalidSpec(
            f"{file} needs a pipeline at its top level",
            got="none",
            do='write pipeline = ms.Pipeline("name", stream.to(ms.Topic("answers")))',
        )
    return Loaded(file, module, found), name


def _split(text: str) -> tuple[Path, str | None]:
    path, colon, name = text.rpartition(":")
    if not colon or Path(text).exists():
        path, name = text, ""
    file = Path(path)
    if file.is_dir():
        raise InvalidInput("this needs a Python file", got=f"the folder {file}")
    if not file.exists():
        raise NotFound(f"this needs the file {file}", got="no such file",
                       do="name a Python file with a pipeline in it")  # fmt: skip
    return file, name or None


def _execute(file: Path) -> ModuleType:
    name = "millstream_pipeline_" + re.sub(r"\W", "_", file.stem)
    module = ModuleType(name)
    module.__file__ = str(file.resolve())
    sys.modules[name] = module
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    with _errors_at_users_line(file), redirect_stdout(sys.stderr):
        code = compile(file.read_bytes(), str(file), "exec")
        exec(code, vars(module))  # noqa: S102
    return module


@contextmanager
def _errors_at_users_line(file: Path) -> Iterator[None]:
    try:
        yield
    except MillstreamError as error:
        where = users_line(error) or str(file)
        raise InvalidSpec(f"{where}: {error.need}", got=error.got, do=error.do) from error
    except SyntaxError as error:
        at = f"{_shown(error.filename or str(file))}:{error.lineno}"
        shown = f": {error.text.strip()}" if error.text else ""
        raise InvalidSpec(f"{at} needs to be Python", got=f"{error.msg}{shown}") from error
    except (Exception, SystemExit) as error:
        where = users_line(error) or str(file)
        raise InvalidSpec(
            f"{where} raised {type(error).__name__}", got=str(error) or "no message"
        ) from error


def users_line(error: BaseException) -> str | None:
    """The innermost line of the user's code in an error's traceback: `hot.py:12`."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)
              if not any(part in frame.filename for part in _NOT_USERS)]  # fmt: skip
    return f"{_shown(frames[-1].filename)}:{frames[-1].lineno}" if frames else None


def _shown(filename: str) -> str:
    """A file's path, relative to the working directory if it is below it."""
    try:
        return str(Path(filename).resolve().relative_to(Path.cwd()))
    except ValueError:
        return filename
