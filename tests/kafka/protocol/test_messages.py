"""Every request and response, compared byte for byte with kio, generated from Kafka's schemas."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kafka.protocol import kafka_schemas as kafka

from millstream.errors import MillstreamError
from millstream.kafka.protocol import cluster, fetch, metadata, transactions
from millstream.kafka.protocol.cluster import (
    ALTER_PARTITION_REASSIGNMENTS_V0,
    DESCRIBE_LOG_DIRS_V1,
    DESCRIBE_QUORUM_V0,
    ELECT_LEADERS_V2,
    LIST_PARTITION_REASSIGNMENTS_V0,
    UNREGISTER_BROKER_V0,
    Quorum,
    Reassignment,
)
from millstream.kafka.protocol.fetch import FETCH_V11, FetchedPartition
from millstream.kafka.protocol.messages import CLIENT_ID, Api, ProtocolError, Request
from millstream.kafka.protocol.metadata import (
    FIND_COORDINATOR_V2,
    METADATA_V5,
    Metadata,
    TopicMetadata,
)
from millstream.kafka.protocol.transactions import (
    ADD_OFFSETS_TO_TXN_V1,
    ADD_PARTITIONS_TO_TXN_V1,
    DESCRIBE_TRANSACTIONS_V0,
    END_TXN_V1,
    INIT_PRODUCER_ID_V1,
    PRODUCE_V7,
    TXN_OFFSET_COMMIT_V2,
    GroupOffset,
    Identity,
)

if TYPE_CHECKING:
    from collections.abc import Callable

APIS = {
    name: value
    for module in (cluster, fetch, metadata, transactions)
    for name, value in vars(module).items()
    if isinstance(value, Api)
}

INT8, INT16, INT64 = (st.integers(-(1 << bits), (1 << bits) - 1) for bits in (7, 15, 63))
INT32, TEXT = kafka.INT32, kafka.TEXT
OFFSETS = st.lists(st.tuples(INT32, INT64), max_size=3)
SLOTS = st.tuples(TEXT, INT32)
IDENTITIES = st.builds(Identity, TEXT, INT64, INT16)
NODES = st.none() | st.lists(INT32, max_size=3)

Expected = tuple[Request, dict[str, Any]]


def _by_topic(slots: list[tuple[str, int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in slots:
        found.setdefault(topic, []).append(partition)
    return found


def _of(who: Identity) -> dict[str, Any]:
    return {"transactional_id": who.transactional_id, "producer_id": who.producer_id,
            "producer_epoch": who.epoch}  # fmt: skip


def _metadata(topics: list[str]) -> Expected:
    return metadata.metadata_request(*topics), {
        "topics": [{"name": topic} for topic in topics], "allow_auto_topic_creation": False,
    }  # fmt: skip


def _find_coordinator(key_type: int, key: str) -> Expected:
    return (metadata.find_coordinator_request(key_type, key),
            {"key": key, "key_type": key_type})  # fmt: skip


def _fetch(
    topic: str, offsets: list[tuple[int, int]], most: int, wait: int, least: int
) -> Expected:
    request = fetch.fetch_request(topic, offsets, max_bytes=most, max_wait_ms=wait, min_bytes=least)
    partitions = [
        {"partition": partition, "fetch_offset": offset, "partition_max_bytes": most}
        for partition, offset in offsets
    ]
    return request, {
        "max_wait": wait, "min_bytes": least, "max_bytes": 32 << 20, "isolation_level": 1,
        "topics": [{"topic": topic, "partitions": partitions}], "forgotten_topics_data": [],
    }  # fmt: skip


def _produce(
    name: str | None, topic: str, partition: int, records: bytes, timeout: int
) -> Expected:
    who = Identity(name, 1, 2)
    partitions = [{"index": partition, "records": records}]
    return transactions.produce_request(who, topic, partition, records, timeout), {
        "transactional_id": name, "acks": -1, "timeout": timeout,
        "topic_data": [{"name": topic, "partition_data": partitions}],
    }  # fmt: skip


def _init_producer_id(name: str | None, timeout: int) -> Expected:
    return (transactions.init_producer_id_request(name, timeout),
            {"transactional_id": name, "transaction_timeout": timeout})  # fmt: skip


def _add_partitions(who: Identity, topic: str, partitions: list[int]) -> Expected:
    return (transactions.add_partitions_to_txn_request(who, topic, partitions),
            {f"v3_and_below_{name}": value for name, value in _of(who).items()}
            | {"v3_and_below_topics": [{"name": topic, "partitions": partitions}]})  # fmt: skip


def _add_offsets(who: Identity, group: str) -> Expected:
    request = transactions.add_offsets_to_txn_request(who, group)
    return request, {**_of(who), "group_id": group}


def _end_txn(who: Identity) -> Expected:
    return transactions.end_txn_request(who), {**_of(who), "committed": True}


def _commit_offset(who: Identity, offset: GroupOffset) -> Expected:
    partition = {"partition_index": 0, "committed_offset": offset.offset,
                 "committed_metadata": offset.metadata}  # fmt: skip
    return transactions.txn_offset_commit_request(who, offset), {
        **_of(who), "group_id": offset.group,
        "topics": [{"name": offset.topic, "partitions": [partition]}],
    }  # fmt: skip


def _describe_transactions(name: str) -> Expected:
    return transactions.describe_transactions_request(name), {"transactional_ids": [name]}


def _describe_log_dirs(topic: str, partitions: list[int]) -> Expected:
    return (cluster.describe_log_dirs_request(topic, partitions),
            {"topics": [{"topic": topic, "partitions": partitions}]})  # fmt: skip


def _elect(slots: list[tuple[str, int]]) -> Expected:
    topics = [{"topic": topic, "partitions": led} for topic, led in _by_topic(slots).items()]
    return (cluster.elect_leaders_request(slots),
            {"election_type": 0, "topic_partitions": topics, "timeout": 10_000})  # fmt: skip


def _reassign(to: dict[tuple[str, int], list[int] | None]) -> Expected:
    topics = [
        {"name": topic, "partitions": [{"partition_index": partition,
                                        "replicas": to[topic, partition]}
                                       for partition in partitions]}
        for topic, partitions in _by_topic([*to]).items()
    ]  # fmt: skip
    return cluster.alter_reassignments_request(to), {"timeout": 10_000, "topics": topics}


def _list_reassignments() -> Expected:
    return cluster.list_reassignments_request(), {"timeout": 10_000, "topics": None}


def _describe_quorum() -> Expected:
    partitions = [{"partition_index": 0}]
    topics = [{"topic_name": "__cluster_metadata", "partitions": partitions}]
    return cluster.describe_quorum_request(), {"topics": topics}


def _unregister(node: int) -> Expected:
    return cluster.unregister_broker_request(node), {"broker_id": node}


REQUESTS: dict[Api, st.SearchStrategy[Expected]] = {
    METADATA_V5: st.builds(_metadata, st.lists(TEXT, max_size=3)),
    FIND_COORDINATOR_V2: st.builds(_find_coordinator, INT8, TEXT),
    FETCH_V11: st.builds(_fetch, TEXT, OFFSETS, INT32, INT32, INT32),
    PRODUCE_V7: st.builds(_produce, st.none() | TEXT, TEXT, INT32, st.binary(), INT32),
    INIT_PRODUCER_ID_V1: st.builds(_init_producer_id, st.none() | TEXT, INT32),
    ADD_PARTITIONS_TO_TXN_V1: st.builds(_add_partitions, IDENTITIES, TEXT, st.lists(INT32)),
    ADD_OFFSETS_TO_TXN_V1: st.builds(_add_offsets, IDENTITIES, TEXT),
    TXN_OFFSET_COMMIT_V2: st.builds(
        _commit_offset, IDENTITIES, st.builds(GroupOffset, TEXT, TEXT, INT64, TEXT)
    ),
    END_TXN_V1: st.builds(_end_txn, IDENTITIES),
    DESCRIBE_TRANSACTIONS_V0: st.builds(_describe_transactions, TEXT | st.just("x" * 300)),
    DESCRIBE_LOG_DIRS_V1: st.builds(_describe_log_dirs, TEXT, st.lists(INT32)),
    ELECT_LEADERS_V2: st.builds(_elect, st.lists(SLOTS, unique=True)),
    ALTER_PARTITION_REASSIGNMENTS_V0: st.builds(_reassign, st.dictionaries(SLOTS, NODES)),
    LIST_PARTITION_REASSIGNMENTS_V0: st.builds(_list_reassignments),
    DESCRIBE_QUORUM_V0: st.builds(_describe_quorum),
    UNREGISTER_BROKER_V0: st.builds(_unregister, INT32),
}


class Response(NamedTuple):
    """A parser, and the result expected from Kafka's message."""

    parse: Callable[[memoryview], Any]
    expected: Callable[[Any], Any]
    errors: Callable[[Any], list[int]] = lambda _: []
    """Error codes; the parser raises for any but 0."""
    prepare: Callable[[Any], Any] = lambda response: response
    """Makes a random response match the request."""


def _metadata_of(found: Any) -> Metadata:
    return Metadata(
        {broker.node_id: (broker.host, broker.port) for broker in found.brokers},
        found.cluster_id or "",
        tuple(
            TopicMetadata(topic.error_code, topic.name,
                          {part.partition_index: part.leader_id for part in topic.partitions})
            for topic in found.topics
        ),
    )  # fmt: skip


PARTITIONS = range(4)


def _of_one_topic(found: Any) -> Any:
    """A response to a fetch of the topic `t`, with each of its partitions once."""
    parts = [part for topic in found.responses for part in topic.partitions]
    numbered = tuple(
        dataclasses.replace(part, partition_index=number)
        for number, part in zip(PARTITIONS, parts, strict=False)
    )
    topics = [dataclasses.replace(topic, topic="t", partitions=numbered)
              for topic in found.responses[:1]]  # fmt: skip
    return dataclasses.replace(found, responses=tuple(topics))


def _fetched(found: Any) -> list[FetchedPartition]:
    return [
        FetchedPartition(
            part.partition_index, part.error_code, part.high_watermark, part.last_stable_offset,
            [(gone.producer_id, gone.first_offset) for gone in part.aborted_transactions or ()],
            memoryview(part.records or b""),
        )
        for topic in found.responses
        for part in topic.partitions
    ]  # fmt: skip


def _first_error(topics: str, partitions: str, error: str) -> Callable[[Any], int]:
    def first(found: Any) -> int:
        codes = [getattr(part, error) for topic in getattr(found, topics)
                 for part in getattr(topic, partitions)]  # fmt: skip
        return next((int(code) for code in codes if code), 0)

    return first


def _one_transaction(found: Any) -> Any:
    return dataclasses.replace(found, transaction_states=found.transaction_states[:1])


def _transaction(found: Any) -> tuple[int, str]:
    [state] = found.transaction_states
    return state.error_code, state.transaction_state


def _sizes(found: Any) -> dict[int, int]:
    return {
        part.partition_index: part.partition_size
        for directory in found.results
        for topic in directory.topics
        for part in topic.partitions
        if not directory.error_code and not part.is_future_key
    }


def _reassignments(found: Any) -> dict[tuple[str, int], Reassignment]:
    return {
        (topic.name, part.partition_index):
            Reassignment(part.replicas, part.adding_replicas, part.removing_replicas)
        for topic in found.topics
        for part in topic.partitions
    }  # fmt: skip


def _quorum(found: Any) -> Quorum:
    [topic] = found.topics
    [part] = topic.partitions
    voters, observers = (
        {state.replica_id: state.log_end_offset for state in states}
        for states in (part.current_voters, part.observers)
    )
    return Quorum(part.leader_id, part.leader_epoch, voters, observers)


def _one_quorum(found: Any) -> Any:
    return dataclasses.replace(found, topics=tuple(
        dataclasses.replace(topic, partitions=topic.partitions[:1]) for topic in found.topics[:1]
    ))  # fmt: skip


def _has_one(found: Any) -> bool:
    return len(found.topics) == 1 and len(found.topics[0].partitions) == 1


def _error(found: Any) -> list[int]:
    return [found.error_code]


RESPONSES: dict[Api, Response] = {
    METADATA_V5: Response(metadata.parse_metadata_response, _metadata_of),
    FIND_COORDINATOR_V2: Response(
        metadata.parse_find_coordinator_response,
        lambda found: (found.error_code, (found.host, found.port)),
    ),
    FETCH_V11: Response(
        lambda response: fetch.parse_fetch_response(response, "t", PARTITIONS),
        _fetched, _error, _of_one_topic,
    ),
    PRODUCE_V7: Response(
        transactions.parse_produce_response,
        _first_error("responses", "partition_responses", "error_code"),
    ),
    INIT_PRODUCER_ID_V1: Response(
        lambda response: transactions.parse_init_producer_id_response(response, "me"),
        lambda found: (found.error_code, Identity("me", found.producer_id, found.producer_epoch)),
    ),
    ADD_PARTITIONS_TO_TXN_V1: Response(
        transactions.parse_add_partitions_to_txn_response,
        _first_error("results_by_topic_v3_and_below", "results_by_partition",
                     "partition_error_code"),
    ),
    ADD_OFFSETS_TO_TXN_V1: Response(
        transactions.parse_add_offsets_to_txn_response, lambda found: found.error_code
    ),
    TXN_OFFSET_COMMIT_V2: Response(
        transactions.parse_txn_offset_commit_response,
        _first_error("topics", "partitions", "error_code"),
    ),
    END_TXN_V1: Response(transactions.parse_end_txn_response, lambda found: found.error_code),
    DESCRIBE_TRANSACTIONS_V0: Response(
        transactions.parse_describe_transactions_response, _transaction,
        lambda found: [1 - len(found.transaction_states)], _one_transaction,
    ),
    ELECT_LEADERS_V2: Response(cluster.parse_elect_leaders_response, lambda _: None, _error),
    ALTER_PARTITION_REASSIGNMENTS_V0: Response(
        cluster.parse_alter_reassignments_response, lambda _: None,
        lambda found: [found.error_code, *(part.error_code for topic in found.responses
                                           for part in topic.partitions
                                           if part.error_code != cluster._NO_REASSIGNMENT)],
    ),
    LIST_PARTITION_REASSIGNMENTS_V0: Response(
        cluster.parse_list_reassignments_response, _reassignments, _error
    ),
    DESCRIBE_QUORUM_V0: Response(
        cluster.parse_describe_quorum_response, _quorum,
        lambda found: [found.error_code, not _has_one(found),
                       *(part.error_code for topic in found.topics for part in topic.partitions)],
        _one_quorum,
    ),
    UNREGISTER_BROKER_V0: Response(
        cluster.parse_unregister_broker_response, lambda _: None, _error
    ),
}  # fmt: skip


def test_each_api_has_its_name_in_kafka() -> None:
    assert {name: kafka.name_of(api) for name, api in APIS.items()} == {name: name for name in APIS}
    assert {api: kafka.is_flexible(api) for api in APIS.values()} == {
        api: api.flexible for api in APIS.values()
    }
    assert REQUESTS.keys() == RESPONSES.keys() | {DESCRIBE_LOG_DIRS_V1} == {*APIS.values()}


@pytest.mark.parametrize("api", REQUESTS, ids=kafka.name_of)
@given(data=st.data(), correlation_id=INT32)
def test_a_request_matches_the_schema(api: Api, data: st.DataObject, correlation_id: int) -> None:
    request, values = data.draw(REQUESTS[api])

    assert request.api == api
    assert request.encode(correlation_id) == kafka.request(api, correlation_id, CLIENT_ID, values)


@pytest.mark.parametrize("api", RESPONSES, ids=kafka.name_of)
@given(data=st.data(), tagged=st.booleans())
def test_a_response_is_parsed(api: Api, data: st.DataObject, tagged: bool) -> None:
    case = RESPONSES[api]
    found = case.prepare(data.draw(kafka.responses(api)))
    encoded = kafka.response(found, 7)[4:]
    if tagged and api.flexible:
        encoded = b"\x02\x05\x02ab\x06\x00" + encoded[1:]  # two tagged fields of the header

    if any(case.errors(found)):
        with pytest.raises((MillstreamError, ProtocolError)):
            case.parse(memoryview(encoded))
    else:
        assert case.parse(memoryview(encoded)) == case.expected(found)


@given(data=st.data())
def test_sizes_of_logs_are_parsed(data: st.DataObject) -> None:
    found = data.draw(kafka.responses(DESCRIBE_LOG_DIRS_V1))
    encoded, sizes = memoryview(kafka.response(found, 7)[4:]), _sizes(found)

    assert cluster.parse_describe_log_dirs_response(encoded, [*sizes, 1]) == sizes
    if sizes:
        with pytest.raises(ProtocolError, match="not requested"):
            cluster.parse_describe_log_dirs_response(encoded, [*sizes][1:])


@pytest.mark.parametrize("api", RESPONSES, ids=kafka.name_of)
@given(data=st.data())
def test_a_truncated_or_changed_response_raises_only_protocol_errors(
    api: Api, data: st.DataObject
) -> None:
    """Lengths and counts are checked: there is no other error, and no endless loop."""
    case = RESPONSES[api]
    encoded = bytearray(kafka.response(case.prepare(data.draw(kafka.responses(api))), 7)[4:])
    size = data.draw(st.integers(0, len(encoded)))
    del encoded[size:]
    if encoded:
        encoded[data.draw(st.integers(0, size - 1))] = data.draw(st.integers(0, 255))

    try:
        case.parse(memoryview(bytes(encoded)))
    except (MillstreamError, ProtocolError):
        return
