"""Tests for the image policies of pools over REST."""

from collections.abc import Callable
from typing import Any

import pytest

from pools.models import Environment, NodePool
from projects.models import Audit
from tests import factories as make
from tests.api.conftest import Caller
from tests.cast import Cast, training

IMAGE = "ghcr.io/org/train:1"
Edit = Callable[..., Any]


@pytest.fixture
def edit(cast: Cast, alice: Caller) -> Edit:
    NodePool.objects.filter(name="local").update(provider="static", runtime="ray")

    def edit_policy(policy: object, pool: str = "local") -> Any:
        etag = alice.get(f"node-pools/{pool}")["ETag"]
        return alice("PATCH", f"node-pools/{pool}", {"image_policy": policy}, headers={"If-Match": etag})

    return edit_policy


def test_image_policy_is_shown_and_audited(edit: Edit, cast: Cast, alice: Caller) -> None:
    assert alice.get("node-pools/local").json()["image_policy"] == {"mode": "allow", "patterns": []}
    policy = {"mode": "require", "patterns": ["ghcr.io/org/*"]}
    assert edit(policy).json()["image_policy"] == policy
    audit = Audit.objects.filter(action="edit").latest("pk")
    assert (audit.before, audit.after) == ({"image_policy": {}}, {"image_policy": policy})
    version = alice.get("node-pools/local").json()["version"]
    assert edit(policy).json()["version"] == version, "an unchanged policy is no change"


def test_error_names_the_invalid_image_policy_field(edit: Edit) -> None:
    rejected = edit({"mode": "allow", "patterns": ["train"]})
    (error,) = rejected.json()["errors"]
    assert (rejected.status_code, error["path"]) == (422, "image_policy.patterns[0]")
    assert error["allowed"].startswith("REGISTRY/NAME")


@pytest.mark.heavy
def test_pool_with_plugins_cannot_require_images(edit: Edit) -> None:
    NodePool.objects.filter(name="local").update(environment={"pip": ["numpy"]})
    (error,) = edit({"mode": "require"}).json()["errors"]
    assert (error["path"], error["allowed"]) == ("image_policy.mode", "allow or forbid")
    assert error["message"].startswith("cannot be combined with plugins or packages")
    assert edit({"mode": "forbid"}).status_code == 200


def test_workload_that_violates_its_pools_policy_is_rejected(edit: Edit, dave: Caller) -> None:
    edit({"mode": "allow", "patterns": ["quay.io/*"]})
    document = training(project="vision", pools=["local"], image=IMAGE)
    (error,) = dave.post("workloads", document).json()["errors"]
    reason = "the image policy of pool local only accepts quay.io/*"
    assert (error["path"], error["message"]) == ("image", f"cannot be used: {reason}")
    assert dave.post("workloads?dry_run=true", document).json()["errors"] == [error]
    edit({"mode": "require"})
    (error,) = dave.post("workloads", training(project="vision")).json()["errors"]
    reason = "pool local only runs workloads with a container image"
    assert (error["path"], error["message"]) == ("image", f"is required: {reason}")
    assert error["allowed"] == "an image"


@pytest.mark.heavy
def test_workload_without_a_pool_is_limited_to_pools_that_accept_its_image(edit: Edit, dave: Caller) -> None:
    make.pool("pods", provider="static", runtime="ray", image_policy={"mode": "require", "patterns": []})
    edit({"mode": "forbid"})
    with_image = dave.post("workloads", training("a", project="vision", image=IMAGE))
    without = dave.post("workloads", training("b", project="vision"))
    assert (with_image.json()["pools"], without.json()["pools"]) == (["pods"], ["local"])
    document = training("c", project="vision", image=IMAGE, pools=["pods", "local"])
    (error,) = dave.post("workloads", document).json()["errors"]
    assert (error["path"], error["allowed"]) == ("pools[1]", "pods")
    assert error["message"] == "cannot be used: the image policy of pool local forbids container images"


@pytest.mark.heavy
def test_pool_with_an_environment_rejects_images(edit: Edit, dave: Caller) -> None:
    environment = Environment.objects.create(
        digest="d" * 64, image={}, script="", created_at=make.ago(hours=1), phases=[]
    )
    NodePool.objects.filter(name="local").update(built_environment=environment)
    (error,) = dave.post("workloads", training(project="vision", image=IMAGE)).json()["errors"]
    reason = "pool local has plugins or packages, which do not work inside a container image"
    assert error["message"] == f"cannot be used: {reason}"
