"""Invalid responses of a broker raise errors with topic, partition and offset."""

from __future__ import annotations

import struct
from typing import Any

import google_crc32c
import pytest
from tests.kafka.batch_writing import CODECS, Whole, Written, packed
from tests.kafka.fake_broker import FetchResponse, broker

from millstream.errors import DamagedLog, MillstreamError, Unavailable
from millstream.kafka.settings import Cluster
from millstream.sources.kafka import wire_fetch as topic_wire
from millstream.sources.kafka.wire_fetch import WireFetcher

COLUMNS = ("key", "value", "partition", "offset", "timestamp")
RECORDS = tuple(Written(n, b"value %d" % n, b"key") for n in range(40))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_wire, "_TIMEOUT", 0.5)


def read(response: FetchResponse, **more: Any) -> list[int]:
    """The offsets read from 1000 on."""
    with broker(response, **more) as address:
        fetcher = WireFetcher(Cluster(address), "t")
        try:
            tables = fetcher.read({0: (1000, 1040)}, COLUMNS)
            return [offset for table in tables for offset in table["offset"].to_pylist()]
        finally:
            fetcher.close()


def made(raw: bytes, codec: str = "none", **more: Any) -> bytes:
    """A batch with these bytes as its forty records, and a valid checksum."""
    whole = bytearray(Whole(1000, RECORDS, codec, **more).bytes())
    whole[61:] = packed(raw, codec)
    return summed(whole)


def summed(whole: bytearray) -> bytes:
    whole[8:12] = struct.pack(">i", len(whole) - 12)
    whole[17:21] = struct.pack(">I", google_crc32c.value(bytes(whole[21:])))
    return bytes(whole)


def raw(*records: bytes) -> bytes:
    return b"".join(one.raw() for one in RECORDS[: 40 - len(records)]) + b"".join(records)


def test_an_intact_batch_is_read() -> None:
    assert read(FetchResponse(made(raw()))) == list(range(1000, 1040))


def test_following_stops_before_a_damaged_control_batch() -> None:
    """A control batch is decompressed although its offset is not requested."""
    marker = bytearray(Whole(2000, RECORDS[:1], "gzip").bytes())
    marker[22] = 0x20 | 3  # a control batch with the codec LZ4 and gzip data
    with broker(FetchResponse(made(raw()) + summed(marker))) as address:
        fetcher = WireFetcher(Cluster(address), "t")
        found = fetcher.following({0: 1000}, COLUMNS, least=1, most=1 << 20)
        assert found is not None
        assert found[0] == {0: (1000, 2000)}
        assert found[1]["offset"].to_pylist() == list(range(1000, 1040))
        with pytest.raises(DamagedLog, match="offset 2000"):
            fetcher.following({0: 2000}, COLUMNS, least=1, most=1 << 20)
        fetcher.close()


# The last of forty records, as bytes: its length, attributes, time, offset, key, value, headers.
LAST = {
    "a value longer than its batch": b"\x10\0\0\x4e\x01\xfe\xff\xff\xff\x0f\0",
    "a key longer than its record": b"\x0e\0\0\x4e\x14k\x01\0",
    "a value of less than nothing": b"\x0c\0\0\x4e\x01\x03\0",
    "a key of less than nothing": b"\x0c\0\0\x4e\x07\x01\0",
    "a record of less than nothing": b"\x0b\0\0\x4e\x01\x01\0",
    "a record that is too short": b"\x0a\0\0\x4e\x01\x01",
    "a number that is too long": b"\x18\0\0\xce\x80\x80\x80\x80\x80\x00\x01\x01\0",
    "a number of more than 32 bits": b"\x14\0\0\xce\x80\x80\x80\x10\x01\x01\0",
    "an offset behind its batch's": b"\x0e\0\0\x80\x01\x01\x01\0",
    "an offset below its batch's": b"\x0c\0\0\x01\x01\x01\0",
    "an offset that comes twice": b"\x0c\0\0\x4c\x01\x01\0",
    "more headers than bytes": b"\x0c\0\0\x4e\x01\x01\x14",
    "fewer headers than nothing": b"\x0c\0\0\x4e\x01\x01\x01",
    "a header without a name": b"\x10\0\0\x4e\x01\x01\x02\x01\x01",
    "a header longer than its record": b"\x10\0\0\x4e\x01\x01\x02\x00\x7e",
    "bytes behind the headers": b"\x0e\0\0\x4e\x01\x01\0\0",
    "bytes behind the last record": b"\x0c\0\0\x4e\x01\x01\0garbage",
    "no bytes for it": b"",
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("last", LAST.values(), ids=LAST)
def test_records_that_do_not_fit_their_batch_are_refused_with_its_offset(
    last: bytes, codec: str
) -> None:
    with pytest.raises(DamagedLog, match="t/0 needs an intact record batch at offset 1000; got "):
        read(FetchResponse(made(raw(last), codec)))


def header(place: int, form: str, value: int) -> bytes:
    whole = bytearray(made(raw()))
    struct.pack_into(form, whole, place, value)
    if place >= 21:
        whole[17:21] = struct.pack(">I", google_crc32c.value(bytes(whole[21:])))
    return bytes(whole)


HEADERS = {
    "a size of -12": header(8, ">i", -12),
    "a size of 48": header(8, ">i", 48),
    "a size beyond the answer": header(8, ">i", 2**31 - 1),
    "an unknown format": header(16, ">b", 7),
    "another checksum": header(17, ">I", 7),
    "an unknown codec": header(21, ">h", 6),
    "a last offset before the first": header(23, ">i", -1),
    "two thousand million records": header(57, ">i", 2**31 - 1),
    "fewer records than none": header(57, ">i", -5),
    "no records": header(57, ">i", 0),
    "fewer records": header(57, ">i", 39),
    "offsets before those asked for": header(0, ">q", 900),
    "offsets far behind the log": header(0, ">q", 2**60),
    "offsets below zero": header(0, ">q", -(2**60)),
}


@pytest.mark.parametrize("batch", HEADERS.values(), ids=HEADERS)
def test_an_inconsistent_header_is_refused_with_its_offset(batch: bytes) -> None:
    with pytest.raises(DamagedLog, match=r"t/0 needs an intact record batch at offset (1000|900)"):
        read(FetchResponse(batch))


PACKED = {
    "a stream cut short": lambda codec: packed(raw(), codec)[:-3],
    "garbage behind a stream": lambda codec: packed(raw(), codec) + b"garbage of some length",
    "no stream": lambda codec: b"nothing of the kind" * 9,
    "no bytes": lambda codec: b"",
}


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "none"])
@pytest.mark.parametrize("broken", PACKED.values(), ids=PACKED)
def test_records_that_cannot_be_decompressed_are_refused_with_their_offset(
    broken: Any, codec: str
) -> None:
    whole = bytearray(Whole(1000, RECORDS, codec).bytes())
    whole[61:] = broken(codec)
    with pytest.raises(DamagedLog, match="t/0 needs an intact record batch at offset 1000; got "):
        read(FetchResponse(summed(whole)))


@pytest.mark.parametrize("claim", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\x01"])
def test_snappy_data_that_claims_gigabytes_is_refused_before_memory_is_allocated(
    claim: bytes,
) -> None:
    whole = bytearray(Whole(1000, RECORDS, "snappy").bytes())
    whole[61:] = claim + b"\0x"
    with pytest.raises(DamagedLog, match="offset 1000; got "):
        read(FetchResponse(summed(whole)))


def test_a_record_over_the_size_limit_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from millstream.kafka.protocol import record_batches

    monkeypatch.setattr(record_batches, "MAX_RECORD", 1 << 20)
    monkeypatch.setattr(record_batches, "PIECE", 1 << 18)
    large = (Written(0, b"x" * (1 << 19)), Written(1, b"x" * (1 << 21)))
    with pytest.raises(DamagedLog, match=r"a record of 209\d+ bytes, where at most 1048576 are"):
        read(FetchResponse(Whole(1000, large, "zstd").bytes()))


WRONG = {
    "another partition": FetchResponse(made(raw()), partition=3),
    "another topic": FetchResponse(made(raw()), topic="other"),
    "a partition twice": FetchResponse(made(raw()), twice=True),
}


@pytest.mark.parametrize("response", WRONG.values(), ids=WRONG)
def test_a_response_for_another_partition_is_refused_and_names_the_request(
    response: FetchResponse,
) -> None:
    with pytest.raises(Unavailable, match=r"'t'.* about .* \(partition 0 at offset 1000\)"):
        read(response)


ABSURD = {
    "more bytes than there are": FetchResponse(made(raw()), records_size=1 << 30),
    "aborted transactions without end": FetchResponse(made(raw()), aborted=2**31 - 1),
    "fewer bytes than there are": FetchResponse(made(raw()), records_size=70),
}


@pytest.mark.parametrize("response", ABSURD.values(), ids=ABSURD)
def test_an_inconsistent_response_raises_a_millstream_error(response: FetchResponse) -> None:
    with pytest.raises(MillstreamError, match="t"):
        read(response)


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 1 << 20), ("127.0.0.1", -1),
                                            ("x" * 300, 9092)])  # fmt: skip
def test_a_leader_with_an_invalid_address_is_unavailable(host: str, port: int) -> None:
    with pytest.raises(Unavailable, match="a broker at"):
        read(FetchResponse(made(raw())), host=host, port=port)


def test_a_batch_that_the_broker_reports_as_corrupt_is_damaged() -> None:
    with pytest.raises(DamagedLog, match="t/0 needs an intact record batch at offset 1000"):
        read(FetchResponse(b"", error=2))


def test_timestamps_beyond_the_range_of_microseconds_are_clamped() -> None:
    late = Whole(1000, (Written(0, b"x"),) * 1, first_stamp=2**62).bytes()
    with broker(FetchResponse(late)) as address:
        fetcher = WireFetcher(Cluster(address), "t")
        [table] = fetcher.read({0: (1000, 1001)}, COLUMNS)
        fetcher.close()

    assert table["timestamp"].cast("int64").to_pylist() == [(2**63 // 1000 - 1) * 1000]
