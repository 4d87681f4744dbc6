"""A Ray pool with real raylets, some of them killed."""

import os
import re
import signal
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.contracts.pods import alive
from tests.journeys.installation import ROOT, Installation, until
from tests.journeys.ray_place import POOL, WORKS, Place, ray_place

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="berth-ray-journey-") as directory:
        root = Path(directory)
        berth = Installation(root / "home")
        try:
            yield ray_place(berth, root)
            berth.end(signal.SIGINT)
            assert berth.left() == {}, "raylets end with Berth"
        finally:
            berth.clear()


@pytest.fixture(autouse=True)
def _nothing_left(place: Place) -> Iterator[None]:
    """The next test finds the pool free, whatever became of this one."""
    yield
    place.cancel_all()


def test_a_gang_runs_on_the_nodes_and_devices_that_were_chosen(place: Place) -> None:
    """The pool grows from nothing for it. What it says is read while it runs, and its end comes back."""
    gang = place.submit(place.dave, "gang", WORKS + "exit $((RANK * 7))")
    place.until(gang, "running")
    pods, nodes = place.pods(gang), place.nodes()
    assert sorted(str(pod.node) for pod in pods) == ["cluster-0", "cluster-1"]
    for pod in pods:
        assert pod.node is not None
        rank, world, run, node, sees, where = place.told(gang, pod)
        assert (rank, world, run, node) == (str(pod.rank), "2", "1", pod.node)
        assert sees == place.devices[pod.node]
        assert f"/{nodes[pod.node].instance_id}/" in where
    said = b""
    for piece in place.dave.client().workloads.log_stream(gang.id, pod="worker-0"):
        said += piece
        if b"step 20\n" in said:
            break
    with ThreadPoolExecutor() as threads:
        follows = threads.submit(place.dave.berth, "logs", "--follow", "gang", "--pod", "worker-1", exits=10)
        until(lambda: "step 30" in place.log(gang, pods[1]))
        place.finish(gang)
        failed = place.until(gang, "failed")
        steps = re.findall(r"^step (\d+)$", follows.result(), re.MULTILINE)
    assert [int(step) for step in steps] == list(range(1, len(steps) + 1)), "every line, once, in order"
    assert len(steps) >= 30
    assert failed.exit_code == 7
    assert [(pod.state, pod.exit_code) for pod in place.pods(gang)] == [("succeeded", 0), ("failed", 7)]


@pytest.mark.heavy
def test_a_killed_scheduler_finds_its_pods_again_and_starts_none_twice(place: Place) -> None:
    gang = place.submit(place.dave, "outlives")
    place.until(gang, "running")
    before = {pod.id: pod.started_at for pod in place.pods(gang)}
    killed = place.berth.children()["scheduler"]
    os.kill(killed, signal.SIGKILL)
    until(lambda: place.berth.children().get("scheduler", killed) != killed)
    later = place.submit(place.dave, "later", "echo hello", replicas=1)
    place.until(later, "completed")
    assert place.dave.client().workloads.get(gang.id).phase == "running"
    place.finish(gang)
    ended = place.until(gang, "completed")
    assert (ended.run, ended.preemptions, ended.restarts) == (1, 0, 0)
    assert {pod.id: pod.started_at for pod in place.pods(gang)} == before
    assert sorted(place.started(gang)) == sorted(before)


def test_quota_is_taken_back_on_ray_and_the_borrower_goes_on_where_it_was(place: Place) -> None:
    borrower = place.submit(place.dave, "borrower")
    place.until(borrower, "running")
    first = place.pods(borrower)
    until(lambda: "step 5" in place.log(borrower, first[0]))
    taken_back = place.submit(place.grace, "within-quota")
    place.until(taken_back, "running")
    assert place.dave.client().workloads.get(borrower.id).preemptions == 1
    for pod in first:
        assert place.log(borrower, pod).endswith("asked to end\n"), "a grace, not a kill"
    [told] = place.dave.json("evictions", "--workload", "borrower")
    assert (told["kind"], told["preemptor_project"]) == ("reclaim", "ads")
    place.finish(taken_back)
    place.until(taken_back, "completed")
    again = place.until(borrower, "running")
    assert again.run == 2
    assert {pod.id for pod in place.pods(borrower)}.isdisjoint(pod.id for pod in first)
    place.finish(borrower)
    place.until(borrower, "completed")
    assert len(place.started(borrower)) == 4


@pytest.mark.heavy
def test_an_elastic_gang_grows_into_what_is_free_and_shrinks_for_who_has_quota(place: Place) -> None:
    roles = [{"name": "worker", "min": 1, "max": 3, "gpu": 2, "cpu": 0.1, "memory_mib": 64}]
    elastic = place.submit(place.dave, "elastic", kind="elastic", roles=roles)
    place.until_pods(elastic, 3)
    [oldest] = [pod for pod in place.pods(elastic) if pod.rank == 0]
    taken_back = place.submit(place.grace, "needs-two")
    place.until(taken_back, "running")
    place.until_pods(elastic, 1)
    assert place.dave.client().workloads.get(elastic.id).phase == "running"
    place.finish(taken_back)
    place.until_pods(elastic, 3)
    assert [pod.id for pod in place.pods(elastic) if pod.rank == 0 and pod.state == "running"] == [oldest.id]
    place.finish(elastic)
    assert place.until(elastic, "completed").run == 1
    assert len(place.started(elastic)) == 5, "three, then the two that came back"


ASKS_RAY = """
import os, time, joblib, ray
from ray.util.joblib import register_ray
ray.init(log_to_driver=False)

@ray.remote(num_gpus=2)
def where():
    time.sleep(1)
    devices = sorted(os.environ["CUDA_VISIBLE_DEVICES"].split(","))
    return ray.util.get_node_ip_address(), ",".join(devices)

print(sorted(set(ray.get([where.remote() for _ in range(4)]))))
register_ray()
with joblib.parallel_backend("ray"):
    print(sum(joblib.Parallel(n_jobs=-1)(joblib.delayed(pow)(n, 2) for n in range(10))), flush=True)
raise SystemExit(3)
"""


@pytest.mark.heavy
def test_a_gang_makes_a_ray_of_its_own_and_is_told_nothing_of_the_pools(place: Place) -> None:
    """Tasks and joblib's backend on exactly what the gang was given; the exit code is rank 0's."""
    told = 'env | grep -c "^RAY_" > "$BERTH_WORKSPACE/ray-$RANK"; '
    command = f"{told} exec python -m berth.worker.own_ray python -c '{ASKS_RAY}'"
    ours = {"PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"}  # what is installed may be another checkout
    gang = place.submit(place.dave, "own-ray", command, env=ours)
    place.until(gang, "running")
    nodes = place.nodes()
    first, second = place.pods(gang)
    ended = place.until(gang, "failed")
    log = place.log(gang, first)
    here = sorted([(nodes[str(pod.node)].address, place.devices[str(pod.node)]) for pod in (first, second)])
    lines = log.splitlines()
    assert (str(here) in lines, lines[-1]) == (True, "285"), log + place.log(gang, second)
    assert ended.exit_code == 3
    assert place.written(gang, "ray-0") == place.written(gang, "ray-1") == "0\n"


@pytest.mark.heavy
@pytest.mark.parametrize(("patience", "runs"), [(600, 1), (0, 2)])
def test_a_killed_raylet_is_a_lost_node_and_its_gang_goes_on_elsewhere(
    place: Place, patience: int, runs: int
) -> None:
    """A gang that is given time to be whole again keeps who is left; one that is not starts anew."""
    gang = place.submit(place.dave, f"survivor-{patience}", replicas=3, stale_gang_grace=patience)
    place.until(gang, "running")
    worker = next(pod for pod in place.pods(gang) if pod.node != f"{POOL}-0")
    lost = place.nodes()[str(worker.node)]
    os.kill(place.part(lost, "raylet"), signal.SIGKILL)
    place.until_pods(gang, 3, run=runs, without=worker)
    again = place.until(gang, "running")
    assert (again.run, again.restarts, again.preemptions) == (runs, 0, 0), "nobody's failure"
    on = {place.nodes()[str(pod.node)].instance_id for pod in place.pods(gang) if pod.state == "running"}
    assert len(on) == 3
    assert lost.instance_id not in on
    assert [pod.state for pod in place.pods(gang, run=1) if pod.id == worker.id] == ["lost"]
    history = [(event.kind, event.node) for event in place.admin.client().node_pools.history(POOL)]
    assert ("lost", lost.name) in history
    place.finish(gang)
    place.until(gang, "completed")
    assert len(place.started(gang)) == (4 if runs == 1 else 6), "nobody twice"


@pytest.mark.heavy
@pytest.mark.parametrize("part", ["gcs_server", "node"])
def test_a_head_that_dies_takes_its_cluster_along_and_all_of_it_comes_back(place: Place, part: str) -> None:
    gang = place.submit(place.dave, f"headless-{part.partition('_')[0]}", replicas=3)
    place.until(gang, "running")
    before = {node.instance_id for node in place.nodes().values()}
    processes = [place.process_of(gang, pod) for pod in place.pods(gang)]
    head = place.nodes()[f"{POOL}-0"]
    os.kill(place.process(head) if part == "node" else place.part(head, part), signal.SIGKILL)
    place.until_on_new_nodes(gang, before)
    assert not any(alive(pid) for pid in processes)
    again = place.until(gang, "running")
    assert (again.restarts, again.preemptions) == (0, 0), "nobody's failure"
    assert len(place.started(gang)) == len(set(place.started(gang))), "nobody twice"
    place.finish(gang)
    place.until(gang, "completed")
