"""Browser test data: recent cycles whose decisions agree with the workloads and evictions."""

from collections.abc import Iterable
from typing import Any

from projects.models import Pod
from tests import factories as make

LAST_CYCLE = 812  # the cycle that evaluated the pending workloads


def create_decisions(scene: Any) -> None:
    for number, name, minutes in (
        (640, "diffusion-xl", 214),
        (716, "segment-eval", 110),
        (722, "whisper-tune", 97),
    ):
        workload = scene.workloads[name]
        handle = f"{workload.project.name}/{name}"
        bundle = _bundle("start", handle, _steps("place", handle, workload.pods.order_by("index")))
        _cycle(number, minutes, [bundle], trigger="workload")
    ranking = scene.workloads["ctr-nightly"]
    stopped = [
        {
            "do": "stop",
            "workload": "vision/detr-long",
            "role": "worker",
            "index": n,
            "node": "train-2",
            "devices": [n],
        }
        for n in range(4)
    ]
    reserved = _steps("reserve", "ads/ctr-nightly", ranking.pods.order_by("index"))
    reclaim = _bundle("reclaim", "ads/ctr-nightly", [*stopped, *reserved])
    _cycle(803, 12, [reclaim], trigger="workload", evictions=1, trials=2)
    _cycle(LAST_CYCLE, 0.1, [], trigger="tick")


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
