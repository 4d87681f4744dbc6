"""Tests for links and labels on the admin site."""

import re

from django.contrib import admin
from django.test import Client
from django.urls import reverse

from projects.models import Workload
from scheduler.models import Eviction
from tests import factories as make
from tests.cast import Cast
from tests.support.present import present

admin.autodiscover()


def test_eviction_and_cycle_pages_link_to_the_objects_they_mention(
    admin_client: Client, cast: Cast, running_workload: Workload
) -> None:
    workload, node = running_workload, make.node(cast.pool, name="n-2")
    eviction = Eviction.objects.get()
    text = admin_client.get(reverse("admin:scheduler_eviction_change", args=[eviction.pk])).content.decode()
    for model, key in (
        ("projects_workload", workload.pk), ("projects_workload", eviction.preemptor_id),
        ("projects_project", cast.vision.pk), ("projects_department", cast.vision.department_id),
        ("pools_nodepool", cast.pool.pk),
    ):  # fmt: skip
        assert f'<a href="{reverse(f"admin:{model}_change", args=[key])}">' in text, model
    assert f'href="/evictions/{eviction.pk}"' in text, "the page in the application"
    Workload.objects.filter(pk=present(eviction.preemptor_id)).delete()
    text = admin_client.get(reverse("admin:scheduler_eviction_change", args=[eviction.pk])).content.decode()
    assert str(eviction.preemptor_id) not in text and "rank" in text, "a deleted workload has no link"

    step = {"do": "stop", "workload": "vision/train", "role": "worker", "index": 0, "node": "n-2"}
    bundle = {"kind": "reclaim", "pool": "local", "workload": "ads/gone", "steps": [step]}
    cycle = make.cycle(plan={"bundles": [bundle]})
    text = admin_client.get(reverse("admin:scheduler_cycle_change", args=[cycle.pk])).content.decode()
    for model, key, name in (
        ("projects_workload", workload.pk, "vision/train"), ("pools_node", node.pk, "n-2"),
        ("pools_nodepool", cast.pool.pk, "local"),
    ):  # fmt: skip
        assert f'<a href="{reverse(f"admin:{model}_change", args=[key])}">{name}</a>' in text
    assert "Reclaim for ads/gone</td>" in text
    assert f'href="/decisions/{cycle.pk}"' in text


def test_admin_pages_format_gpus_ids_and_units_like_the_application(admin_client: Client, cast: Cast) -> None:
    node = make.node(cast.pool)
    pages = [
        reverse("admin:pools_nodepool_change", args=[cast.pool.pk]),
        reverse("admin:pools_node_change", args=[node.pk]),
    ]
    text = "".join(admin_client.get(page).content.decode() for page in pages)
    labels = {re.sub(r"<.*|[:*]", "", label).strip() for label in re.findall(r"<label[^>]*>([^<]+)", text)}
    assert {"GPUs per node", "GPU memory (MiB)", "Instance ID", "Price per GPU-hour", "State since"} <= labels
    wrong = re.compile(r"\b(Gpus?|gpus?|Cpu|cpu|Id|id|Mib|mib|Url)\b| at$")
    assert not [label for label in labels if wrong.search(label)]
    for model, title in (
        ("projects_membership", "Roles"), ("projects_apitoken", "API tokens"),
        ("scheduler_usage", "Decayed usage"),
        ("pools_scalingevent", "Pool scaling"), ("scheduler_queuestatus", "Fair shares"),
    ):  # fmt: skip
        text = admin_client.get(reverse(f"admin:{model}_changelist")).content.decode()
        assert f">{title}</" in text[text.index('id="header-inner"') :], model
