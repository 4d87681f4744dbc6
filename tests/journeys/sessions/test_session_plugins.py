"""Tests for plugins that a session adds: their packages and the order of their hooks."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from berth.client import (
    Client,
    SessionEnded,
)
from pools.plugins import ClientPool, Cluster, Image, InstanceInfo, Operation, Plugin
from tests.journeys.command import Terminal
from tests.journeys.installation import until
from tests.journeys.sessions import test_session_plugins as here
from tests.pools.environments.test_package_indexes import fill_index

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]
# Nodes have no copy of this file: its functions are pickled by value.
cloudpickle.register_pickle_by_value(here)


@pytest.fixture(scope="module")
def client(dave_on_shared_berth: Terminal) -> Iterator[Client]:
    with dave_on_shared_berth.client() as client:
        yield client


def file_of_pods(directory: Path) -> Path:
    """Create a file that the client and pods can write to."""
    file = directory / "notes"
    file.touch()
    file.chmod(0o666)
    return file


@contextmanager
def recording_context(file: Path, name: str, fails_at_the_end: bool = False) -> Iterator[None]:
    with file.open("a") as out:
        out.write(f"+{name}\n")
    try:
        yield
    finally:
        with file.open("a") as out:
            out.write(f"-{name}\n")
    if fails_at_the_end:
        raise ValueError("this must not affect other plugins")


def recording_plugin(file: Path, name: str) -> Plugin:
    """Return a plugin that records when its contexts are entered and exited and which calls it decorates."""
    fails = name == "second"

    def decorate(function: Any) -> Any:
        def decorated(*args: Any, **kwargs: Any) -> Any:
            return [name, *function(*args, **kwargs)]

        return decorated

    def app(info: InstanceInfo) -> AbstractContextManager[None]:
        return recording_context(file, f"{name} app", fails)

    def process(info: InstanceInfo) -> AbstractContextManager[None]:
        assert os.environ["SET_FOR_ALL"] == "yes"
        return recording_context(file, f"{name} process {info.rank} of {info.world_size}", fails)

    def around(pool: ClientPool, cluster: Cluster) -> AbstractContextManager[None]:
        return recording_context(file, f"{name} client on {cluster.name}", fails)

    plugin = Plugin.create(name).with_decorate(decorate).with_around_app(app)
    return plugin.with_around_process(process).with_around_client(around)


@pytest.mark.shows(
    "PLG-01", "PLG-13", "PLG-14", "PLG-17", "PLG-18", "PLG-19", "PLG-20", "PLG-21", "PLG-22", "PLG-25",
    "PLG-26", "PLG-27", "PLG-28", "PLG-29", "PLG-30", "PLG-46", "PLG-47",
)  # fmt: skip
def test_plugin_hooks_run_around_the_client_the_app_each_process_and_each_call(
    client: Client, tmp_path: Path
) -> None:
    file = file_of_pods(tmp_path)
    plugins = [recording_plugin(file, "first"), recording_plugin(file, "second")]
    env = {"SET_FOR_ALL": "yes"}
    with client.session("local", gpus=1, project="vision", plugins=plugins, env=env) as session:
        assert "process" not in file.read_text()  # worker processes start with the first call
        results = [session.submit(lambda: ["ran"]).result(60) for _ in range(3)]
    assert results == [["first", "second", "ran"]] * 3
    until(lambda: client.workloads.get(session.id).phase == "completed")
    assert file.read_text().splitlines() == [
        "+first app", "+second app", "+first client on local", "+second client on local",
        "+first process 0 of 1", "+second process 0 of 1",
        "-second client on local", "-first client on local",
        "-second process 0 of 1", "-first process 0 of 1", "-second app", "-first app",
    ]  # fmt: skip


def installing_plugin(index: Path, package: str, *operations: Operation, **env: str) -> Plugin:
    """Return a plugin whose package comes from a directory that no other plugin uses."""

    def transform(image: Image, cluster: Cluster) -> Image:
        image = image.with_pip(package).with_index(f"file://{index}", package)
        return image.with_env(POOL_OF_PLUGIN=cluster.name, **env)

    return Plugin.create("mine").with_transform(transform).with_bootstrap(lambda cluster: operations)


@pytest.mark.shows("PLG-04", "PLG-05", "PLG-10", "PLG-11", "PLG-46")
@pytest.mark.parametrize("executor", ["process", "thread"])
def test_session_plugin_installs_its_packages_and_runs_its_bootstrap(
    client: Client, tmp_path: Path, executor: Any
) -> None:
    index = fill_index(tmp_path / "index", ("shipped", "3.0", ""))
    note = Operation('python -c "import shipped" && echo "$GREETING" > "$HOME/note"', "note")

    @contextmanager
    def around_app(info: InstanceInfo) -> Iterator[None]:
        import shipped  # type: ignore[import-not-found]

        os.environ["SEEN_BY_APP"] = shipped.VERSION
        yield

    plugin = installing_plugin(index, "shipped", note, GREETING="hello").with_around_app(around_app)

    def look() -> tuple[str, str, str, str]:
        import joblib  # this module is from the pool's own Python
        import shipped

        assert joblib.__version__
        note = Path(os.environ["HOME"], "note").read_text().strip()
        return shipped.VERSION, os.environ["SEEN_BY_APP"], os.environ["POOL_OF_PLUGIN"], note

    options: dict[str, Any] = {"plugins": [plugin], "executor": executor}
    with client.session("local", gpus=1, project="vision", **options) as session:
        assert session.submit(look).result(60) == ("3.0", "3.0", "local", "hello")
    with pytest.raises(ModuleNotFoundError):
        import shipped  # noqa: F401


def test_error_explains_how_to_provide_a_plugin_that_cannot_be_installed(
    client: Client, tmp_path: Path
) -> None:
    index = fill_index(tmp_path / "index", ("other", "1.0", ""))
    plugin = installing_plugin(index, "shipped")
    with (
        pytest.raises(SessionEnded) as ended,
        client.session("local", gpus=1, project="vision", plugins=[plugin]),
    ):
        pytest.fail("the session must not open")
    message = str(ended.value)
    assert f"The index file://{index} cannot serve shipped" in message
    assert "declare the plugin in pool local" in message


@pytest.mark.parametrize(
    ("plugin", "expected"),
    [
        (Plugin.create("mine").with_transform(lambda image, cluster: image.with_secrets("MY_TOKEN")),
         "needs the secret MY_TOKEN. Add MY_TOKEN to the session's `secrets`"),
        (Plugin.create("mine").with_transform(lambda image, cluster: replace(image, python="3.99")),
         "plugins cannot be installed: python"),
        (Plugin.create("mine").with_transform(lambda image, cluster: image.with_apt("no-such-package")),
         "These Debian packages are not on this machine|apt-get install no-such-package"),
    ],
)  # fmt: skip
def test_session_fails_if_its_pool_cannot_provide_the_environment(
    client: Client, plugin: Plugin, expected: str
) -> None:
    with (
        pytest.raises(SessionEnded, match=expected),
        client.session("local", gpus=1, project="vision", plugins=[plugin]),
    ):
        pytest.fail("the session must not open")


def test_error_for_a_missing_plugin_package_explains_how_to_install_it(client: Client) -> None:
    @contextmanager
    def around_app(info: InstanceInfo) -> Iterator[None]:
        import nothing_installs_this  # type: ignore[import-not-found]

        yield nothing_installs_this

    plugin = Plugin.create("mine").with_around_app(around_app)
    with (
        pytest.raises(SessionEnded, match="No plugin installs nothing_installs_this: add its package in"),
        client.session("local", gpus=1, project="vision", plugins=[plugin]),
    ):
        pytest.fail("the session must not open")


@pytest.mark.shows("PLG-23")
def test_thread_executor_runs_no_process_hooks(client: Client, tmp_path: Path) -> None:
    file = file_of_pods(tmp_path)
    options: dict[str, Any] = {"executor": "thread", "plugins": (recording_plugin(file, "only"),)}
    with client.session("local", gpus=1, project="vision", **options) as session:
        first, second = (session.submit(lambda: [os.getpid()]).result(60) for _ in range(2))
    assert first == second
    assert "process" not in file.read_text()


def test_failing_app_hook_ends_the_session_with_an_error_that_names_the_plugin(client: Client) -> None:
    def broken(info: InstanceInfo) -> AbstractContextManager[None]:
        raise RuntimeError("no such library")

    plugin = Plugin.create("mine").with_around_app(broken)
    with (
        pytest.raises(SessionEnded, match="the plugin mine failed in around_app: RuntimeError: no such"),
        client.session("local", gpus=1, project="vision", plugins=[plugin]),
    ):
        pytest.fail("the session must not open")


@pytest.mark.shows("PLG-27")
def test_failing_client_hook_closes_earlier_hooks_and_ends_the_session(
    client: Client, tmp_path: Path
) -> None:
    def broken(pool: ClientPool, cluster: Cluster) -> AbstractContextManager[None]:
        raise RuntimeError("not here")

    file = file_of_pods(tmp_path)
    plugins = [recording_plugin(file, "first"), Plugin.create("mine").with_around_client(broken)]
    session = client.session("local", gpus=1, project="vision", plugins=plugins)
    with pytest.raises(Exception, match="the plugin mine failed in around_client"), session:
        pytest.fail("the session must not open")
    assert "-first client on local" in file.read_text()
    until(lambda: client.workloads.get(session.id).has_ended)
