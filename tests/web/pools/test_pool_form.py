"""Tests for the sections of the pool form and the fields of each provider's settings."""

import pytest
from django.test import Client

from pools.models import NodePool
from pools.providers.settings import MODELS
from pools.web.duration_field import DurationField, format_exactly
from pools.web.memory_field import MemoryField
from pools.web.pool_sections import EXPLANATIONS, NAMES
from tests.cast import Cast
from tests.web.conftest import SignIn
from tests.web.test_forms import errors

HTMX = {"HX-Request": "true"}
EC2_POOL = {
    "name": "cloud", "provider": "aws", "runtime": "fake", "nodes_min": "0", "nodes_max": "3",
    "gpus_per_node": "1", "cpu": "4", "memory_mib": "15000", "node_placement": "binpack",
    "autoscale_cooldown": "30", "autoscale_idle_timeout": "60", "drain_timeout": "600",
    "boot_timeout": "900", "image_mode": "allow", "boot_failure_limit": "5",
    "node_consolidation": "never", "node_consolidation_after": "300",
    "reclaim_min_runtime": "0", "preempt_min_runtime": "0",
    "aws_region": "eu-central-1", "aws_instance_types": "g6.xlarge\ng6.2xlarge", "aws_subnets": "subnet-0a",
    "aws_image": "ami-0a", "aws_purchase": "spot", "aws_spot_allocation": "price-capacity-optimized",
    "aws_on_demand_allocation": "lowest-price", "aws_root_device": "/dev/xvda",
}  # fmt: skip


@pytest.fixture
def alice(sign_in: SignIn) -> Client:
    return sign_in("alice")


def test_each_provider_has_its_own_settings_fields(cast: Cast, alice: Client) -> None:
    wrong = {**EC2_POOL, "aws_region": "moon", "aws_instance_types": "g6.xlarge\nG6"}
    shown = errors(alice.post("/node-pools/new", wrong, headers=HTMX))
    assert sorted(shown) == ["aws_instance_types", "aws_region"]
    assert shown["aws_instance_types"][0].startswith("Entry 2: ")
    assert "aws_region" in errors(alice.post("/node-pools/new", {**EC2_POOL, "aws_region": ""}, headers=HTMX))
    assert alice.post("/node-pools/new", EC2_POOL, headers=HTMX).status_code == 204
    pool = NodePool.objects.get(name="cloud")
    assert pool.provider_settings == {
        "region": "eu-central-1", "instance_types": ["g6.xlarge", "g6.2xlarge"], "subnets": ["subnet-0a"],
        "image": "ami-0a", "purchase": "spot",
    }  # fmt: skip
    page = alice.get("/node-pools/cloud/settings").context["form"]
    assert page["aws_instance_types"].value() == "g6.xlarge\ng6.2xlarge"
    assert page["aws_purchase"].value() == "spot"
    assert not [name for name in page.fields if name.startswith("kube")]


def test_pool_form_stores_nested_settings_and_the_default_runtime(cast: Cast, alice: Client) -> None:
    common = {name: value for name, value in EC2_POOL.items() if not name.startswith("aws_")}
    filled = {
        **common, "provider": "kubernetes", "runtime": "", "kubernetes_in_cluster": "on",
        "kubernetes_node_selector": "gpu: a100", "kubernetes_tolerations": "- key: gpu",
        "kubernetes_gpu_resource": "nvidia.com/gpu", "kubernetes_gpu_model_label": "nvidia.com/gpu.product",
        "kubernetes_gpu_memory_label": "nvidia.com/gpu.memory",
    }  # fmt: skip
    bad = {**filled, "kubernetes_tolerations": "- kye: gpu"}
    shown = errors(alice.post("/node-pools/new", bad, headers=HTMX))
    assert any("Entry 1, kye: " in error for error in shown["kubernetes_tolerations"])
    no_yaml = {**filled, "kubernetes_node_selector": "gpu: [a100"}
    shown = errors(alice.post("/node-pools/new", no_yaml, headers=HTMX))
    assert shown["kubernetes_node_selector"][0].startswith("This is not valid YAML")
    assert alice.post("/node-pools/new", filled, headers=HTMX).status_code == 204
    pool = NodePool.objects.get(name="cloud")
    assert pool.runtime == "kubernetes"
    assert pool.provider_settings == {
        "in_cluster": True, "node_selector": {"gpu": "a100"}, "tolerations": [{"key": "gpu"}],
    }  # fmt: skip
    page = alice.get("/node-pools/cloud/settings").context["form"]
    assert page["kubernetes_node_selector"].value() == "gpu: a100"


@pytest.mark.heavy
def test_every_pool_form_field_is_in_exactly_one_section(cast: Cast, alice: Client) -> None:
    assert {*NAMES} >= {*EXPLANATIONS} == {*MODELS}
    for path in ("/node-pools/new", "/node-pools/local/settings"):
        form = alice.get(path).context["form"]
        shown = [field.name for part in form.bound_sections() for field in part.fields]
        assert sorted(shown) == sorted(field.name for field in form.visible_fields())


@pytest.mark.heavy
def test_collapsed_section_with_an_invalid_field_is_expanded(cast: Cast, alice: Client) -> None:
    answer = alice.post("/node-pools/new", {**EC2_POOL, "drain_timeout": "-1"}, headers=HTMX)
    folded = {part.section.title: not part.is_open for part in answer.context["form"].bound_sections()}
    assert (folded["Scaling"], folded["Limits"]) == (False, True)


def test_durations_are_entered_and_shown_with_units(cast: Cast, sign_in: SignIn) -> None:
    alice, at = sign_in("alice"), f"/node-pools/{cast.pool.name}/settings"
    NodePool.objects.filter(pk=cast.pool.pk).update(
        autoscale_cooldown=90, drain_timeout=5400, boot_timeout=900, reclaim_min_runtime=0
    )
    page = alice.get(at)
    form = page.context["form"]
    shown = {
        name: form[name].value()
        for name in ("autoscale_cooldown", "drain_timeout", "boot_timeout", "reclaim_min_runtime")
    }
    assert shown == {
        "autoscale_cooldown": "90 s", "drain_timeout": "1 h 30 min", "boot_timeout": "15 min",
        "reclaim_min_runtime": "0 s",
    }  # fmt: skip
    assert "(s)<" not in page.content.decode(), "labels need no unit"
    values = {name: "" if (value := form[name].value()) is None else value for name in form.fields}
    values |= {"memory_from_request": "on", "drain_timeout": "2h", "boot_timeout": "10 minutes"}
    answer = alice.post(at, values | {"autoscale_cooldown": "45"}, headers=HTMX)
    assert answer.status_code == 204, answer.content.decode()
    pool = NodePool.objects.get(pk=cast.pool.pk)
    assert (pool.autoscale_cooldown, pool.drain_timeout, pool.boot_timeout) == (45, 7200, 600)
    answer = alice.post(at, values | {"drain_timeout": "soon", "version": pool.version}, headers=HTMX)
    assert answer.status_code == 422
    assert "Enter a duration, for example 90 s, 10 min or 1 h 30 min." in answer.content.decode()


@pytest.mark.parametrize("seconds", [0, 1, 59, 60, 61, 90, 599, 601, 3600, 3661, 86_400, 90_061, 864_000])
def test_formatted_duration_preserves_the_number_of_seconds(seconds: int) -> None:
    assert DurationField(label="", initial=0).clean(format_exactly(seconds)) == seconds


@pytest.mark.parametrize("mib", [1, 1500, 16384, 1_048_576, 1_049_088, 1_048_704, 2_097_280, 2**30])
def test_memory_field_accepts_every_amount_that_it_shows(mib: int) -> None:
    field = MemoryField(max_length=20)
    assert field.clean(field.prepare_value(mib)) == mib


def test_pool_form_can_be_saved_with_the_memory_that_it_shows(cast: Cast, alice: Client) -> None:
    assert (
        alice.post("/node-pools/new", EC2_POOL | {"memory_mib": "2097280"}, headers=HTMX).status_code == 204
    )
    form = alice.get("/node-pools/cloud/settings").context["form"]
    assert form["memory_mib"].value() == "2,048.125 GiB"
    values = {name: "" if (value := form[name].value()) is None else value for name in form.fields}
    assert alice.post("/node-pools/cloud/settings", values, headers=HTMX).status_code == 204
    assert NodePool.objects.get(name="cloud").memory_mib == 2_097_280
