"""Where in the user's own file a step was written, for errors that come up much later."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

OURS = f"{Path(__file__).resolve().parent.parent}/"
_GENERATED = "<string>"  # the `__init__` that dataclasses write


def users_line() -> str | None:
    """`file:line` of the call into this package that is under way; None if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file != _GENERATED and not file.startswith(OURS):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return None
