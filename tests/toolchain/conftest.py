"""A local registry: the real jars, served from this machine, so no network is needed."""

from __future__ import annotations

import re
import xml.etree.ElementTree as Xml
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from millstream.toolchain.jars import CONFS, WANTED, every_jar

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Coordinates = tuple[str, str, str]


@dataclass(frozen=True)
class Registry:
    """A folder with the layout of a Maven registry; tests may damage its jars."""

    folder: Path

    def settings(self, file: Path, root: str | None = None) -> Path:
        """An `ivysettings.xml` with only this registry."""
        file.write_text(
            '<ivysettings><settings defaultResolver="own"/><resolvers>'
            f'<ibiblio name="own" m2compatible="true" root="{root or self.folder.as_uri()}"/>'
            "</resolvers></ivysettings>"
        )
        return file

    def jar(self, name: str) -> Path:
        [found] = self.folder.rglob(name)
        return found

    def add(self, module: Coordinates, jar: Path, needs: Iterable[Coordinates] = ()) -> None:
        organisation, artifact, version = module
        folder = self.folder.joinpath(*organisation.split("."), artifact, version)
        folder.mkdir(parents=True)
        (folder / f"{artifact}-{version}.jar").symlink_to(jar)
        dependencies = "".join(
            f"<dependency><groupId>{g}</groupId><artifactId>{a}</artifactId>"
            f"<version>{v}</version></dependency>"
            for g, a, v in needs
        )
        (folder / f"{artifact}-{version}.pom").write_text(
            "<project><modelVersion>4.0.0</modelVersion>"
            f"<groupId>{organisation}</groupId><artifactId>{artifact}</artifactId>"
            f"<version>{version}</version><dependencies>{dependencies}</dependencies></project>"
        )


def registry_in(folder: Path) -> Registry:
    """The modules in `jars.xml`; all other jars are dependencies of Kafka's broker."""
    registry = Registry(folder)
    jars = {jar.name: jar for paths in every_jar(CONFS).values() for jar in paths}
    named: list[Coordinates] = [
        (module.attrib["org"], module.attrib["name"], module.attrib["rev"])
        for module in Xml.parse(WANTED).iter("dependency")
    ]
    known = {f"{artifact}-{version}.jar" for _, artifact, version in named}
    below: list[Coordinates] = []
    for name in sorted(set(jars) - known):
        parts = re.fullmatch(r"(.+?)-(\d.*)\.jar", name)
        assert parts is not None
        below.append(("below.kafka", parts.group(1), parts.group(2)))
        registry.add(below[-1], jars[name])
    for module in named:
        needs = below if module[1] == "kafka_2.13" else []
        registry.add(module, jars[f"{module[1]}-{module[2]}.jar"], needs)
    return registry


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return registry_in(tmp_path / "registry")


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registry: Registry) -> Path:
    """An empty cache folder, to be filled from the local registry."""
    settings = registry.settings(tmp_path / "ivysettings.xml")
    monkeypatch.setenv("MILLSTREAM_IVY_SETTINGS", str(settings))
    monkeypatch.setenv("MILLSTREAM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
