"""`millstream dev FILE`: run a pipeline and reload it on every save."""

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

_POLL = 0.3


def register(app: typer.Typer) -> None:
    """Add `dev`."""
    command(app, "dev", "millstream dev hot.py", "millstream dev hot.py:hot-auctions")(dev)


def dev(file: File, checkpoint: Checkpoint = None, kafka: Kafka = None) -> None:
    """Run a pipeline and reload it on every save, until Ctrl-C.

    Spark keeps running, so a change takes about a second. The pipeline continues from its
    checkpoint: unchanged steps keep their state. An error in the file is reported with its line,
    and the previous version keeps running. A change that does not fit the state is refused;
    use another --checkpoint to start with empty state.
    """
    watcher = FileWatcher(Path(file.rpartition(":")[0] if not Path(file).exists() else file))
    loaded, pipeline = load(file)
    cluster = cluster_or_none(pipeline, kafka)
    if cluster is not None:
        check_topics(pipeline, cluster)
    while True:
        reloaded = _run_until_saved(file, (loaded, pipeline), watcher, cluster, checkpoint)
        if reloaded is None:
            return
        loaded, pipeline = reloaded
        say(f"reloaded {file}")


class FileWatcher:
    """Watches the Python files of a file's folder."""

    def __init__(self, file: Path) -> None:
        self._folder = file.resolve().parent
        self._seen = self._scan()

    def changed(self) -> bool:
        """Whether a file has been saved, added or removed since the last call."""
        now = self._scan()
        changed, self._seen = now != self._seen, now
        return changed

    def forget_modules(self) -> None:
        """Make the next load import the modules beside the file again."""
        for name, module in list(sys.modules.items()):
            origin = getattr(module, "__file__", None)
            if origin is not None and Path(origin).parent == self._folder:
                del sys.modules[name]

    def _scan(self) -> dict[Path, tuple[int, int]]:
        found = {}
        for path in self._folder.glob("*.py"):
            try:
                stat = path.stat()
            except FileNotFoundError:  # an editor is replacing the file
                continue
            found[path] = (stat.st_mtime_ns, stat.st_size)
        return found


def _run_until_saved(
    file: str,
    loaded: "tuple[Loaded, Pipeline]",
    watcher: FileWatcher,
    cluster: "Cluster | None",
    checkpoint: Path | None,
) -> "tuple[Loaded, Pipeline] | None":
    """Run until a saved version can be loaded, and return it; None after Ctrl-C."""
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
        replacement, reported = None, False
        while stop.signal is None and replacement is None:
            replacement = _load_if_saved(file, watcher)
            if not reported and job.ended(0):
                reported = True
                _report_end(job)
        job.stop()
        while not job.ended(0.1):
            continue
    return replacement


def _load_if_saved(file: str, watcher: FileWatcher) -> "tuple[Loaded, Pipeline] | None":
    """The saved file, if there is one and it can be loaded."""
    time.sleep(_POLL)
    if not watcher.changed():
        return None
    watcher.forget_modules()
    try:
        return load(file)
    except MillstreamError as error:
        complain(str(error))
        return None


def _report_end(job: "Job") -> None:
    """Report the error that ended a run; the next save starts another."""
    try:
        job.wait(0)
    except MillstreamError as error:
        complain(f"{error}; save the file to try again")
