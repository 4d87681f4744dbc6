"""Tests that errors for unknown objects suggest the nearest name or a command that lists the objects."""

import pytest

from berth.core.not_found import ObjectKind, not_found_error
from projects.models import Project
from tests import factories as make
from tests.api.conftest import Caller
from tests.cast import Cast

pytestmark = pytest.mark.django_db
UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("projects/visoin", "There is no project named 'visoin'. Did you mean `vision`?"),
        ("projects/zzz", "There is no project named 'zzz'. List projects with `berth project list`."),
        ("node-pools/zzz", "There is no node pool named 'zzz'. List pools with `berth pool list`."),
        (
            f"workloads/{UNKNOWN_ID}",
            f"There is no workload with the ID {UNKNOWN_ID}. List workloads with `berth list --all`.",
        ),
        (
            "subscriptions/999",
            "There is no subscription with the ID 999. List subscriptions with `berth subscription list`.",
        ),
        (
            "projects/vision/templates/zzz",
            (
                "Project vision has no template named 'zzz'. List templates with "
                "`berth template list --project vision`."
            ),
        ),
    ],
)
@pytest.mark.every_case
def test_error_for_an_unknown_object_suggests_a_name_or_a_list_command(
    cast: Cast, dave: Caller, path: str, detail: str
) -> None:
    answer = dave.get(path)
    assert (answer.status_code, answer.json()["detail"]) == (404, detail)


def test_error_never_suggests_a_hidden_project(cast: Cast, dave: Caller) -> None:
    Project.objects.create(department=cast.ads.department, name="secret-merger")
    assert "secret-merger" not in dave.get("projects/secret-mergr").json()["detail"]


def test_errors_for_hidden_and_unknown_workloads_differ_only_in_the_id(cast: Cast, dave: Caller) -> None:
    hidden = str(make.workload(cast.ads, "hidden").pk)
    errors = [
        dave.get(f"workloads/{each}").json()["detail"].replace(each, "") for each in (hidden, UNKNOWN_ID)
    ]
    assert errors[0] == errors[1]


@pytest.mark.parametrize("kind", ObjectKind)
def test_every_object_kind_has_a_list_command(kind: ObjectKind) -> None:
    error = not_found_error(kind, name="x", owner="parent")
    assert "with `berth " in error.detail
