"""The page is built once per version of its sources; then neither Node nor a network is needed."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def hook() -> ModuleType:
    """The build hook as a module."""
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sources of the page in a separate repository, on a machine without Node."""
    ignored = shutil.ignore_patterns("node_modules", "dist")
    shutil.copytree(ROOT / "web", tmp_path / "web", ignore=ignored)
    monkeypatch.setenv("MILLSTREAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def cached(hook: Any, tree: Path) -> Path:
    """A page that was built earlier from these sources."""
    folder: Path = tree / "cache" / "page" / hook.source_hash(tree / "web")
    folder.mkdir(parents=True)
    (folder / "index.html").write_text("the page")
    (folder / "sources.txt").write_text(folder.name)
    return folder


def test_a_page_built_before_is_taken_from_the_cache(hook: Any, tree: Path) -> None:
    cached(hook, tree)
    page = hook.build(tree)
    assert (page / "index.html").read_text() == "the page"


def test_an_existing_page_is_left_unchanged(hook: Any, tree: Path) -> None:
    cached(hook, tree)
    page = hook.build(tree)
    shutil.rmtree(tree / "cache")
    (page / "index.html").write_text("as it is")
    assert (hook.build(tree) / "index.html").read_text() == "as it is"


def test_a_changed_source_gives_another_page_and_generated_folders_are_not_sources(
    hook: Any, tree: Path
) -> None:
    before = hook.source_hash(tree / "web")
    (tree / "web" / "node_modules").mkdir()
    (tree / "web" / "node_modules" / "x.js").write_text("")
    assert hook.source_hash(tree / "web") == before
    (tree / "web" / "src" / "main.tsx").write_text("")
    assert hook.source_hash(tree / "web") != before


def test_a_machine_without_node_gets_one_sentence(
    hook: Any, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="the page needs Node 20 or newer"):
        hook.build(tree)
    assert not (tree / hook.PAGE).exists()


def test_the_lock_file_names_no_registry_and_has_a_hash_for_every_package() -> None:
    lock = json.loads((ROOT / "web" / "package-lock.json").read_text())
    packages = {name: entry for name, entry in lock["packages"].items() if name}
    assert len(packages) > 20
    for name, entry in packages.items():
        assert "resolved" not in entry, name
        assert entry["integrity"].startswith("sha512-"), name
