"""Tests for the impact preview on the quota form."""

from typing import Any

import pytest

from projects.models import Quota
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn

HTMX = {"HX-Request": "true"}
ADDRESS = "/quotas/projects/vision/local"


@pytest.fixture
def pending_workload(cast: Cast) -> None:
    """Create a pending vision workload. A speech workload runs on both GPUs of the node."""
    make.quota(cast.research, cast.pool, 2)
    make.quota(cast.vision, cast.pool, 0)
    holder = make.workload(
        cast.speech, "holder", phase="running", gpus=1, replicas=2, run=1, started_at=make.ago(minutes=30)
    )
    node = make.node(cast.pool)
    make.place(holder, node, [0])
    make.place(holder, node, [1])
    make.workload(cast.vision, "waits", gpus=1, replicas=2)


def form(cast: Cast, **changes: Any) -> dict[str, Any]:
    quota = Quota.objects.get(project=cast.vision)
    return {"gpu": 2, "weight": 1, "over_quota": "on", "version": quota.version, "seen": "{}", **changes}


def test_preview_lists_started_and_reclaimed_workloads(
    cast: Cast, pending_workload: None, sign_in: SignIn
) -> None:
    page = sign_in("bob").post(f"{ADDRESS}/preview", form(cast), headers=HTMX)
    text = page.content.decode()
    assert page.status_code == 200
    assert "Impact on the next cycle" in text
    assert "vision/waits in pool local, 2 GPUs, once the evicted workloads have stopped" in text
    assert "Evicts speech/holder (2 GPUs" in text
    assert "speech/holder" in text
    assert f'hx-post="{ADDRESS}"' in text, "the form can be saved unchanged"
    assert 'value="2"' in text
    assert Quota.objects.get(project=cast.vision).gpu_milli == 0


def test_quota_above_its_limit_is_explained_in_a_sentence(
    cast: Cast, pending_workload: None, sign_in: SignIn
) -> None:
    for path in (ADDRESS, f"{ADDRESS}/preview"):
        page = sign_in("bob").post(path, form(cast, gpu=40, limit_gpu=16), headers=HTMX)
        assert "40 GPUs exceed the limit of 16. Enter at most 16 or raise the limit." in page.content.decode()


@pytest.mark.heavy
def test_invalid_preview_shows_an_error_on_the_field(
    cast: Cast, pending_workload: None, sign_in: SignIn
) -> None:
    for values in ({"gpu": 4, "limit_gpu": 2}, {"gpu": -1}, {"weight": "heavy"}):
        page = sign_in("bob").post(f"{ADDRESS}/preview", form(cast, **values), headers=HTMX)
        assert page.status_code == 422
        text = page.content.decode()
        assert "Impact on the next cycle" not in text
        assert 'aria-invalid="true"' in text


@pytest.mark.heavy
def test_preview_works_without_javascript(cast: Cast, pending_workload: None, sign_in: SignIn) -> None:
    text = sign_in("bob").post(f"{ADDRESS}/preview", form(cast)).content.decode()
    assert "<html" in text
    assert f'formaction="{ADDRESS}/preview"' in text
    assert "Impact on the next cycle" in text


def test_preview_requires_permission_to_set_the_quota(
    cast: Cast, pending_workload: None, sign_in: SignIn
) -> None:
    for name, status in (("carol", 403), ("dave", 403), ("grace", 404), ("frank", 404)):
        assert sign_in(name).post(f"{ADDRESS}/preview", form(cast), headers=HTMX).status_code == status
    assert sign_in("bob").get(f"{ADDRESS}/preview").status_code == 405
    department = "/quotas/departments/research/local/preview"
    assert sign_in("bob").post(department, form(cast), headers=HTMX).status_code == 403
    assert sign_in("alice").post("/quotas/planets/vision/local/preview", form(cast)).status_code == 404
