"""The console's process: `python -m millstream.console.server`, started by `millstream up`."""

from __future__ import annotations

import logging
import signal
import threading
from typing import TYPE_CHECKING

import uvicorn

from millstream.console.app import Console, application
from millstream.console.guard.connections import connection
from millstream.console.guard.limits import Limits
from millstream.console.page import built_page
from millstream.jobs.folders import StackFolder, stack_folder
from millstream.jobs.logs import Log
from millstream.jobs.registry import JobRegistry
from millstream.jobs.stack import UP, ensure_running, page_address

if TYPE_CHECKING:
    from types import FrameType

    from starlette.types import ASGIApp

_LOOK = 0.5
_SHUTDOWN_SECONDS = 3
_ACCEPTED = 100  # backlog of new connections


def configured(app: ASGIApp, limits: Limits, *, host: str, port: int) -> uvicorn.Config:
    """Serve within the limits, over plain HTTP/1.1; requests are not logged, because a URL may
    contain search terms."""
    return uvicorn.Config(
        app, host=host, port=port, http=connection(limits), ws="none", lifespan="off",
        log_config=None, access_log=False, server_header=False, date_header=False,
        proxy_headers=False, h11_max_incomplete_event_size=limits.headers,
        backlog=_ACCEPTED, timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )  # fmt: skip


def run() -> None:
    """Serve until SIGTERM, or until `millstream down`."""
    signal.signal(signal.SIGTERM, _leave)
    stack = stack_folder()
    log = Log(stack.log("console"), process="console")
    with JobRegistry(stack.registry, read_only=True) as registry:
        address = page_address(registry)
    page, limits = built_page(), Limits()
    console = Console(stack, limits)
    app = application(stack, port=address.port, page=page, urls=address.urls, limits=limits,
                      console=console)  # fmt: skip
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    server = uvicorn.Server(configured(app, limits, host=address.host, port=address.port))
    log("console started", host=address.host, port=address.port, page=page is not None)
    watching = threading.Thread(target=_watch_stack, args=(stack, server, log), daemon=True)
    watching.start()
    try:
        server.run()
    finally:
        console.rewinds.end()
        log("console stopped")
        log.close()


def _leave(number: int, frame: FrameType | None) -> None:
    """uvicorn handles SIGTERM and raises it again once it has shut down."""
    raise SystemExit(0)


def _watch_stack(stack: StackFolder, server: uvicorn.Server, log: Log) -> None:
    """Restart a supervisor that was killed; shut down with the stack."""
    wait = threading.Event()
    with JobRegistry(stack.registry, read_only=True) as registry:
        while not wait.wait(_LOOK):
            up = registry.setting(UP) is not None
            if not up:
                server.should_exit = True
                return
            if ensure_running(stack, "supervisor", up=up):
                log("supervisor was not running; restarted it", "warning")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    run()
