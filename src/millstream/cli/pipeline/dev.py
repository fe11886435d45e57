"""`millstream dev FILE`: a pipeline that runs while it is being written."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from millstream.cli.pipeline.run import (
    check_topics,
    cluster_or_none,
    libraries_log,
    stopped_by_signals,
)
from millstream.cli.terminal.options import Kafka, command
from millstream.cli.terminal.output import complain, say, warn
from millstream.cli.terminal.pipelines import Checkpoint, File, Loaded, libraries_print_to, load
from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from millstream.api.pipeline import Pipeline
    from millstream.engine.job import Job
    from millstream.kafka.settings import Cluster

_LOOK = 0.3


def register(app: typer.Typer) -> None:
    """Adds `dev`."""
    command(app, "dev", "millstream dev hot.py", "millstream dev hot.py:hot-auctions")(dev)


def dev(file: File, checkpoint: Checkpoint = None, kafka: Kafka = None) -> None:
    """Run a pipeline and reload it on every save, until Ctrl-C.

    Spark stays up in between, so a change takes about a second. The pipeline goes on where it
    was: steps that are as before keep their state. A file that is wrong is told with its line,
    and what ran before goes on. A change that its state cannot follow is refused; name another
    --checkpoint to begin anew.
    """
    watched = Saved(Path(file.rpartition(":")[0] if not Path(file).exists() else file))
    loaded, pipeline = load(file)
    cluster = cluster_or_none(pipeline, kafka)
    if cluster is not None:
        check_topics(pipeline, cluster)
    while True:
        again = _run_until_saved(file, (loaded, pipeline), watched, cluster, checkpoint)
        if again is None:
            return
        loaded, pipeline = again
        say(f"reloaded {file}")


class Saved:
    """The Python files of a folder; `changed` tells whether one was saved since it was asked."""

    def __init__(self, file: Path) -> None:
        self._folder = file.resolve().parent
        self._seen = self._look()

    def changed(self) -> bool:
        """Whether a file has been saved, added or removed since the last time."""
        now = self._look()
        changed, self._seen = now != self._seen, now
        return changed

    def forget_modules(self) -> None:
        """Modules beside the file are imported anew by the next load."""
        for name, module in list(sys.modules.items()):
            origin = getattr(module, "__file__", None)
            if origin is not None and Path(origin).parent == self._folder:
                del sys.modules[name]

    def _look(self) -> dict[Path, tuple[int, int]]:
        found = {}
        for path in self._folder.glob("*.py"):
            try:
                told = path.stat()
            except FileNotFoundError:  # an editor moves the new file over the old one
                continue
            found[path] = (told.st_mtime_ns, told.st_size)
        return found


def _run_until_saved(
    file: str,
    loaded: "tuple[Loaded, Pipeline]",
    watched: Saved,
    cluster: "Cluster | None",
    checkpoint: Path | None,
) -> "tuple[Loaded, Pipeline] | None":
    """One run; what it was replaced by, or None when somebody ended it."""
    from millstream.engine.job import Job
    from millstream.metrics.progress import PlainLines

    module, pipeline = loaded
    module.for_spark()
    show = PlainLines(say)
    job = Job(pipeline, kafka=cluster, checkpoint=checkpoint, on_batch=show.batch,
              on_phase=show.phase, warn=warn)  # fmt: skip
    with (
        libraries_print_to(libraries_log(job, pipeline)),
        stopped_by_signals(job) as stop,
        show,
    ):
        job.start()
        following, told = None, False
        while stop.signal is None and following is None:
            following = _saved(file, watched)
            if not told and job.ended(0):
                told = True
                _tell_why(job)
        job.stop()
        while not job.ended(0.1):
            continue
    return following


def _saved(file: str, watched: Saved) -> "tuple[Loaded, Pipeline] | None":
    """What was saved, if it can be loaded."""
    time.sleep(_LOOK)
    if not watched.changed():
        return None
    watched.forget_modules()
    try:
        return load(file)
    except MillstreamError as error:
        complain(str(error))
        return None


def _tell_why(job: "Job") -> None:
    """Why a run ended by itself; the next save begins another."""
    try:
        job.wait(0)
    except MillstreamError as error:
        complain(f"{error}; save the file to try again")
