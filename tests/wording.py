"""Words the project does not use, and where they occur: `python -m tests.wording [PATH ...]`.

Docstrings, messages, names, comments and documentation use the vocabulary of Spark, Flink and
Kafka. This list holds what reviews have found instead, each with what to write. Run with paths, the
command lists their lines; run without, it counts per folder. It exits with 1 if it found any.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).parent.parent
CHECKED = (
    "src", "tests", "docs", "web", "benchmarks", "examples", "deploy", "README.md",
    "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "pyproject.toml", "hatch_build.py", ".github",
    ".pre-commit-config.yaml",
)  # fmt: skip
TEXT = {".py", ".md", ".ts", ".tsx", ".css", ".html", ".toml", ".yaml", ".yml", ".xml", ".sh", ""}

BANNED = {  # a regular expression: what to write instead
    "(?:un|re)?told": "report, notify, call on_<event>; a name: what it holds",
    "retelling": "report, convert",
    "telling": "reporting, metrics",
    "teller": "reporter",
    "anew": "again, recreated",
    "mend(?:s|ed|ing)?": "fix, repair",
    r"shut(?:s|ting)? (?:\w+ ){0,4}out": "fence",
    r"hands? (?:\w+ )?(?:over|back)": "pass, return",
    "handed (?:over|back)": "passed, returned",
    "elsewhere": "in another place: name it",
    "calm(?:ly|er|ness)?": "idle",
    r"(?:the |an? )?ones? before (?:it|them)": "the previous one",
    "let(?:s|ting)? go of": "close, release",
    "in hand": "current, in progress",
    "(?:speaks?|spoke|spoken|speaking) of": "mention, describe",
    "(?:knows?|knew|known|knowing) nothing of": "do not depend on, ignore",
    "stands? for (?:itself|themselves)": "is independent",
    "(?:is|are|was|were|been|be) asked for": "is requested",
    "no earlier than": "at or after",
    "(?:holds?|held) (?:back )?nobody": "does not delay others",
    "buried": "sent to the dead-letter topic",
    "(?:result|late|dead|rest|named|these|those) doors?": "output kind, side output",
    "(?:t|w|h)hence": "from there, from where",
    "lest": "so that … not",
    "in silence": "silently, without a message",
    "(?:is|are|was|were|been) away": "is down, is unavailable",
    "in the place of": "instead of",
    "unless said(?: otherwise)?": "by default, unless specified",
    "stands? still": "is stuck, does not advance",
    "one's own": "your own, a separate",
    "in vain": "without success",
    "diary": "metrics store",
    "what came": "input, the rows that arrived",
    "as of then": "at that time",
    "be it": "whether",
    "albeit": "although",
    "hitherto": "until now",
}  # fmt: skip
_GAP = r"[\s_#]+"  # also across a line break, in a comment, and in snake_case
_WORDS = re.compile(
    "|".join(f"(?P<w{n}>{pattern})" for n, pattern in enumerate(BANNED))
    .replace(" ", _GAP)
    .join([r"(?<![a-zA-Z])(?:", ")(?![a-z])"]),
    re.IGNORECASE,
)
_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

# Files that must contain a banned word: (path, word in lower case) -> why.
ALLOWED: dict[tuple[str, str], str] = {
    (
        "src/millstream/engine/recovery/unfinished_rewind.py",
        "told",
    ): "a key in rewind records of earlier versions",
    (
        "src/millstream/jobs/reports/late_and_dead.py",
        "elsewhere",
    ): "a stored key of earlier versions",
    (
        "src/millstream/plan/fingerprint.py",
        "told",
    ): "a class name in fingerprints of earlier versions",
}


class Offence(NamedTuple):
    """A banned word at a line of a file, and what to write instead."""

    file: str
    line: int
    word: str
    instead: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.word!r}; write: {self.instead}"


def banned_words(root: Path, files: Iterable[str]) -> list[Offence]:
    """The banned words in the text files among `files`, which are paths below `root`."""
    return [
        offence
        for file in files
        if Path(file).suffix in TEXT and (root / file).is_file()
        for offence in _in_text(file, (root / file).read_text(errors="replace"))
        if (file, offence.word.lower()) not in ALLOWED
    ]


def _in_text(file: str, text: str) -> Iterator[Offence]:
    text = _CAMEL_CASE.sub("_", text)
    for found in _WORDS.finditer(text):
        pattern = list(BANNED)[int((found.lastgroup or "w0")[1:])]
        line = text.count("\n", 0, found.start()) + 1
        yield Offence(file, line, re.sub(_GAP, " ", found.group()), BANNED[pattern])


def checked_files(root: Path = ROOT, paths: Iterable[str] = CHECKED) -> list[str]:
    """The files below `paths` that git tracks, except this one, which holds the list."""
    listed = subprocess.run(
        ["git", "ls-files", "--", *paths], cwd=root, capture_output=True, text=True, check=True
    )
    own = Path(__file__).relative_to(ROOT).as_posix()
    return [file for file in listed.stdout.splitlines() if file != own]


def main(paths: list[str]) -> int:
    found = banned_words(ROOT, checked_files(paths=paths or CHECKED))
    if paths:
        print(*found, sep="\n" if found else "")
    else:
        folders = Counter("/".join(offence.file.split("/")[:-1][:3]) for offence in found)
        for folder, count in sorted(folders.items()):
            print(f"{count:6} {folder or '.'}")
    print(f"{len(found)} banned words", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
