"""Fixtures for journeys: an installation that most journeys share, and one per module."""

import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from berth.db.embedded.cluster import EmbeddedCluster
from tests.code.git_server import HttpsServer, Repository, https_server, new_repository
from tests.harness import prepared
from tests.journeys.command import Terminal, sign_in
from tests.journeys.installation import ROOT, Installation, InstallContext, empty_installation
from tests.pools.ssh.sshd import SSHD, SshServer, ssh_server

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run test_up.py after all other journeys, regardless of their order on the command line."""
    places = [place for place, item in enumerate(items) if HERE in item.path.parents]
    journeys = sorted((items[place] for place in places), key=lambda item: item.path == HERE / "test_up.py")
    for place, item in zip(places, journeys, strict=True):
        items[place] = item


@pytest.fixture(scope="session")
def prepared_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a home directory like that of a first start with --demo, once per test run."""

    def prepare(home: Path) -> None:
        if prepared.is_one_of_several_processes():
            prepared.copy_directory(prepared.migrated_home(tmp_path_factory), home)
            # Without the file, the role is set up again.
            EmbeddedCluster(home / "postgres").password_file.unlink()
        cluster = EmbeddedCluster(home / "postgres", prepared.FAST_SETTINGS)
        prepared.run_on_cluster(cluster, "berth.server.up.prepare", "--demo", env=Installation(home).env())

    return prepared.prepared_once(tmp_path_factory, "prepared-home", prepare)


@pytest.fixture(scope="session")
def directory_of_pods(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory that pods of every user can write to."""
    directory = tmp_path_factory.mktemp("pods")
    directory.chmod(0o777)
    return directory


@pytest.fixture(scope="session")
def pod_paths(directory_of_pods: Path) -> dict[str, str]:
    """Return settings that make the test programs and the shared directory visible to pods."""
    return {
        "BERTH_POD_PATHS": str(ROOT / "tests"),
        "BERTH_POD_WRITABLE_PATHS": str(directory_of_pods),
    }


@pytest.fixture(scope="session")
def installing(prepared_home: Path, pod_paths: dict[str, str]) -> InstallContext:
    @contextmanager
    def install(port: int = 0, *options: str, **settings: str) -> Iterator[Installation]:
        with tempfile.TemporaryDirectory(prefix="berth-journey-") as place:
            prepared.copy_directory(prepared_home, Path(place) / "home")
            installation = Installation(Path(place) / "home", port, settings=pod_paths | settings)
            try:
                installation.start("--demo", *options)
                yield installation
            finally:
                installation.clear()

    return install


@pytest.fixture(scope="session")
def installing_empty(pod_paths: dict[str, str]) -> InstallContext:
    def install(port: int = 0, *options: str, **settings: str) -> AbstractContextManager[Installation]:
        return empty_installation(port, *options, **pod_paths, **settings)

    return install


@pytest.fixture
def tmp_path(directory_of_pods: Path) -> Path:
    """Return a directory shared by the test and its pods."""
    path = Path(tempfile.mkdtemp(dir=directory_of_pods))
    path.chmod(0o777)
    return path


@pytest.fixture(scope="module")
def berth(installing: InstallContext) -> Iterator[Installation]:
    """Run an installation for one module, whose tests may configure and stop it."""
    with installing() as installation:
        yield installation


@pytest.fixture(scope="package")
def workspaces() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="berth-workspaces-") as place:
        Path(place).chmod(0o755)
        yield Path(place)


@dataclass(frozen=True)
class GitServers:
    """A Git repository served over HTTPS and, if this machine has an SSH server, over SSH."""

    repository: Repository
    https: HttpsServer
    ssh: SshServer | None

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings of an installation that may connect to these servers."""
        hosts = [f"127.0.0.1:{self.https.port}"]
        hosts += [f"{self.ssh.address}:{self.ssh.port}"] if self.ssh else []
        return {"BERTH_GIT_HOSTS": ",".join(hosts), "BERTH_GIT_CA": str(self.https.ca_file)}


@pytest.fixture(scope="package")
def git_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GitServers]:
    place = tmp_path_factory.mktemp("git")
    repository = new_repository(place / "repositories")
    with ExitStack() as stack:
        https = stack.enter_context(https_server(place / "https", repository.path.parent))
        ssh = stack.enter_context(ssh_server(place / "sshd")) if Path(SSHD).exists() else None
        yield GitServers(repository, https, ssh)


@pytest.fixture(scope="package")
def shared_berth(
    pod_paths: dict[str, str], workspaces: Path, git_servers: GitServers
) -> Iterator[Installation]:
    """Run an installation from its first start, shared by all journeys that end their own workloads.

    These journeys change no quotas. The tests in test_up.py come last and stop the installation. The home
    directory is outside pytest's directory, which the database user cannot enter.
    """
    settings = {
        "BERTH_WORKSPACE_ROOT": str(workspaces), "BERTH_WEB_PROCESSES": "2", **git_servers.settings
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="berth-journey-") as place:
        installation = Installation(Path(place) / "home", settings=pod_paths | settings)
        installation.names["web-2"] = "berth: web-2 "
        try:
            installation.start("--demo")
            yield installation
        finally:
            installation.clear()


@pytest.fixture(scope="package")
def dave_on_shared_berth(shared_berth: Installation) -> Terminal:
    """Sign in to the shared installation as dave, a member of project vision."""
    return sign_in(shared_berth, "dave", shared_berth.home.parent / "dave")
