"""Links of Markdown pages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def leads(link: str, document: Path) -> bool:
    """Whether the page of a link exists, and its heading if the link names one."""
    path, _, anchor = link.partition("#")
    page = (document.parent / path) if path else document
    return page.exists() and (not anchor or anchor in anchors(page.read_text()))


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}
