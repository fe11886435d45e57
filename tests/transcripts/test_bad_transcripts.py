"""A transcript that is wrong fails with the line that is; one that means nothing is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.transcripts.nodes import BadTranscript
from tests.transcripts.playing import play
from tests.transcripts.reading import transcripts

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """\
title: Two rows make two
about: A story to spoil.
pipeline: events.by("k").window(tumbling("10 seconds")).agg(n=count())
steps:
  - feed: |
      k  v  ts
      a  1  1
      a  2  2
    panes: none
  - feed: |
      k  v  ts
      a  3  12
    panes: |
      k  window  n
      a  0..10   2
  - feed: |
      k  v  ts
      a  4  3
    panes: none
    late: |
      k  v  ts  windows
      a  4  3   0..10
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "story.yaml"
    file.write_text(text)
    return file


def spoiled(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, "a spoiled story differs in one place"
    return GOOD.replace(old, new)


@pytest.mark.usefixtures("spark")
def test_the_unmodified_transcript_passes(tmp_path: Path) -> None:
    (story,) = transcripts([written(tmp_path, GOOD)])

    play(story)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("a  0..10   2", "a  0..10   3",
         ["story.yaml:10", "- a  0..10   3    (line 15)", "+ a  0..10  2"]),
        ("a  0..10   2", "a  0..20   2", ["- a  0..20   2    (line 15)", "+ a  0..10  2"]),
        ("a  0..10   2", "b  0..10   2", ["- b  0..10   2    (line 15)", "+ a  0..10  2"]),
        ("a  0..10   2", "a  0..10   2\n      a  0..10   2", ["- a  0..10   2    (line 16)"]),
        ("a  0..10   2", "a  0..10   null", ["- a  0..10   null    (line 15)"]),
        ("panes: |\n      k  window  n\n      a  0..10   2", "panes: none", ["+ a  0..10  2"]),
        ("a  4  3   0..10", "a  5  3   0..10", ["- a  5  3   0..10    (line 22)"]),
        ("a  4  3   0..10", "a  4  3   10..20", ["- a  4  3   10..20    (line 22)"]),
        ("\n    late: |\n      k  v  ts  windows\n      a  4  3   0..10", "",
         ["late rows", "+ a  4  3  0..10", "- late: 0", "+ late: 1"]),
        ("    panes: none\n  - feed: |\n      k  v  ts\n      a  3",
         "    panes: none\n    dead: 1\n  - feed: |\n      k  v  ts\n      a  3",
         ["dead rows: 1 expected"]),
        ("    panes: none\n  - feed: |\n      k  v  ts\n      a  3",
         "    panes: none\n    facts: {rows: 3, watermarks: {events: 2.5}}\n"
         "  - feed: |\n      k  v  ts\n      a  3",
         ["- rows: 3    (line 10)", "+ rows: 2", "- watermarks.events: 2.5",
          "+ watermarks.events: 2"]),
    ],
)  # fmt: skip
def test_a_wrong_expectation_fails_at_its_line(
    tmp_path: Path, old: str, new: str, lines: list[str]
) -> None:
    (story,) = transcripts([written(tmp_path, spoiled(old, new))])

    with pytest.raises(AssertionError) as failed:
        play(story)

    for line in lines:
        assert line in str(failed.value)


@pytest.mark.usefixtures("spark")
def test_rows_in_another_order_are_reported_as_such(tmp_path: Path) -> None:
    text = spoiled("a  3  12", "a  3  32\n      b  3  4").replace(
        "a  0..10   2", "b  0..10   1\n      a  0..10   2"
    )
    (story,) = transcripts([written(tmp_path, text)])

    with pytest.raises(AssertionError, match="panes of out in another order"):
        play(story)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("about: A story to spoil.", "about: A story.\nauthor: me",
         "story.yaml:3 a known name is needed; got author; write one of title, about,"),
        ("about: A story to spoil.", "about: One.\nabout: Two.",
         "story.yaml:3 a name is needed once; got about again"),
        ("about: A story to spoil.\n", "",
         "story.yaml:1 a transcript needs title, about and pipeline; got no about"),
        ("about: A story to spoil.", "about: A story.\nrefused: window",
         "story.yaml:1 a transcript needs steps, or to be refused; got both"),
        ("about: A story to spoil.", "about: A story.\nzero: noon",
         "story.yaml:3 a time is needed; got 'noon'"),
        ("about: A story to spoil.", "about: A story.\nwithin_a_run: maybe",
         "story.yaml:3 yes is needed here; got 'maybe'"),
        ("about: A story to spoil.", "about: A story.\nread: {events: {delay: 1 second}}",
         "story.yaml:3 a known name is needed; got delay; write one of schema, time,"),
        ("n=count()", "n=cout()",
         "story.yaml:3 a pipeline that can be built is needed; got name 'cout' is not defined"),
        ("about: A story to spoil.", "about: A story.\nfunctions: def f(visit)",
         "story.yaml:4 a pipeline that can be built is needed; got expected ':'"),
        ('by("k")', 'by("key")', "story.yaml:3 a pipeline that can be built is needed; got "),
        ("n=count()", "n=count(", "story.yaml:3 a pipeline that can be built is needed; got "),
        ("a  2  2", "a  2", "story.yaml:5 the table needs 3 cells in each row; got 2 in line 8"),
        ("a  2  2", "a  2  2  2", "the table needs 3 cells in each row; got 4 in line 8"),
        ("a  2  2", "a  x  2", "story.yaml:5 cells of the columns' types are needed; got line 8"),
        ("a  2  2", "a  2  soon",
         "story.yaml:5 cells of the columns' types are needed; got line 8"),
        ("k  v  ts\n      a  1", "k  w  ts\n      a  1",
         "story.yaml:5 a column that is there is needed; got w; name one of k, v, ts"),
        ("k  v  ts\n      a  1", "k  k  ts\n      a  1",
         "story.yaml:5 a table needs each column once"),
        ("k  window  n\n", "k  window  m\n",
         "story.yaml:13 a column that is there is needed; got m"),
        ("k  window  n\n      a  0..10   2", "k  n\n      a  2",
         "story.yaml:13 a table needs every column of the output; got none for window_start"),
        ("k  window  n\n      a  0..10   2", "k  window  n",
         "story.yaml:13 a table is needed; got 1"),
        ("    panes: |\n      k  window  n\n      a  0..10   2\n", "",
         "story.yaml:10 a step needs to say which panes leave; got no panes"),
        ("    late: |", "    tardy: |", "story.yaml:20 a known name is needed; got tardy"),
        ("k  v  ts  windows", "k  w  ts  windows", "a column that is there is needed; got w"),
        ("  - feed: |\n      k  v  ts\n      a  1",
         "  - clock: noon\n    feed: |\n      k  v  ts\n      a  1",
         "story.yaml:5 a time is needed; got 'noon'"),
        ("  - feed: |\n      k  v  ts\n      a  1",
         "  - dead: few\n    feed: |\n      k  v  ts\n      a  1",
         "story.yaml:5 a number from 0 is needed here; got 'few'"),
        ("  - feed: |\n      k  v  ts\n      a  1",
         "  - facts: {speed: 1}\n    feed: |\n      k  v  ts\n      a  1",
         "story.yaml:5 a known name is needed; got speed"),
        ("  - feed: |\n      k  v  ts\n      a  1",
         "  - watermark: {other: 1}\n    feed: |\n      k  v  ts\n      a  1",
         "story.yaml:5 a known name is needed; got other; write one of events"),
        ("steps:\n", "steps: [\n", "story.yaml:"),
    ],
)  # fmt: skip
def test_a_bad_transcript_is_refused_with_file_and_line(
    tmp_path: Path, old: str, new: str, sentence: str
) -> None:
    with pytest.raises(BadTranscript) as refused:
        transcripts([written(tmp_path, spoiled(old, new))])

    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value).strip()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- 1\n", "story.yaml:1 a mapping is needed here; got a list"),
        (GOOD.partition("steps:")[0] + "steps: []\n", "story.yaml:4 a transcript needs a step"),
        (GOOD.partition("steps:")[0] + "steps: {a: 1}\n", "a list is needed here; got a mapping"),
        (GOOD.partition("steps:")[0], "a transcript needs steps, or to be refused; got neither"),
        (GOOD + "---\n" + GOOD, "a title is needed once; got 'Two rows make two'"),
    ],
)
def test_an_invalid_file_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(BadTranscript) as refused:
        transcripts([written(tmp_path, text)])

    assert sentence in str(refused.value)


def test_the_source_is_named_where_there_are_several(tmp_path: Path) -> None:
    text = spoiled("about: A story to spoil.", "about: A story.\nread: {events: {}, others: {}}")
    with pytest.raises(BadTranscript, match="the source is needed where there are several"):
        transcripts([written(tmp_path, text)])

    text = spoiled("a  3  12\n    panes", "a  3  12\n    panes").replace(
        "  - feed: |\n      k  v  ts\n      a  3  12",
        "  - feed:\n      strange: |\n        k  v  ts\n        a  3  12",
    )
    with pytest.raises(BadTranscript, match="a source of the transcript is needed; got strange"):
        transcripts([written(tmp_path, text)])
