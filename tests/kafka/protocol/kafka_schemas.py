"""Kafka's messages as classes of kio, generated from the schemas in Kafka's source."""

from __future__ import annotations

import dataclasses
import datetime
import io
import types
import typing
from typing import Any

from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map
from kio.serial import entity_writer
from kio.static.primitive import Interval

if typing.TYPE_CHECKING:
    from collections.abc import Mapping

Api = tuple[int, int, bool]
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)


def name_of(api: Api) -> str:
    """The name of an API at a version, in the form `ADD_PARTITIONS_TO_TXN_V1`."""
    key, version, _ = api
    return f"{api_key_map[key].upper()}_V{version}"


def is_flexible(api: Api) -> bool:
    key, version, _ = api
    return load_request_schema(key, version).__flexible__


def request(api: Api, correlation_id: int, client_id: str, values: Mapping[str, Any]) -> bytes:
    """A request with its size and header."""
    key, version, _ = api
    schema: Any = load_request_schema(key, version)
    header = schema.__header_schema__(
        request_api_key=key, request_api_version=version, correlation_id=correlation_id,
        client_id=client_id,
    )  # fmt: skip
    written = _encode(header) + _encode(_entity(schema, values))
    return len(written).to_bytes(4, "big") + written


def response(entity: Any, correlation_id: int) -> bytes:
    """A response with its header, without its size."""
    return _encode(entity.__header_schema__(correlation_id=correlation_id)) + _encode(entity)


def responses(api: Api) -> st.SearchStrategy[Any]:
    """All responses of an API."""
    key, version, _ = api
    return _entities(load_response_schema(key, version))


def _encode(entity: Any) -> bytes:
    buffer = io.BytesIO()
    write: Any = entity_writer(type(entity))
    write(buffer, entity)
    return buffer.getvalue()


def _entity(schema: Any, values: Mapping[str, Any]) -> Any:
    """An entity from plain values: nested mappings, and milliseconds as numbers."""
    hints = typing.get_type_hints(schema)
    return schema(**{name: _value(hints[name], value) for name, value in values.items()})


def _value(hint: Any, value: Any) -> Any:
    hint = _not_null(hint)
    if value is None:
        return None
    if typing.get_origin(hint) is tuple:
        return tuple(_value(typing.get_args(hint)[0], item) for item in value)
    if dataclasses.is_dataclass(hint):
        return _entity(hint, value)
    return datetime.timedelta(milliseconds=value) if _is(hint, datetime.timedelta) else value


def _entities(schema: Any) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(schema)
    names = [field.name for field in dataclasses.fields(schema)]
    return st.builds(schema, **{name: _values(hints[name]) for name in names})


def _values(hint: Any) -> st.SearchStrategy[Any]:  # noqa: PLR0911
    if _not_null(hint) is not hint:
        return st.none() | _values(_not_null(hint))
    if typing.get_origin(hint) is tuple:
        return st.lists(_values(typing.get_args(hint)[0]), max_size=3).map(tuple)
    if dataclasses.is_dataclass(hint):
        return _entities(hint)
    if hint is ErrorCode:
        return st.just(ErrorCode.none) | st.sampled_from(ErrorCode)
    if hint is bool:
        return st.booleans()
    if _is(hint, Interval):
        return st.integers(hint.__low__, hint.__high__)
    if _is(hint, str):
        return TEXT
    if _is(hint, bytes):
        return st.binary(max_size=20)
    if _is(hint, datetime.timedelta):
        return INT32.map(lambda milliseconds: datetime.timedelta(milliseconds=milliseconds))
    assert _is(hint, datetime.datetime)
    seconds = st.integers(0, 1 << 32)
    return seconds.map(lambda at: datetime.datetime.fromtimestamp(at, datetime.UTC))


def _is(hint: Any, kind: type) -> bool:
    return kind in hint.__mro__


def _not_null(hint: Any) -> Any:
    """`X` of `X | None`."""
    if not isinstance(hint, types.UnionType) and typing.get_origin(hint) is not typing.Union:
        return hint
    [kind] = [kind for kind in typing.get_args(hint) if kind is not type(None)]
    return kind
