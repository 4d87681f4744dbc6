"""Tests for a session with Ray tasks and the Ray joblib backend on a Ray pool."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from joblib import Parallel, delayed

from berth.client import CallInterrupted, Client
from berth.client.sync.session import Session
from tests.journeys.installation import ROOT, Installation, until
from tests.journeys.on_ray import test_ray_session as here
from tests.journeys.on_ray.ray_installation import POOL, RayInstallation, add_ray_pool

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]
cloudpickle.register_pickle_by_value(here)
LONG = 120


@pytest.fixture(scope="module")
def installation(berth: Installation) -> Iterator[RayInstallation]:
    yield add_ray_pool(berth)
    berth.end(signal.SIGINT)
    assert berth.processes() == {}, "raylets end with Berth"


@pytest.fixture(scope="module")
def client(installation: RayInstallation) -> Iterator[Client]:
    with installation.dave.client() as client:
        yield client


@pytest.fixture(scope="module")
def session(client: Client) -> Iterator[Session]:
    """Open a session on two nodes, each with one CPU and two declared GPUs."""
    options: dict[str, Any] = {"gpus": 2, "memory_mib": 1024, "project": "vision", "plugins": ["joblib"]}
    with client.session(POOL, nodes=2, start_timeout=240, **options) as session:
        yield session


def node() -> int:
    return int(os.environ["RANK"])


def cpus() -> float:
    import ray

    return float(ray.cluster_resources()["CPU"])


def square(number: int) -> tuple[int, int, bool]:
    """Return the square, the rank of the node, and whether a Ray actor computed the square."""
    import ray

    return number * number, node(), ray.get_runtime_context().get_actor_id() is not None


def test_documented_example_runs(client: Client, installation: RayInstallation) -> None:
    text = (ROOT / "docs/sdk.md").read_text()
    [program] = re.findall(r"## Ray\n.*?```python\n(.*?)```", text, re.DOTALL)
    with redirect_stdout(StringIO()) as output:
        exec(program, {"__name__": "__main__", "client": client})
    assert {node.address for node in installation.nodes().values()} == set(
        re.findall(r"'(.+?)'", output.getvalue())
    )


def test_ray_cluster_of_a_session_contains_exactly_the_sessions_nodes(
    session: Session, installation: RayInstallation
) -> None:
    def ray_view() -> tuple[bool, dict[str, float], set[str]]:
        import ray

        seen = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
        return ray.is_initialized(), ray.cluster_resources(), seen

    addresses = {node.address for node in installation.nodes().values()}
    for initialized, resources, seen in session.broadcast(ray_view).result(LONG):
        assert (initialized, resources["CPU"], resources["GPU"]) == (True, 2, 4)
        assert seen == addresses


def test_ray_task_runs_on_another_node_with_its_devices(session: Session) -> None:
    def run_on_the_other_node() -> tuple[int, int, str]:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        own = ray.get_runtime_context().get_node_id()
        [other] = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["NodeID"] != own]

        def where() -> tuple[int, str]:
            return int(os.environ["RANK"]), os.environ["CUDA_VISIBLE_DEVICES"]

        strategy = NodeAffinitySchedulingStrategy(other, soft=False)
        task = ray.remote(num_gpus=2)(where).options(scheduling_strategy=strategy)
        return (node(), *ray.get(task.remote(), timeout=60))

    devices = session.broadcast(lambda: os.environ["CUDA_VISIBLE_DEVICES"]).result(LONG)
    for own, other, sees in session.broadcast(run_on_the_other_node).result(LONG):
        assert other == 1 - own
        assert sorted(sees.split(",")) == sorted(devices[other].split(","))


def test_calls_alternate_between_nodes_and_keep_their_order(session: Session) -> None:
    first = session.submit(node).result(LONG)
    assert [session.submit(node).result(LONG) for _ in range(4)] == [1 - first, first, 1 - first, first]
    assert list(session.map(lambda x: x * x, range(6))) == [x * x for x in range(6)]
    assert session.broadcast(node).result(LONG) == [0, 1]


@pytest.mark.shows("PLG-42")
def test_joblib_in_the_client_uses_the_ray_backend_on_both_nodes(session: Session) -> None:
    results = Parallel(n_jobs=-1, batch_size=5)(delayed(square)(x) for x in range(20))
    assert [squared for squared, _, _ in results] == [x * x for x in range(20)]
    assert {where for _, where, _ in results} == {0, 1}
    assert all(in_an_actor for _, _, in_an_actor in results)


@pytest.mark.shows("PLG-42")
def test_joblib_inside_a_function_uses_the_ray_backend_on_both_nodes(session: Session) -> None:
    def squares() -> list[tuple[int, int, bool]]:
        return list(Parallel(n_jobs=-1, batch_size=1)(delayed(square)(x) for x in range(20)))

    results = session.submit(squares).result(LONG)
    assert sum(squared for squared, _, _ in results) == 2470
    assert {where for _, where, _ in results} == {0, 1}
    assert all(in_an_actor for _, _, in_an_actor in results)


def test_ray_task_error_is_raised_and_a_crashed_task_is_retried(session: Session) -> None:
    def fails() -> Any:
        import ray

        return ray.get(ray.remote(lambda: {"here": 1}["nothing there"]).remote())

    def dies() -> Any:
        import ray

        return ray.get(ray.remote(max_retries=0)(lambda: os._exit(9)).remote())

    with pytest.raises(KeyError, match="nothing there"):
        session.submit(fails).result(LONG)
    with pytest.raises(CallInterrupted, match=r"3 times\. Last reason: Ray lost a node or process"):
        session.submit(dies).result(LONG)


def test_restarted_worker_process_reconnects_to_ray(session: Session) -> None:
    with pytest.raises(CallInterrupted, match="the call's process was killed by SIGKILL"):
        session.submit(lambda: os.kill(os.getpid(), signal.SIGKILL)).result(LONG)
    assert [ray for _, _, ray in Parallel(n_jobs=-1)(delayed(square)(x) for x in range(4))] == [True] * 4


def test_nodes_of_a_session_restart_after_a_raylet_is_killed(session: Session, client: Client) -> None:
    def kill_raylets() -> None:
        mark = os.environ["BERTH_SESSION_RAY"].encode()
        for entry in Path("/proc").glob("[0-9]*"):
            if (entry / "comm").read_text() == "raylet\n" and mark in (entry / "cmdline").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)

    assert client.workloads.get(session.id).run == 1
    session.submit(kill_raylets).result(LONG)
    until(lambda: client.workloads.get(session.id).run == 2, LONG)
    until(lambda: session.submit(cpus).result(LONG) == 2, LONG)
    results = Parallel(n_jobs=-1)(delayed(square)(x) for x in range(4))
    assert [(squared, ray) for squared, _, ray in results] == [(x * x, True) for x in range(4)]


def test_thread_executor_uses_ray_until_the_session_ends(
    client: Client, installation: RayInstallation
) -> None:
    options: dict[str, Any] = {"gpus": 0, "memory_mib": 1024, "project": "vision", "executor": "thread"}
    with client.session(POOL, start_timeout=240, **options) as session:
        result = session.submit(square, 3).result(LONG)
        own = session.submit(lambda: os.environ["RAY_ADDRESS"]).result(LONG)
    assert result == (9, 0, False)
    until(lambda: client.workloads.get(session.id).phase == "completed")
    assert not [command for command in installation.berth.processes().values() if own in command]
