"""Which Kafka cluster to use: an address, and the client settings it needs.

The address is the one given, else `MILLSTREAM_KAFKA`, else the running local broker.
Settings come from a file named by `MILLSTREAM_KAFKA_SETTINGS` (`name=value` lines) and from
variables such as `MILLSTREAM_KAFKA_SASL_PASSWORD`, which take precedence.
Only the names in `ALLOWED` are accepted: none of them can load a library, run a command or
turn off the verification of certificates.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from millstream.errors import InvalidInput, InvalidSpec, Unavailable
from millstream.kafka import secrets

ALLOWED = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "sasl.kerberos.service.name",
        "sasl.kerberos.principal",
        "sasl.kerberos.keytab",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.token.endpoint.url",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
        "ssl.key.password",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.crl.location",
        "ssl.cipher.suites",
        "ssl.curves.list",
        "ssl.sigalgs.list",
        "ssl.endpoint.identification.algorithm",
    }
)

_PREFIX = "MILLSTREAM_KAFKA_"
_FILE = "MILLSTREAM_KAFKA_SETTINGS"
_BY_VARIABLE = {_PREFIX + name.replace(".", "_").upper(): name for name in ALLOWED}
_INSTEAD = {
    "sasl.jaas.config": "give sasl.mechanism, sasl.username and sasl.password",
    "ssl.truststore.location": "give ssl.ca.location, a PEM file",
    "ssl.keystore.key": "give ssl.key.pem or ssl.key.location",
    "enable.ssl.certificate.verification": "give the cluster's own authority by ssl.ca.location",
}
_SERVER = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})")

_DEFAULTS = {
    "client.id": "millstream",
    "reconnect.backoff.max.ms": "1000",
    "log.connection.close": "false",
    "enable.metrics.push": "false",
}


class Settings(Mapping[str, str]):
    """Allow-listed client settings; printing them shows no secret.

    >>> Settings({"sasl.username": "ada", "sasl.password": "hunter2"})
    Settings({'sasl.password': '***', 'sasl.username': 'ada'})
    """

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = {name: _checked(name, value) for name, value in (values or {}).items()}

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        shown = {name: secrets.masked(name, self._values[name]) for name in sorted(self._values)}
        return f"Settings({shown})"


class ClientConfig(dict[str, str]):
    """The configuration of a Kafka client: with its secrets, so it prints masked."""

    def __init__(self, values: Mapping[str, str], hidden: tuple[str, ...]) -> None:
        super().__init__(values)
        self.hidden = hidden

    def __repr__(self) -> str:
        shown = {
            name: secrets.MASK if value in self.hidden else secrets.masked(name, value)
            for name, value in self.items()
        }
        return f"ClientConfig({shown})"

    __str__ = __repr__


@dataclass(frozen=True)
class Cluster:
    """One Kafka: `host:port` (or several, comma-separated) and client settings.

    >>> Cluster("127.0.0.1:9092")
    Cluster(address='127.0.0.1:9092', settings=Settings({}))
    """

    address: str
    settings: Mapping[str, str] = field(default_factory=Settings)

    def __post_init__(self) -> None:
        _check_address(self.address)
        if not isinstance(self.settings, Settings):
            object.__setattr__(self, "settings", Settings(self.settings))

    @classmethod
    def resolve(cls, kafka: str | Cluster | None = None) -> Cluster:
        """The given cluster, else `MILLSTREAM_KAFKA`, else the local broker.

        Raises:
            InvalidInput: the address is not a `host:port`.
            InvalidSpec: a setting from the environment or the file is invalid.
            Unavailable: none is named and no local broker is running.
        """
        if isinstance(kafka, Cluster):
            return kafka
        address = kafka if kafka is not None else os.environ.get("MILLSTREAM_KAFKA") or None
        if address is not None:
            return cls(address, outside_settings())
        from millstream.kafka.local.running import running_address

        local = running_address()
        if local is None:
            raise Unavailable(
                "this needs a Kafka broker",
                got="none named and no local one running",
                do="start one with `millstream up`, or name one with --kafka or MILLSTREAM_KAFKA",
            )
        return cls(local)

    def client(self, **extra: str) -> ClientConfig:
        """The configuration of a Kafka client, with references to secrets resolved."""
        resolved = {
            name: secrets.resolve(value, setting=f"the Kafka setting {name}")
            for name, value in self.settings.items()
        }
        hidden = tuple(
            value
            for name, value in resolved.items()
            if secrets.is_secret(name, self.settings[name])
        )
        named = {"bootstrap.servers": self.address, **_DEFAULTS}
        return ClientConfig({**named, **resolved, **extra}, hidden)

    def ping(self, timeout: float = 4.0) -> None:
        """Return if the cluster answers.

        Raises:
            Unavailable: it does not, within `timeout` seconds; at once if it refuses.
        """
        from millstream.kafka.librdkafka import Link

        Link(self).ping(timeout)


def outside_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """The client settings from the environment: those of the file, overridden by variables."""
    variables = os.environ if environment is None else environment
    values = dict(_from_file(Path(variables[_FILE]))) if variables.get(_FILE) else {}
    for variable, value in variables.items():
        if not variable.startswith(_PREFIX) or variable == _FILE:
            continue
        name = _BY_VARIABLE.get(variable)
        if name is None:
            near = difflib.get_close_matches(variable, _BY_VARIABLE, n=1)
            raise InvalidSpec(
                f"a variable beginning with {_PREFIX} needs to name an allowed setting",
                got=variable,
                do=f"did you mean {near[0]}?" if near else _all_allowed(),
            )
        values[name] = value
    return Settings(values)


def _from_file(path: Path) -> Iterator[tuple[str, str]]:
    try:
        lines = path.expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
        raise InvalidSpec(
            f"{_FILE} needs a file of name=value lines", got=f"{path}: {reason}", do="fix the path"
        ) from None
    seen: set[str] = set()
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = (part.strip() for part in line.partition("="))
        if not equals or not name or name in seen:
            raise InvalidSpec(
                f"{path} needs one name=value on each line",
                got=f"line {number}" + (f", {name} a second time" if name in seen else ""),
                do="correct that line",
            )
        seen.add(name)
        yield name, value


def _checked(name: str, value: object) -> str:
    if name not in ALLOWED:
        near = difflib.get_close_matches(name, ALLOWED, n=1)
        raise InvalidSpec(
            "a Kafka client setting needs an allowed name",
            got=repr(name),
            do=_INSTEAD.get(name) or (f"did you mean {near[0]}?" if near else _all_allowed()),
        )
    if not isinstance(value, str):
        raise InvalidSpec(
            f"the Kafka setting {name} needs text",
            got=f"a value of type {type(value).__name__}",
            do="write it as text",
        )
    return value


def _all_allowed() -> str:
    return "the allowed ones are " + ", ".join(sorted(ALLOWED))


def _check_address(address: object) -> None:
    if isinstance(address, str):
        servers = [_SERVER.fullmatch(server.strip()) for server in address.split(",")]
        if all(server and 0 < int(server.group(1)) < 65_536 for server in servers):
            return
        address = secrets.MASK + address[address.rfind("@") :] if "@" in address else address
    raise InvalidInput(
        "a Kafka address needs host:port, or several with commas between",
        got=repr(address),
        do="write for instance 127.0.0.1:9092",
    )
