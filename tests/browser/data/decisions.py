"""Browser test data: recent cycles whose decisions agree with the workloads and evictions."""

from collections.abc import Iterable
from typing import Any

from projects.models import Pod, Workload
from tests import factories as make

LAST_CYCLE = 812  # the cycle that evaluated the pending workloads


def create_decisions(scene: Any) -> None:
    for number, name, minutes, kind, victim, first in (
        (640, "diffusion-xl", 216, "preempt", "vit-baseline", 0),
        (716, "segment-eval", 110, "start", "", 0),
        (722, "whisper-tune", 97, "reclaim", "segment-eval", 4),
        (741, "embedding-refresh", 66, "start", "", 0),
        (789, "sim-debug", 18, "start", "", 0),
        (790, "grasp-notebook", 18, "start", "", 0),
    ):
        workload = scene.workloads[name]
        handle = f"{workload.project.name}/{name}"
        stopped = _stops(victim, "train-1" if first else "train-0", range(first, first + 2)) if victim else []
        placed = _steps("reserve" if victim else "place", handle, workload.pods.order_by("index"))
        bundle = _bundle(kind, handle, [*stopped, *placed])
        _cycle(number, minutes, [bundle], trigger="workload", evictions=bool(victim))
    ranking = scene.workloads["ctr-nightly"]
    reserved = _steps("reserve", "ads/ctr-nightly", ranking.pods.order_by("index"))
    stopped = _stops("detr-long", "train-2", range(4))
    reclaim = _bundle("reclaim", "ads/ctr-nightly", [*stopped, *reserved])
    _cycle(803, 12, [reclaim], trigger="workload", evictions=1, trials=2)
    _cycle(LAST_CYCLE, 0.1, [], trigger="tick")


def create_service_start(workload: Workload, minutes: float) -> None:
    """Create the cycle that started a service's initial engines."""
    handle = f"{workload.project.name}/{workload.name}"
    placed = _steps("place", handle, workload.pods.order_by("index"))
    bundle = _bundle("start", handle, placed) | {"pool": "serve"}
    _cycle(560, minutes, [bundle], trigger="workload")


def _stops(name: str, node: str, indexes: Iterable[int]) -> list[dict[str, Any]]:
    """Return the steps that stop pods of project vision. Each pod uses the device with the same index."""
    return [
        {
            "do": "stop",
            "workload": f"vision/{name}",
            "role": "worker",
            "index": index,
            "node": node,
            "devices": [index],
        }
        for index in indexes
    ]


def _cycle(number: int, minutes: float, bundles: list[dict[str, Any]], **columns: Any) -> None:
    make.cycle(
        id=number,
        at=make.ago(minutes=minutes),
        observe_ms=3.1,
        nodes=4,
        workloads=15,
        pending=5,
        bundles=len(bundles),
        applied=len(bundles),
        plan={"bundles": bundles, "stale": []},
        **columns,
    )


def _bundle(kind: str, workload: str, steps: list[dict[str, Any]]) -> dict[str, Any]:
    return {"kind": kind, "pool": "train", "workload": workload, "message": "", "steps": steps}


def _steps(do: str, workload: str, pods: Iterable[Pod]) -> list[dict[str, Any]]:
    return [
        {
            "do": do,
            "workload": workload,
            "role": pod.role,
            "index": pod.index,
            "node": pod.allocation.node.name,
            "devices": pod.allocation.devices,
        }
        for pod in pods
    ]
