"""Tests for a pool's package indexes with real pip and real indexes on loopback."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest

from pools.environments.local import InstallStatus, LocalEnvironments, Recipe
from pools.plugins import Image, Index
from tests.pools.environments.test_local_environments import ended, python, recipe, wheel

pytestmark = pytest.mark.heavy  # real virtual environments, built by pip

VERSIONS = "from importlib.metadata import version; print(*map(version, {!r}))"
Package = tuple[str, str, str]  # (name, version, requirement)
MakeIndex = Callable[..., str]


class Packages(SimpleHTTPRequestHandler):
    """Serves a directory, also to clients that use the server as a proxy."""

    def do_GET(self) -> None:
        self.path = urlsplit(self.path).path
        super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass


def fill_index(directory: Path, *packages: Package) -> Path:
    for name, version, needs in packages:
        page = directory / name.replace("_", "-")
        page.mkdir(parents=True, exist_ok=True)
        wheel(page, name, version, needs=needs)
        links = "".join(f'<a href="{file.name}">{file.name}</a>' for file in page.glob("*.whl"))
        (page / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")
    return directory


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeIndex]:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "PIP_INDEX_URL",
                 "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with ExitStack() as stack:

        def serve(name: str, *packages: Package) -> str:
            directory = fill_index(tmp_path / name, *packages)
            server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Packages, directory=str(directory)))
            stack.enter_context(server)
            Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
            stack.callback(server.shutdown)
            return f"http://127.0.0.1:{server.server_port}"

        yield serve


@pytest.fixture
def here(tmp_path: Path) -> Iterator[LocalEnvironments]:
    environments = LocalEnvironments(tmp_path / "environments")
    yield environments
    environments.end("node-0")


def boot_node(here: LocalEnvironments, node_recipe: Recipe) -> InstallStatus:
    here.begin_installation("node-0", node_recipe)
    return ended(here, "node-0", node_recipe)


def installed_versions(here: LocalEnvironments, node_recipe: Recipe, *names: str) -> str:
    return python(here, node_recipe, VERSIONS.format(names))


CPU = ("torchy", "1.0+cpu", "")
CUDA = ("torchy", "9.0+cu130", "")


def configure(other: str, links: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Configure additional package sources for pip in the two ways that operators can use."""
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", other)
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    file = tmp_path / "pip.conf"
    file.write_text(f"[global]\nextra-index-url = {other}\n[install]\nfind-links = {links}\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))


@pytest.mark.shows("PLG-05", "PLG-37")
def test_scoped_package_is_installed_from_its_index_despite_pip_settings(
    here: LocalEnvironments, index: MakeIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(index("other", CUDA), fill_index(tmp_path / "links", CUDA) / "torchy", tmp_path, monkeypatch)
    node_recipe = recipe(Image(pip=("torchy",), indexes=(Index(index("cpu", CPU), ("torchy",)),)))
    assert boot_node(here, node_recipe).ready
    assert installed_versions(here, node_recipe, "torchy") == "1.0+cpu"


def test_only_the_package_index_of_the_pool_is_used(
    here: LocalEnvironments, index: MakeIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(index("other", CUDA), fill_index(tmp_path / "links", CUDA) / "torchy", tmp_path, monkeypatch)
    node_recipe = recipe(Image(pip=("torchy",), indexes=(Index(index("cpu", CPU)),)))
    assert boot_node(here, node_recipe).ready
    assert installed_versions(here, node_recipe, "torchy") == "1.0+cpu"


def test_unscoped_packages_follow_pip_settings(
    here: LocalEnvironments, index: MakeIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", index("usual", ("lib", "2.0", ""), CUDA))
    node_recipe = recipe(Image(pip=("torchy", "lib"), indexes=(Index(index("cpu", CPU), ("torchy",)),)))
    assert boot_node(here, node_recipe).ready
    assert installed_versions(here, node_recipe, "torchy", "lib") == "1.0+cpu 2.0"


def test_bootstrap_fails_and_names_the_index_that_cannot_serve_its_package(
    here: LocalEnvironments, index: MakeIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", index("other", CUDA))
    empty = index("empty", ("lib", "1.0", ""))
    boot = boot_node(here, recipe(Image(pip=("torchy",), indexes=(Index(empty, ("torchy",)),))))
    assert not boot.ready
    assert f"The index {empty} cannot serve torchy" in boot.failure
    assert "are never taken from another index" in boot.failure


def test_scoped_dependency_is_installed_from_its_index(here: LocalEnvironments, index: MakeIndex) -> None:
    # No requirement names the dependency. Only another package needs it.
    vision = ("torch_vision", "2.0", "torchy==1.0")
    usual = index("usual", ("model_zoo", "1.0", "torch-vision"), vision, CUDA)
    scoped = index("cpu", CPU, ("torch_vision", "2.0+cpu", ""), ("torch_vision", "3.0+cpu", ""))
    indexes = (Index(scoped, ("Torchy", "torch-vision")), Index(usual))
    node_recipe = recipe(Image(pip=("torchy", "model-zoo"), indexes=indexes))
    assert boot_node(here, node_recipe).ready
    assert (
        installed_versions(here, node_recipe, "torchy", "torch-vision", "model-zoo") == "1.0+cpu 2.0+cpu 1.0"
    )


def test_bootstrap_fails_if_an_index_cannot_serve_a_scoped_dependency(
    here: LocalEnvironments, index: MakeIndex
) -> None:
    usual = index("usual", ("model_zoo", "1.0", "torchy"), CUDA)
    empty = index("empty", ("lib", "1.0", ""))
    node_recipe = recipe(Image(pip=("model-zoo",), indexes=(Index(empty, ("torchy",)), Index(usual))))
    boot = boot_node(here, node_recipe)
    assert f"The index {empty} cannot serve torchy" in boot.failure


def test_pip_connection_settings_apply_to_scoped_indexes(
    here: LocalEnvironments, index: MakeIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only the configured proxy can resolve the host name of the index.
    file = tmp_path / "pip.conf"
    file.write_text(f"[global]\nproxy = {index('cpu', CPU)}\ntrusted-host = packages.invalid\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    indexes = (Index("http://packages.invalid", ("torchy",)),)
    node_recipe = recipe(Image(pip=("torchy",), indexes=indexes))
    boot = boot_node(here, node_recipe)
    assert boot.ready, boot
    assert installed_versions(here, node_recipe, "torchy") == "1.0+cpu"
