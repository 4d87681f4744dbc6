"""A session on a Ray pool uses Ray's tasks and joblib backend."""

import os
import re
import signal
import tempfile
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
from tests.journeys import test_ray_session as here
from tests.journeys.installation import ROOT, Installation, until
from tests.journeys.ray_place import POOL, Place, ray_place

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(400)]
cloudpickle.register_pickle_by_value(here)
LONG = 120


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="berth-ray-session-") as directory:
        root = Path(directory)
        berth = Installation(root / "home")
        try:
            yield ray_place(berth, root)
            berth.end(signal.SIGINT)
            assert berth.left() == {}, "raylets end with Berth"
        finally:
            berth.clear()


@pytest.fixture(scope="module")
def client(place: Place) -> Iterator[Client]:
    with place.dave.client() as client:
        yield client


@pytest.fixture(scope="module")
def session(client: Client) -> Iterator[Session]:
    """Two nodes with two GPUs (in name only) each, and a CPU each."""
    asked: dict[str, Any] = {"gpus": 2, "memory_mib": 64, "project": "vision", "plugins": ["joblib"]}
    with client.session(POOL, nodes=2, start_timeout=240, **asked) as session:
        yield session


def node() -> int:
    return int(os.environ["RANK"])


def cpus() -> float:
    import ray

    return float(ray.cluster_resources()["CPU"])


def square(number: int) -> tuple[int, int, bool]:
    """And on which node, and whether in an actor of Ray's."""
    import ray

    return number * number, node(), ray.get_runtime_context().get_actor_id() is not None


def test_the_documentations_example_runs_as_it_stands(client: Client, place: Place) -> None:
    text = (ROOT / "docs/sdk.md").read_text()
    [program] = re.findall(r"## Ray\n.*?```python\n(.*?)```", text, re.DOTALL)
    with redirect_stdout(StringIO()) as said:
        exec(program, {"__name__": "__main__", "client": client})
    assert {found.address for found in place.nodes().values()} == set(re.findall(r"'(.+?)'", said.getvalue()))


def test_functions_find_a_ray_of_exactly_the_sessions_nodes(session: Session, place: Place) -> None:
    def looks() -> tuple[bool, dict[str, float], set[str]]:
        import ray

        there = {found["NodeManagerAddress"] for found in ray.nodes() if found["Alive"]}
        return ray.is_initialized(), ray.cluster_resources(), there

    addresses = {found.address for found in place.nodes().values()}
    for initialised, resources, there in session.broadcast(looks).result(LONG):
        assert (initialised, resources["CPU"], resources["GPU"]) == (True, 2, 4)
        assert there == addresses


def test_a_task_of_a_function_runs_on_the_other_node_with_its_devices(session: Session) -> None:
    def asks_the_other() -> tuple[int, int, str]:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        own = ray.get_runtime_context().get_node_id()
        [other] = [found["NodeID"] for found in ray.nodes() if found["Alive"] and found["NodeID"] != own]

        def where() -> tuple[int, str]:
            return int(os.environ["RANK"]), os.environ["CUDA_VISIBLE_DEVICES"]

        there = NodeAffinitySchedulingStrategy(other, soft=False)
        task = ray.remote(num_gpus=2)(where).options(scheduling_strategy=there)
        return (node(), *ray.get(task.remote(), timeout=60))

    devices = session.broadcast(lambda: os.environ["CUDA_VISIBLE_DEVICES"]).result(LONG)
    for own, other, sees in session.broadcast(asks_the_other).result(LONG):
        assert other == 1 - own
        assert sorted(sees.split(",")) == sorted(devices[other].split(","))


def test_calls_keep_what_a_session_promises(session: Session) -> None:
    first = session.submit(node).result(LONG)
    assert [session.submit(node).result(LONG) for _ in range(4)] == [1 - first, first, 1 - first, first]
    assert list(session.map(lambda x: x * x, range(6))) == [x * x for x in range(6)]
    assert session.broadcast(node).result(LONG) == [0, 1]


@pytest.mark.shows("PLG-42")
def test_joblib_in_the_client_runs_by_rays_backend_on_both_nodes(session: Session) -> None:
    found = Parallel(n_jobs=-1, batch_size=5)(delayed(square)(x) for x in range(20))
    assert [squared for squared, _, _ in found] == [x * x for x in range(20)]
    assert {where for _, where, _ in found} == {0, 1}
    assert all(in_an_actor for _, _, in_an_actor in found)


@pytest.mark.shows("PLG-42")
def test_joblib_inside_a_function_runs_by_rays_backend_on_both_nodes(session: Session) -> None:
    def squares() -> list[tuple[int, int, bool]]:
        return list(Parallel(n_jobs=-1, batch_size=1)(delayed(square)(x) for x in range(20)))

    found = session.submit(squares).result(LONG)
    assert sum(squared for squared, _, _ in found) == 2470
    assert {where for _, where, _ in found} == {0, 1}
    assert all(in_an_actor for _, _, in_an_actor in found)


def test_a_tasks_error_is_the_calls_and_a_dead_task_is_tried_again(session: Session) -> None:
    def fails() -> Any:
        import ray

        return ray.get(ray.remote(lambda: {"here": 1}["nothing there"]).remote())

    def dies() -> Any:
        import ray

        return ray.get(ray.remote(max_retries=0)(lambda: os._exit(9)).remote())

    with pytest.raises(KeyError, match="nothing there"):
        session.submit(fails).result(LONG)
    with pytest.raises(CallInterrupted, match=r"3 times\. Last reason: Ray lost what it ran on"):
        session.submit(dies).result(LONG)


def test_a_killed_process_finds_ray_again(session: Session) -> None:
    with pytest.raises(CallInterrupted, match="its process died by SIGKILL"):
        session.submit(lambda: os.kill(os.getpid(), signal.SIGKILL)).result(LONG)
    assert [ray for _, _, ray in Parallel(n_jobs=-1)(delayed(square)(x) for x in range(4))] == [True] * 4


def test_a_killed_raylet_of_the_sessions_own_starts_its_nodes_again(session: Session, client: Client) -> None:
    def kills() -> None:
        mark = os.environ["BERTH_SESSION_RAY"].encode()
        for place in Path("/proc").glob("[0-9]*"):
            if (place / "comm").read_text() == "raylet\n" and mark in (place / "cmdline").read_bytes():
                os.kill(int(place.name), signal.SIGKILL)

    assert client.workloads.get(session.id).run == 1
    session.submit(kills).result(LONG)
    until(lambda: client.workloads.get(session.id).run == 2, LONG)
    until(lambda: session.submit(cpus).result(LONG) == 2, LONG)
    found = Parallel(n_jobs=-1)(delayed(square)(x) for x in range(4))
    assert [(squared, ray) for squared, _, ray in found] == [(x * x, True) for x in range(4)]


def test_threads_find_it_too_and_it_ends_with_its_session(client: Client, place: Place) -> None:
    asked: dict[str, Any] = {"gpus": 0, "memory_mib": 64, "project": "vision", "executor": "thread"}
    with client.session(POOL, start_timeout=240, **asked) as session:
        found = session.submit(square, 3).result(LONG)
        own = session.submit(lambda: os.environ["RAY_ADDRESS"]).result(LONG)
    assert found == (9, 0, False)
    until(lambda: client.workloads.get(session.id).phase == "completed")
    assert not [told for told in place.berth.left().values() if own in told]
