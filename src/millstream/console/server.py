"""The console's process: `python -m millstream.console.server`, started by `millstream up`."""

from __future__ import annotations

import logging
import signal
import threading

import uvicorn

from millstream.console.app import application
from millstream.console.page import built_page
from millstream.jobs.book import Book
from millstream.jobs.logs import Log
from millstream.jobs.places import StackPlace, stack_place
from millstream.jobs.stack import PAGE_PORT, UP, keep

_LOOK = 0.5
_SLOW_READERS = 3


def run() -> None:
    """Serve until SIGTERM, or until the stack is no longer meant to be up."""
    place = stack_place()
    log = Log(place.log("console"), process="console")
    with Book(place.book, read_only=True) as book:
        port = int(book.setting(PAGE_PORT) or 0)
    page = built_page()
    config = uvicorn.Config(
        application(place, port=port, page=page),
        host="127.0.0.1", port=port, log_config=None, access_log=False, lifespan="off",
        timeout_graceful_shutdown=_SLOW_READERS, server_header=False, date_header=False,
    )  # fmt: skip
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    server = uvicorn.Server(config)
    log("console began", port=port, page=page is not None)
    watching = threading.Thread(target=_look_after, args=(place, server, log), daemon=True)
    watching.start()
    server.run()
    log("console ended")
    log.close()


def _look_after(place: StackPlace, server: uvicorn.Server, log: Log) -> None:
    """Bring a supervisor back that was killed; end with the stack."""
    wait = threading.Event()
    with Book(place.book, read_only=True) as book:
        while not wait.wait(_LOOK):
            up = book.setting(UP) is not None
            if not up:
                server.should_exit = True
                return
            if keep(place, "supervisor", up=up):
                log("the supervisor was gone and is started again", "warning")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    run()
