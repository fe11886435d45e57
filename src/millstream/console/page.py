"""The built page: its files, read into memory at the start; nothing else is served from disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
_ABSENT = (
    "This installation does not include the built page; install a wheel, or run `make env` in the "
    "repository. The API is available: see /api/openapi.json\n"
)


def built_page() -> Path | None:
    """The folder of the built page, if it was built."""
    folder = Path(__file__).parent / "dist"
    return folder if (folder / "index.html").exists() else None


def page_routes(folder: Path | None) -> list[Route]:
    """One route for each file; the root is the page itself."""
    if folder is None:
        return [Route("/", _absent)]
    routes = []
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = file.relative_to(folder).as_posix()
        kind = KINDS.get(file.suffix)
        if kind is not None:
            routes.append(Route("/" if name == "index.html" else f"/{name}", _file(file, kind)))
    return routes


def _file(file: Path, kind: str) -> Callable[[Request], Awaitable[Response]]:
    body = file.read_bytes()
    hashed = "assets" in file.parts
    headers = {"Cache-Control": "public, max-age=31536000, immutable" if hashed else "no-cache"}

    async def answer(request: Request) -> Response:
        return Response(body, media_type=kind, headers=headers)

    return answer


async def _absent(request: Request) -> Response:
    return PlainTextResponse(_ABSENT, 503)
