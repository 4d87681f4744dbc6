"""Tests for evictions and cycles over REST, and for access to metrics."""

import csv
import io
import os
import subprocess
import sys
import uuid
from datetime import timedelta
from ipaddress import ip_network
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from pools.models import Node
from projects.services import workloads
from scheduler.models import Cycle, Eviction
from tests.api.conftest import Caller
from tests.cast import Cast, training
from tests.conftest import ROOT
from tests.support.scraping import scraped


@pytest.fixture
def evictions(cast: Cast) -> list[Eviction]:
    """Create three evictions: ads reclaims from vision, search preempts ads, and vision is moved."""

    def eviction(kind: str, victim: Any, preemptor: Any, **changes: Any) -> Eviction:
        return Eviction.objects.create(
            **{
                "kind": kind, "pool_id": cast.pool.pk, "pool_name": "local", "workload_id": uuid.uuid4(),
                "workload_name": f"{victim.name}-job", "project_id": victim.pk, "project_name": victim.name,
                "department_id": victim.department_id, "department_name": victim.department.name,
                "preemptor_id": uuid.uuid4() if preemptor else None,
                "preemptor_name": f"{preemptor.name}-job" if preemptor else "",
                "preemptor_project_id": preemptor.pk if preemptor else None,
                "preemptor_project_name": preemptor.name if preemptor else "",
                "rule": "A borrower gives back.", "numbers": {"quota": 4000}, "gpu_milli": 2500,
            }
            | changes
        )  # fmt: skip

    return [
        eviction("reclaim", cast.vision, cast.ads),
        eviction("preempt", cast.ads, cast.search, workload_name="=cmd"),
        eviction("consolidate", cast.vision, None),
    ]


def kinds(answer: Any) -> list[str]:
    return [item["kind"] for item in answer.json()["items"]]


def test_evictions_are_visible_to_the_projects_of_the_victim_and_the_preemptor(
    evictions: list[Eviction], dave: Caller, frank: Caller, alice: Caller, caller: Any
) -> None:
    assert kinds(alice.get("evictions")) == ["consolidate", "preempt", "reclaim"]
    assert kinds(dave.get("evictions")) == ["consolidate", "reclaim"]
    assert kinds(caller("grace").get("evictions")) == ["preempt", "reclaim"]
    assert kinds(frank.get("evictions")) == []
    assert dave.get(f"evictions/{evictions[0].pk}").json()["gpus"] == 2.5
    assert dave.get(f"evictions/{evictions[1].pk}").status_code == 404


def test_evictions_can_be_filtered(evictions: list[Eviction], alice: Caller) -> None:
    def filtered_kinds(**query: str) -> list[str]:
        return kinds(alice.get("evictions", **query))

    assert filtered_kinds(kind="reclaim") == ["reclaim"]
    assert filtered_kinds(project="vision") == ["consolidate", "reclaim"]
    assert filtered_kinds(preemptor="search") == filtered_kinds(preemptor="search-job") == ["preempt"]
    assert filtered_kinds(workload=str(evictions[0].workload_id)) == ["reclaim"]
    assert alice.get("evictions", pool="moon").status_code == 422
    later = (timezone.now() + timedelta(hours=1)).isoformat()
    assert (filtered_kinds(since=later), len(filtered_kinds(until=later))) == ([], 3)
    assert alice.get("evictions", kind="revenge").status_code == 422


@pytest.mark.heavy
def test_eviction_csv_escapes_formulas(evictions: list[Eviction], alice: Caller) -> None:
    answer = alice.get("evictions", format="csv")
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(b"".join(answer.streaming_content).decode())))
    assert [row["kind"] for row in rows] == ["consolidate", "preempt", "reclaim"]
    assert rows[1]["workload_name"] == "'=cmd"
    assert rows[2]["gpus"] == "2.5"


@pytest.mark.heavy
def test_workload_response_lists_its_evictions_as_victim_and_as_preemptor(
    cast: Cast, evictions: list[Eviction], dave: Caller
) -> None:
    workload = workloads.submit(actor=cast.dave, project=cast.vision, document=training())
    for changes in ({"workload_id": workload.pk}, {"preemptor_id": workload.pk}):
        row = Eviction.objects.get(pk=evictions[0].pk)
        row.pk = None
        for name, value in changes.items():
            setattr(row, name, value)
        row.save(force_insert=True)
    assert kinds(dave.get(f"workloads/{workload.pk}/evictions")) == ["reclaim", "reclaim"]


def test_only_platform_admins_see_scheduling_cycles(alice: Caller, bob: Caller) -> None:
    cycle = Cycle.objects.create(epoch=1, trigger="tick", decide_ms=1.5, plan={"decisions": []})
    detail = alice.get(f"cycles/{cycle.pk}").json()
    assert (detail["decide_ms"], detail["plan"], detail["scenario"]) == (1.5, {"decisions": []}, None)
    assert "plan" not in alice.get("cycles").json()["items"][0]
    assert bob.get("cycles").json() == {"items": [], "next": None}
    assert bob.get(f"cycles/{cycle.pk}").status_code == 404


def test_metrics_are_computed_from_the_database(cast: Cast, evictions: list[Eviction]) -> None:
    workloads.submit(actor=cast.dave, project=cast.vision, document=training())
    Node.objects.create(
        pool=cast.pool, name="local-0", ordinal=0, state="ready", instance_id="i-0",
        gpus=2, cpu_milli=8000, memory_mib=16384, since=timezone.now(),
    )  # fmt: skip
    for number in range(1, 4):
        Cycle.objects.create(epoch=1, trigger="tick", decide_ms=number * 10.0)
    text = scraped()
    for line in (
        'berth_workloads{phase="pending"} 1.0',
        'berth_pool_nodes{pool="local",state="ready"} 1.0',
        'berth_pool_gpus{pool="local"} 2.0',
        'berth_cycle_seconds{quantile="0.5",step="decide"} 0.02',
        'berth_evictions_total{kind="reclaim"} 1.0',
    ):
        assert line in text


def test_metrics_require_a_token_even_from_loopback(
    db: None, alice: Caller, bob: Caller, caller: Any, settings: Any
) -> None:
    # Requests from loopback need a token too, because tenants' pods run on the server's machine.
    for address in ("127.0.0.1", "::1", "203.0.113.9"):
        answer = Client().get("/metrics", REMOTE_ADDR=address)
        assert answer.status_code == 401
        assert "BERTH_METRICS_TOKEN" in answer.json()["detail"]
    for sent, status in (
        (f"Bearer {alice.secret}", 200), (f"Bearer {bob.secret}", 403),
        (f"Bearer {caller('alice', 'read').secret}", 403), (f"Bearer {settings.BERTH_METRICS_TOKEN}", 200),
        (f"Basic {settings.BERTH_METRICS_TOKEN}", 401), ("Bearer ", 401), ("Bearer guess", 401),
    ):  # fmt: skip
        assert Client().get("/metrics", headers={"Authorization": sent}).status_code == status, sent


@pytest.mark.heavy
def test_query_parameters_of_a_metrics_request_are_ignored(db: None, settings: Any) -> None:
    headers = {"Authorization": f"Bearer {settings.BERTH_METRICS_TOKEN}"}
    assert Client().get("/metrics", {"collect[]": "nodes"}, headers=headers).status_code == 200


def test_metrics_token_is_valid_only_for_metrics(db: None, settings: Any) -> None:
    headers = {"Authorization": f"Bearer {settings.BERTH_METRICS_TOKEN}"}
    assert Client().get("/api/v1/whoami", headers=headers).status_code == 401


def test_metrics_are_readable_from_an_allowed_network_but_not_through_a_proxy(
    db: None, settings: Any
) -> None:
    settings.BERTH_METRICS_NETWORKS = [ip_network("10.0.0.5/32"), ip_network("fd00::/8")]
    for address, status in (("10.0.0.5", 200), ("::ffff:10.0.0.5", 200), ("fd00::1", 200), ("10.0.0.6", 401)):
        assert Client().get("/metrics", REMOTE_ADDR=address).status_code == status, address
    for header in ("X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"):
        answer = Client().get("/metrics", headers={header: "10.0.0.5"}, REMOTE_ADDR="10.0.0.5")
        assert answer.status_code == 401, header


def test_server_refuses_to_start_with_an_invalid_metrics_network() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import berth.server.settings"], capture_output=True, text=True, check=False,
        env={**os.environ, "BERTH_METRICS_NETWORKS": "10.0.0.5/33",
             "PYTHONPATH": f"{ROOT}:{ROOT}/platform"},
    )  # fmt: skip
    assert done.returncode != 0
    assert "BERTH_METRICS_NETWORKS: '10.0.0.5/33'" in done.stderr
