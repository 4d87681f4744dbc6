"""Test of the expected start of an edit that would exceed the project's limit."""

from datetime import timedelta
from typing import Any

from django.test import Client

from projects.models import Workload
from projects.services.workloads import submission
from tests import factories as make
from tests.cast import Cast, training
from tests.support.present import present
from tests.web.conftest import SignIn


def predicted_start(client: Client, workload: Workload, gpus: int) -> str:
    address = f"/workloads/{workload.pk}/edit"
    text = client.get(address).context["text"].replace("gpu: 2", f"gpu: {gpus}")
    answer: Any = client.post(f"{address}/prediction", {"document": text})
    shown = " ".join(answer.content.decode().split())
    return shown.partition("<dt>Expected start</dt>")[2].partition("</dd>")[0]


def test_larger_request_is_not_expected_earlier_than_the_smaller_one(cast: Cast, sign_in: SignIn) -> None:
    node = make.node(cast.pool, gpus=8, cpu_milli=64_000, memory_mib=65_536)
    for owner, gpus in ((cast.research, 8), (cast.product, 8), (cast.ads, 8)):
        make.quota(owner, cast.pool, gpus)
    make.quota(cast.vision, cast.pool, 2, limit_gpu_milli=4000)
    running = {}
    for project, name, devices, hours in (
        (cast.vision, "own", range(2), 2), (cast.ads, "other", range(2, 8), 4),
    ):  # fmt: skip
        running[name] = make.workload(
            project, name, phase="running", run=1, pool=cast.pool, priority=200, preemptible=False,
            started_at=make.ago(hours=1), max_runtime=hours * 3600,
        )  # fmt: skip
        make.place(running[name], node, [*devices])
    roles = [{"replicas": 1, "gpu": 2}]
    pools = [cast.pool.name]
    for name, priority in (("ahead", 90), ("behind", 50)):
        document = training(name, roles=roles, pools=pools, priority=priority, max_runtime=9 * 3600)
        behind = submission.submit(actor=cast.dave, project=cast.vision, document=document)
    client = sign_in("dave")
    start = f'<time datetime="{present(running["other"].started_at) + timedelta(hours=4):%Y-%m-%dT%H:%M:%S}'
    assert f"About {start}" in predicted_start(client, behind, 2)
    exceeding = predicted_start(client, behind, 3)
    assert start in exceeding and exceeding.endswith("at the earliest, when it would start without this edit")
