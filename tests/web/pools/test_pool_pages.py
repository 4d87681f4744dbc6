"""Tests for the pool page and its forms: node chart, cost, scale-down and disruption budgets."""

import re
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from pools.models import Node, NodePool
from pools.services.secrets import SecretContent, set_pool_secret
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn

HTMX = {"HX-Request": "true"}


@pytest.fixture
def alice(sign_in: SignIn) -> Client:
    return sign_in("alice")


@pytest.fixture
def node(cast: Cast) -> Node:
    return make.node(cast.pool, created_at=make.ago(hours=2))


def test_node_chart_matches_its_table(cast: Cast, alice: Client, node: Node) -> None:
    make.scaling(cast.pool, "autoscale", "2 queued", at=make.ago(minutes=5), before=1, after=3)
    text = alice.get("/node-pools/local?span=1h").content.decode()
    assert "now 3 desired, 1 current, 0 pending, 0 draining" in text
    assert '<path class="used" d="M' in text
    rows = re.findall(r'<td class="num">(\d+)</td><td class="num">(\d+)</td><td class="num">(\d+)</td>', text)
    assert ("3", "1", "0") in rows


@pytest.mark.heavy
@pytest.mark.parametrize("span", ["1h", "24h", "7d", "30d", "", "forever", "'\""])
def test_any_time_range_is_accepted(cast: Cast, alice: Client, span: str) -> None:
    assert alice.get("/node-pools/local", {"span": span}).status_code == 200


@pytest.mark.heavy
def test_pool_page_shows_largest_gang_and_cost(cast: Cast, alice: Client, node: Node) -> None:
    cast.pool.price_per_gpu_hour = 1.5
    cast.pool.save()
    text = alice.get("/node-pools/local?tab=capacity").content.decode()
    gpus = node.gpus
    assert f"Largest gang that fits now: 1 \N{MULTIPLICATION SIGN} {gpus} GPU" in text
    per_hour, per_month = f"{1.5 * gpus:.2f}", f"{1.5 * gpus * 720:,.0f}"
    assert "At 1.5 USD per GPU-hour, the current nodes cost " in text
    assert f"cost {per_hour} USD per hour, or about {per_month} USD in 30 days." in text
    assert "A node costs about" in alice.get("/node-pools/local/settings").content.decode()


def test_pool_and_node_pages_warn_if_pods_are_not_isolated(cast: Cast, alice: Client, node: Node) -> None:
    assert "not reported yet" in alice.get(f"/nodes/{node.name}").content.decode()
    node.isolation = {
        "level": "none",
        "policy": "auto",
        "obstacle": "bubblewrap is not installed.",
        "limits": ["memory"],
        "limits_obstacle": "no control groups.",
        "images_obstacle": "podman is not installed.",
        "seccomp": False,
        "seccomp_obstacle": "The kernel does not support seccomp filters.",
    }
    node.save()
    page = alice.get(f"/nodes/{node.name}").content.decode()
    assert "not isolated" in page
    assert "bubblewrap is not installed." in page
    assert "no control groups." in page
    assert "podman is not installed." in page
    assert "not filtered" in page
    assert "The kernel does not support seccomp filters." in page
    assert "Pods are not isolated" in alice.get(f"/node-pools/{node.pool.name}").content.decode()
    node.isolation["level"] = "users"
    node.save()
    assert "separate users" in alice.get(f"/nodes/{node.name}").content.decode()
    assert "Pods are not isolated" not in alice.get(f"/node-pools/{node.pool.name}").content.decode()


def test_terminate_and_drain_dialogs_list_affected_workloads(cast: Cast, alice: Client, node: Node) -> None:
    work = make.workload(cast.vision, "train", phase="running", preemptible=False)
    make.place(work, node, [0])
    for step, words in (("terminate", "Workloads to be stopped:"), ("drain", "to finish or move:")):
        text = alice.get(f"/nodes/{node.name}/{step}").content.decode()
        assert words in text
        assert "vision/train (1 pod, non-preemptible)" in text
    assert "vision/train" not in alice.get(f"/nodes/{node.name}/cordon").content.decode()


@pytest.mark.heavy
def test_partly_fulfilled_node_request_is_highlighted(cast: Cast, alice: Client) -> None:
    for provided, tone in ((1, "warn"), (2, "info")):
        data = {"asked": 2, "came": provided}
        make.scaling(
            cast.pool, "provision", f"{provided} of 2 nodes provided", at=make.ago(minutes=1), data=data
        )
        text = alice.get("/node-pools/local?tab=history").content.decode()
        assert f'<span class="chip {tone}">Provision</span>' in text


FORM = {
    "provider": "fake", "runtime": "fake", "gpus_per_node": "1", "cpu": "4", "memory_mib": "1500",
    "node_placement": "auto", "autoscale_cooldown": "30", "autoscale_idle_timeout": "60",
    "node_consolidation": "never", "node_consolidation_after": "300",
    "image_mode": "allow", "boot_timeout": "900", "boot_failure_limit": "5",
    "drain_timeout": "600", "reclaim_min_runtime": "0", "preempt_min_runtime": "0",
}  # fmt: skip


def test_pool_form_offers_the_fake_provider_only_if_enabled(cast: Cast, alice: Client, settings: Any) -> None:
    for turned_on in (True, False):
        settings.BERTH_FAKE_POOLS = "tests.fakes" if turned_on else ""
        text = alice.get("/node-pools/new").content.decode()
        assert 'value="static"' in text
        assert ('value="fake"' in text) is turned_on
    rejected = alice.post("/node-pools/new", {**FORM, "name": "big", "nodes_min": "4"}, headers=HTMX)
    assert rejected.status_code == 422
    assert not NodePool.objects.filter(name="big").exists()


@pytest.mark.shows("SKY-02", "SKY-10", "SKY-19")
@pytest.mark.parametrize(
    ("filled", "stored"),
    [
        ({"nodes_min": "4"}, (4, None, None)),
        ({"nodes_min": "8", "ready_threshold": "4"}, (8, 4, None)),
        ({"nodes_min": "2", "nodes_max": "16"}, (2, None, 16)),
        ({"nodes_min": "4", "ready_threshold": "2", "nodes_max": "16"}, (4, 2, 16)),
    ],
)
def test_empty_pool_form_fields_are_stored_as_unset(
    cast: Cast, alice: Client, filled: dict[str, str], stored: tuple[int | None, ...]
) -> None:
    answer = alice.post("/node-pools/new", {**FORM, "name": "big", **filled}, headers=HTMX)
    assert answer.status_code == 204
    made = NodePool.objects.get(name="big")
    assert (made.nodes_min, made.ready_threshold, made.nodes_max) == stored


@pytest.mark.heavy
@pytest.mark.shows("SKY-09", "SKY-16", "SKY-18")
@pytest.mark.parametrize(
    ("filled", "field"),
    [
        ({"nodes_min": "0"}, "nodes_min"),
        ({"nodes_min": "4", "nodes_max": "3"}, "nodes_max"),
        ({"nodes_min": "4", "ready_threshold": "5"}, "ready_threshold"),
    ],
)
def test_contradictory_node_counts_show_an_error_on_the_field(
    cast: Cast, alice: Client, filled: dict[str, str], field: str
) -> None:
    answer = alice.post("/node-pools/new", {**FORM, "name": "big", **filled}, headers=HTMX)
    assert answer.status_code == 422
    assert list(answer.context["form"].errors) == [field]


def test_scale_down_lists_nodes_to_drain_and_requires_confirmation(
    cast: Cast, alice: Client, node: Node
) -> None:
    NodePool.objects.update(nodes_desired=2)
    second = make.node(cast.pool)
    make.place(make.workload(cast.vision, "train", phase="running"), second, [0])
    form = {"nodes_desired": "1", "version": "1"}
    confirmation = alice.post("/node-pools/local/scale", form, headers=HTMX)
    text = confirmation.content.decode()
    assert (confirmation.status_code, NodePool.objects.get().nodes_desired) == (200, 2)
    assert "Scale local to 1 node?" in text
    assert f"{second.name}: vision/train (1 pod)" in text
    done = alice.post("/node-pools/local/scale", {**form, "confirmed": "1"}, headers=HTMX)
    assert (done.status_code, NodePool.objects.get().nodes_desired) == (204, 1)


def test_image_policy_and_idle_rule_are_validated_stored_and_shown(cast: Cast, alice: Client) -> None:
    form = alice.get("/node-pools/local/settings").context["form"]
    values = {name: form[name].value() for name in form.fields if form[name].value() is not None}
    values |= {"version": "1"}
    wrong = alice.post("/node-pools/local/settings", {**values, "patterns": "ghcr.io/*\ntrain"}, headers=HTMX)
    (fault,) = wrong.context["form"].errors["patterns"]
    assert fault.startswith("Entry 2: Not a valid image pattern. Allowed: REGISTRY/NAME")
    changes = {"image_mode": "require", "patterns": "ghcr.io/*", "idle_rule": "below=7%"}
    changes["volumes"] = '[{"name": "data", "source": "/mnt/data", "projects": ["vision"]}]'
    right = alice.post("/node-pools/local/settings", {**values, **changes}, headers=HTMX)
    assert right.status_code == 204
    cast.pool.refresh_from_db()
    assert cast.pool.image_policy == {"mode": "require", "patterns": ["ghcr.io/*"]}
    form = alice.get("/node-pools/local/settings").context["form"]
    assert (form.initial["image_mode"], form.initial["patterns"]) == ("require", "ghcr.io/*")
    assert form["idle_rule"].value() == "below=7%,after=1h,action=warn,warmup=10m"
    page = alice.get("/node-pools/local").content.decode()
    assert ("/mnt/data" in page, "Read only" in page) == (True, True)
    assert "Workloads require a container image.</span> <span>Allowed images: ghcr.io/*." in page


def test_s3_volume_is_defined_in_the_form_and_shown_to_admins(
    cast: Cast, alice: Client, sign_in: SignIn
) -> None:
    form = alice.get("/node-pools/local/settings").context["form"]
    values = {name: form[name].value() for name in form.fields if form[name].value() is not None}
    volume = '[{"name": "data", "source": "s3://datasets/set", "region": "eu-west-1", "secret": "s3-reader"}]'
    values |= {"version": "1", "volumes": volume}
    wrong = alice.post("/node-pools/local/settings", values, headers=HTMX)
    (fault,) = wrong.context["form"].errors["volumes"]
    assert "Not a secret of this pool with an S3 access key" in fault
    key = SecretContent("secret-access-key", username="AKIAEXAMPLE", is_s3_key=True)
    set_pool_secret(actor=cast.alice, pool=cast.pool, name="s3-reader", content=key, at=timezone.now())
    assert alice.post("/node-pools/local/settings", values, headers=HTMX).status_code == 204
    page = alice.get("/node-pools/local").content.decode()
    assert ">s3://datasets/set<" in page
    assert "<span>eu-west-1</span> · <span>up to 100 GiB</span> · <span>secret s3-reader</span>" in page
    page = sign_in("dave").get("/node-pools/local").content.decode()
    assert ("Read only" in page, "datasets" in page, "eu-west-1" in page) == (True, False, False)


@pytest.mark.heavy
def test_default_limits_are_edited_in_the_form(cast: Cast, alice: Client) -> None:
    filled = {"nodes_min": "1", "memory_from_request": "on", "default_memory_mib": "4096", "default_cpu": "2"}
    filled["workspace_limit_mib"] = "500"
    assert alice.post("/node-pools/new", {**FORM, "name": "big", **filled}, headers=HTMX).status_code == 204
    made = NodePool.objects.get(name="big")
    expected = {"memory_from_request": True, "memory_mib": 4096, "cpu_from_request": False, "cpu": 2}
    assert (made.default_limits, made.workspace_limit_mib) == (expected, 500)
    form = alice.get("/node-pools/big/settings").context["form"]
    assert {name: form[name].value() for name in filled if name != "nodes_min"} == {
        "memory_from_request": True, "default_memory_mib": 4096, "default_cpu": 2, "workspace_limit_mib": 500,
    }  # fmt: skip
    rejected = alice.post(
        "/node-pools/new", {**FORM, "name": "c", **filled, "default_cpu": "0"}, headers=HTMX
    )
    assert list(rejected.context["form"].errors) == ["default_cpu"]


@pytest.mark.heavy
def test_disruption_budget_is_validated_stored_and_shown(cast: Cast, alice: Client, node: Node) -> None:
    form = alice.get("/node-pools/local/settings").context["form"]
    values = {name: form[name].value() for name in form.fields if form[name].value() is not None}
    values |= {"version": "1", "node_consolidation": "when_empty"}
    wrong = alice.post(
        "/node-pools/local/settings", {**values, "disruption_budgets": '[{"nodes": "many"}]'}, headers=HTMX
    )
    (fault,) = wrong.context["form"].errors["disruption_budgets"]
    assert fault.startswith("Entry 1, nodes: Enter a number of nodes, or a percentage")
    right = alice.post(
        "/node-pools/local/settings", {**values, "disruption_budgets": '[{"nodes": 0}]'}, headers=HTMX
    )
    assert right.status_code == 204
    text = alice.get("/node-pools/local").content.decode()
    assert "Empty nodes cannot be removed yet: at most 0 nodes at a time." in text


@pytest.mark.heavy
def test_lowering_the_maximum_lists_nodes_to_drain_and_requires_confirmation(
    cast: Cast, alice: Client, node: Node
) -> None:
    NodePool.objects.update(nodes_desired=2)
    second = make.node(cast.pool)
    make.place(make.workload(cast.vision, "train", phase="running"), second, [0])
    form = alice.get("/node-pools/local/settings").context["form"]
    values = {name: form[name].value() for name in form.fields if form[name].value() is not None}
    values |= {"nodes_max": "1", "drain_timeout": "77"}
    confirmation = alice.post("/node-pools/local/settings", values)
    text = confirmation.content.decode()
    assert (confirmation.status_code, NodePool.objects.get().nodes_max) == (200, 4)
    assert "Reduce local to 1 node?" in text
    assert f"{second.name}: vision/train (1 pod)" in text
    again = confirmation.context["form"]
    values = {name: again[name].value() for name in again.fields if again[name].value() is not None}
    assert values["drain_timeout"] == "77", "the form keeps its input"
    values["confirmed"] = confirmation.context["confirmation"].token
    assert alice.post("/node-pools/local/settings", values, headers=HTMX).status_code == 204
    stored = NodePool.objects.get()
    assert (stored.nodes_max, stored.nodes_desired, stored.drain_timeout) == (1, 1, 77)
