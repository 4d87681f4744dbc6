"""Tests for setting quotas over REST."""

import pytest
from django.utils import timezone

from projects.models import Audit, Quota
from scheduler.models import QueueStatus
from tests import factories
from tests.api.conftest import Caller
from tests.cast import Cast

NEW = {"If-None-Match": "*"}
VISION_QUOTA = "quotas/projects/vision/local"


def test_quota_is_created_read_and_edited_with_an_etag(cast: Cast, bob: Caller) -> None:
    factories.quota(cast.research, cast.pool, 8)
    made = bob("PUT", VISION_QUOTA, {"gpu": 4, "weight": 2, "limit": {"gpu": 6}}, headers=NEW)
    assert (made.status_code, made["ETag"]) == (201, '"1"')
    assert made.json() == {
        "owner": {"kind": "project", "name": "vision"},
        "pool": "local",
        "pools": None,
        "gpu": 4.0,
        "cpu": None,
        "memory_mib": None,
        "limit": {"gpu": 6.0, "cpu": None, "memory_mib": None},
        "weight": 2.0,
        "over_quota": True,
        "rank": None,
        "version": 1,
        "status": None,
        "warnings": [],
    }
    read = bob.get(VISION_QUOTA)
    assert (read["ETag"], {**read.json(), "warnings": []}) == ('"1"', made.json())
    changed = bob("PUT", VISION_QUOTA, {"gpu": 2.5}, headers={"If-Match": read["ETag"]})
    assert (changed.status_code, changed["ETag"], changed.json()["gpu"]) == (200, '"2"', 2.5)
    assert changed.json()["limit"]["gpu"] == 6.0


def test_edit_without_the_current_version_is_rejected(bob: Caller) -> None:
    assert bob("PUT", VISION_QUOTA, {"gpu": 1}).status_code == 428
    assert bob("PUT", VISION_QUOTA, {"gpu": 1}, headers={"If-Match": '"1"'}).status_code == 412
    bob("PUT", VISION_QUOTA, {"gpu": 1}, headers=NEW)
    assert bob("PUT", VISION_QUOTA, {"gpu": 2}).status_code == 428
    assert bob("PUT", VISION_QUOTA, {"gpu": 2}, headers=NEW).status_code == 412
    assert bob("PUT", VISION_QUOTA, {"gpu": 2}, headers={"If-Match": '"7"'}).status_code == 412
    assert bob("PUT", VISION_QUOTA, {"gpu": 2}, headers={"If-Match": 'W/"1"'}).status_code == 412
    assert bob("DELETE", VISION_QUOTA).status_code == 428
    assert Quota.objects.get().gpu_milli == 1000
    assert bob("PUT", VISION_QUOTA, {"gpu": 2}, headers={"If-Match": '"9", "1"'}).status_code == 200
    assert bob("DELETE", VISION_QUOTA, headers={"If-Match": '"2"'}).status_code == 204
    assert bob.get(VISION_QUOTA).status_code == 404


def test_error_names_the_invalid_amount_and_nothing_is_stored(bob: Caller) -> None:
    for values, path in (
        ({"gpu": -1}, "gpu"),
        ({"gpu": 0.0001}, "gpu"),
        ({"gpu": True}, "gpu"),
        ({"gpu": "8"}, "gpu"),
        ({"cpu": 1e30}, "cpu"),
        ({"gpus": 1}, "gpus"),
        ({"limit": {"gpu": "2"}}, "limit.gpu"),
        ({"limit": {"disk": 1}}, "limit.disk"),
        ({"limit": 3}, "limit"),
        ({"weight": -1}, "weight"),
        ({"weight": {"gpu": -1}}, "weight.gpu"),
        ({"over_quota": "yes"}, "over_quota"),
        ({"rank": 1.5}, "rank"),
        ({"rank": 10**9}, "rank"),
        ({"memory_mib": 10**13}, "memory_mib"),
    ):
        answer = bob("PUT", VISION_QUOTA, values, headers=NEW)
        assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, path)
    assert bob("PUT", VISION_QUOTA, {"gpu": 5, "limit": {"gpu": 4}}, headers=NEW).status_code == 422
    assert not Quota.objects.exists()
    assert not Audit.objects.filter(action="set_quota").exists()


@pytest.mark.heavy
def test_saving_a_quota_above_the_department_quota_returns_the_same_warning_as_the_preview(
    cast: Cast, alice: Caller, bob: Caller
) -> None:
    factories.quota(cast.research, cast.pool, 2)
    change = {"project": "vision", "pool": "local", "set": {"gpu": 99}}
    predicted = bob("POST", "quotas/preview", {"changes": [change]}).json()["warnings"]
    made = bob("PUT", VISION_QUOTA, {"gpu": 99}, headers=NEW)
    assert made.status_code == 201
    assert made.json()["warnings"] == predicted
    (warning,) = predicted
    assert warning["message"] == (
        "Project quotas in research add up to 99 GPUs, more than the department's own quota (2 GPUs). "
        "Not all of them can be used at the same time."
    )
    again = bob("PUT", VISION_QUOTA, {"gpu": 2}, headers={"If-Match": made["ETag"]})
    assert again.json()["warnings"] == []
    of_department = alice("PUT", "quotas/departments/research/local", {"gpu": 1}, headers={"If-Match": '"1"'})
    assert "projects_above_department" in [warning["code"] for warning in of_department.json()["warnings"]]


@pytest.mark.heavy
def test_quota_response_includes_fair_share_and_allocation_from_the_last_cycle(
    cast: Cast, carol: Caller, bob: Caller
) -> None:
    bob("PUT", VISION_QUOTA, {"gpu": 4}, headers=NEW)
    QueueStatus.objects.create(
        pool=cast.pool, project=cast.vision, share=[5000, 2000, 10], allocated=[2500, 0, 0],
        reserved=[1000, 0, 0],
        requested=[8000, 0, 0], usage=[0.25, 0, 0], at=timezone.now(),
    )  # fmt: skip
    status = carol.get("quotas", pool="local", project="vision").json()["items"][0]["status"]
    assert status["share"] == {"gpu": 5.0, "cpu": 2.0, "memory_mib": 10}
    assert (status["allocated"]["gpu"], status["reserved"]["gpu"]) == (2.5, 1)
    assert status["usage"]["gpu"] == 0.25


def test_only_department_admins_set_project_quotas(
    carol: Caller, dave: Caller, erin: Caller, frank: Caller, alice: Caller
) -> None:
    for caller, status in ((carol, 403), (dave, 403), (erin, 403), (frank, 404)):
        assert caller("PUT", VISION_QUOTA, {"gpu": 1}, headers=NEW).status_code == status
    assert not Quota.objects.exists()
    assert alice("PUT", "quotas/departments/research/local", {"gpu": 8}, headers=NEW).status_code == 201
    assert carol.get("quotas/departments/research/local").status_code == 404
    assert alice("PUT", "quotas/departments/research/moon", {"gpu": 8}, headers=NEW).status_code == 404
