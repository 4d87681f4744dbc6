"""Tests for a Ray pool with real raylets, including killed raylets."""

import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.contracts.pods import alive
from tests.journeys.installation import ROOT, Installation, until
from tests.journeys.on_ray.ray_installation import POOL, WORKS, RayInstallation, add_ray_pool

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def installation(berth: Installation) -> Iterator[RayInstallation]:
    yield add_ray_pool(berth)
    berth.end(signal.SIGINT)
    assert berth.processes() == {}, "raylets end with Berth"


@pytest.fixture(autouse=True)
def _cancel_workloads(installation: RayInstallation) -> Iterator[None]:
    yield
    installation.cancel_all()


@pytest.mark.heavy
def test_gang_runs_on_the_chosen_nodes_and_devices(installation: RayInstallation) -> None:
    # The pool scales up from zero nodes. Logs are readable while the gang runs. Exit codes are reported.
    gang = installation.submit(installation.dave, "gang", WORKS + "exit $((RANK * 7))")
    installation.until(gang, "running")
    pods, nodes = installation.pods(gang), installation.nodes()
    assert sorted(str(pod.node) for pod in pods) == ["cluster-0", "cluster-1"]
    for pod in pods:
        assert pod.node is not None
        rank, world, run, node, sees, where = installation.pod_output(gang, pod)
        assert (rank, world, run, node) == (str(pod.rank), "2", "1", pod.node)
        assert sees == installation.devices[pod.node]
        assert f"/{nodes[pod.node].instance_id}/" in where
    output = b""
    for piece in installation.dave.client().workloads.log_stream(gang.id, pod="worker-0"):
        output += piece
        if b"step 20\n" in output:
            break
    with ThreadPoolExecutor() as threads:
        follows = threads.submit(
            installation.dave.berth, "logs", "--follow", "gang", "--pod", "worker-1", exits=10
        )
        until(lambda: "step 30" in installation.log(gang, pods[1]))
        installation.finish(gang)
        failed = installation.until(gang, "failed")
        steps = re.findall(r"^step (\d+)$", follows.result(), re.MULTILINE)
    assert [int(step) for step in steps] == list(range(1, len(steps) + 1)), "every line, once, in order"
    assert len(steps) >= 30
    assert failed.exit_code == 7
    assert [(pod.state, pod.exit_code) for pod in installation.pods(gang)] == [
        ("succeeded", 0),
        ("failed", 7),
    ]


@pytest.mark.heavy
def test_pods_on_ray_start_in_the_directory_with_their_code(
    installation: RayInstallation, tmp_path: Path
) -> None:
    (tmp_path / "run.sh").write_text('test "$PWD" = "$BERTH_CODE_DIR" && echo "code on $BERTH_NODE"\n')
    client = installation.dave.client()
    role = {"name": "worker", "replicas": 2, "gpu": 2, "cpu": 0.1, "memory_mib": 64}
    document = {"name": "code", "project": "vision", "pools": [POOL], "command": "sh run.sh", "roles": [role]}
    workload = client.workloads.submit(document, code=tmp_path)
    installation.until(workload, "completed")
    logs = sorted(installation.log(workload, pod) for pod in installation.pods(workload))
    assert logs == ["code on cluster-0\n", "code on cluster-1\n"]


@pytest.mark.heavy
def test_restarted_scheduler_adopts_its_pods_and_starts_no_pod_twice(installation: RayInstallation) -> None:
    gang = installation.submit(installation.dave, "outlives")
    installation.until(gang, "running")
    before = {pod.id: pod.started_at for pod in installation.pods(gang)}
    killed = installation.berth.children()["scheduler"]
    os.kill(killed, signal.SIGKILL)
    until(lambda: installation.berth.children().get("scheduler", killed) != killed)
    later = installation.submit(installation.dave, "later", "echo hello", replicas=1)
    installation.until(later, "completed")
    assert installation.dave.client().workloads.get(gang.id).phase == "running"
    installation.finish(gang)
    ended = installation.until(gang, "completed")
    assert (ended.run, ended.preemptions, ended.restarts) == (1, 0, 0)
    assert {pod.id: pod.started_at for pod in installation.pods(gang)} == before
    assert sorted(installation.started(gang)) == sorted(before)


@pytest.mark.heavy
def test_borrowing_workload_on_ray_is_reclaimed_and_restarts_later(installation: RayInstallation) -> None:
    borrower = installation.submit(installation.dave, "borrower")
    installation.until(borrower, "running")
    first = installation.pods(borrower)
    until(lambda: "step 5" in installation.log(borrower, first[0]))
    preemptor = installation.submit(installation.grace, "within-quota")
    installation.until(preemptor, "running")
    assert installation.dave.client().workloads.get(borrower.id).preemptions == 1
    for pod in first:
        assert installation.log(borrower, pod).endswith("asked to end\n"), "it was not killed immediately"
    [eviction] = installation.dave.json("evictions", "--workload", "borrower")
    assert (eviction["kind"], eviction["preemptor_project"]) == ("reclaim", "ads")
    installation.finish(preemptor)
    installation.until(preemptor, "completed")
    again = installation.until(borrower, "running")
    assert again.run == 2
    assert {pod.id for pod in installation.pods(borrower)}.isdisjoint(pod.id for pod in first)
    installation.finish(borrower)
    installation.until(borrower, "completed")
    assert len(installation.started(borrower)) == 4


@pytest.mark.heavy
def test_elastic_gang_uses_free_gpus_until_an_in_quota_workload_needs_them(
    installation: RayInstallation,
) -> None:
    roles = [{"name": "worker", "min": 1, "max": 3, "gpu": 2, "cpu": 0.1, "memory_mib": 64}]
    elastic = installation.submit(installation.dave, "elastic", kind="elastic", roles=roles)
    installation.until_pods(elastic, 3)
    [oldest] = [pod for pod in installation.pods(elastic) if pod.rank == 0]
    preemptor = installation.submit(installation.grace, "needs-two")
    installation.until(preemptor, "running")
    installation.until_pods(elastic, 1)
    assert installation.dave.client().workloads.get(elastic.id).phase == "running"
    installation.finish(preemptor)
    installation.until_pods(elastic, 3)
    assert [pod.id for pod in installation.pods(elastic) if pod.rank == 0 and pod.state == "running"] == [
        oldest.id
    ]
    installation.finish(elastic)
    assert installation.until(elastic, "completed").run == 1
    assert len(installation.started(elastic)) == 5, "three pods, then the two that were added again"


RAY_PROGRAM = """
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
def test_ray_cluster_of_a_gang_is_isolated_from_the_pools_cluster(
    installation: RayInstallation,
) -> None:
    # Tasks and the joblib backend use exactly the gang's devices. The exit code comes from rank 0.
    count_variables = 'env | grep -c "^RAY_" > "$BERTH_WORKSPACE/ray-$RANK"; '
    command = f"{count_variables} exec python -m berth.worker.own_ray python -c '{RAY_PROGRAM}'"
    ours = {"PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"}  # the installed package may be another checkout
    gang = installation.submit(installation.dave, "own-ray", command, memory_mib=1024, env=ours)
    installation.until(gang, "running")
    nodes = installation.nodes()
    first, second = installation.pods(gang)
    ended = installation.until(gang, "failed")
    log = installation.log(gang, first)
    here = sorted(
        [(nodes[str(pod.node)].address, installation.devices[str(pod.node)]) for pod in (first, second)]
    )
    lines = log.splitlines()
    assert (str(here) in lines, lines[-1]) == (True, "285"), log + installation.log(gang, second)
    assert ended.exit_code == 3
    assert installation.written(gang, "ray-0") == installation.written(gang, "ray-1") == "0\n"


@pytest.mark.heavy
@pytest.mark.parametrize(("is_head", "grace", "runs"), [(False, 600, 1), (False, 0, 2), (True, 600, 1)])
def test_node_with_a_killed_agent_is_lost_and_its_gang_recovers_elsewhere(
    installation: RayInstallation, is_head: bool, grace: int, runs: int
) -> None:
    # With a grace period, the gang keeps its other pods. Without one, it restarts.
    gang = installation.submit(
        installation.dave, f"survivor-{grace}-{is_head}".lower(), replicas=3, stale_gang_grace=grace
    )
    installation.until(gang, "running")
    lost_node = next(
        node
        for node in installation.nodes().values()
        if (installation.part(node, "gcs_server") is not None) == is_head
    )
    worker = next(pod for pod in installation.pods(gang) if pod.node == lost_node.name)
    os.kill(installation.process(lost_node), signal.SIGKILL)
    installation.until_pods(gang, 3, run=runs, without=worker)
    again = installation.until(gang, "running")
    assert (again.run, again.restarts, again.preemptions) == (runs, 0, 0), (
        "not counted as a restart or an eviction"
    )
    instances = {
        installation.nodes()[str(pod.node)].instance_id
        for pod in installation.pods(gang)
        if pod.state == "running"
    }
    assert len(instances) == 3
    assert lost_node.instance_id not in instances
    assert [pod.state for pod in installation.pods(gang, run=1) if pod.id == worker.id] == ["lost"]
    history = [(event.kind, event.node) for event in installation.admin.client().node_pools.history(POOL)]
    assert ("lost", lost_node.name) in history
    installation.finish(gang)
    installation.until(gang, "completed")
    assert len(installation.started(gang)) == (4 if runs == 1 else 6), "no pod is started twice"


@pytest.mark.heavy
@pytest.mark.parametrize("part", ["raylet", "gcs_server"])
def test_pods_continue_while_ray_restarts_after_being_killed(
    installation: RayInstallation, part: str
) -> None:
    gang = installation.submit(installation.dave, f"without-{part.partition('_')[0]}", replicas=3)
    installation.until(gang, "running")
    before = {node.name: node.instance_id for node in installation.nodes().values()}
    processes = [installation.find_process(gang, pod) for pod in installation.pods(gang)]
    node, killed = next(
        (node, pid) for node in installation.nodes().values() if (pid := installation.part(node, part))
    )
    os.kill(killed, signal.SIGKILL)
    until(lambda: installation.part(node, part) not in (None, killed))
    assert all(alive(pid) for pid in processes)
    installation.finish(gang)
    ended = installation.until(gang, "completed")
    assert (ended.run, ended.restarts, ended.preemptions) == (1, 0, 0)
    assert len(installation.started(gang)) == 3, "no pod is started twice"
    later = installation.submit(installation.dave, f"after-{part.partition('_')[0]}", replicas=3)
    installation.until(later, "running")
    assert {node.name: node.instance_id for node in installation.nodes().values()} == before
    installation.finish(later)
    installation.until(later, "completed")
