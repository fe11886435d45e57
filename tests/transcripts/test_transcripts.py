"""Every transcript happens as it is written, in both lanes; a wrong or bad one is found.

All are played in the narrow lane, as they are and from the checkpoint alone before every batch;
every fifth, picked by its title, in the wide lane too.
"""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest
from tests.transcripts.playing import play
from tests.transcripts.reading import Transcript, transcripts

from millstream.errors import MillstreamError

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

ALL = transcripts(sorted(Path(__file__).parent.glob("*.yaml")))
PLAYED = [one for one in ALL if one.refusal is None]
REFUSED = [one for one in ALL if one.refusal is not None]
AGAIN = [one for one in PLAYED if not one.within_a_run]
WIDE = [one for one in PLAYED if crc32(one.title.encode()) % 5 == 0]


@pytest.mark.parametrize("transcript", PLAYED, ids=lambda one: one.name)
def test_it_plays_as_written(transcript: Transcript) -> None:
    play(transcript)


@pytest.mark.parametrize("transcript", AGAIN, ids=lambda one: one.name)
def test_it_plays_with_a_restart_before_every_batch(transcript: Transcript) -> None:
    play(transcript, restarts=True)


@pytest.mark.parametrize("transcript", WIDE, ids=lambda one: one.name)
def test_it_plays_in_the_wide_lane(transcript: Transcript) -> None:
    play(transcript, lane="wide")


@pytest.mark.parametrize("transcript", REFUSED, ids=lambda one: one.name)
def test_it_is_refused_while_building(transcript: Transcript) -> None:
    with pytest.raises(MillstreamError) as refused:
        transcript.build()

    assert str(refused.value).startswith(transcript.refusal or "?")
