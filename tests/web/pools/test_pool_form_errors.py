"""Tests that the pool form shows all errors together, in words, and asks before it reduces hardware."""

import re

import pytest
from django.test import Client

from pools.models import NodePool
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn
from tests.web.pools.test_pool_form import EC2_POOL
from tests.web.test_forms import errors

PATTERN = re.compile(r"should match|\[a-z|0-9\]")  # parts of a regular expression


@pytest.fixture
def alice(cast: Cast, sign_in: SignIn) -> Client:
    return sign_in("alice")


def test_all_errors_of_a_new_pool_are_shown_at_once_in_plain_english(alice: Client) -> None:
    wrong = {
        "name": "My Pool!", "aws_region": "mars-1", "aws_instance_types": "", "aws_subnets": "foo",
        "aws_image": "", "drain_timeout": "soon", "volumes": '[{"name": "data"', "idle_rule": "below=x",
    }  # fmt: skip
    answer = alice.post("/node-pools/new", EC2_POOL | wrong)
    shown = errors(answer)
    assert shown == {
        "name": ["Use lowercase letters, digits and hyphens, for example my-pool."],
        "aws_region": ["Enter a region such as eu-central-1."],
        "aws_instance_types": ["Enter instance types."],
        "aws_subnets": ["Entry 1: Enter a subnet ID such as subnet-0a1b2c3d."],
        "aws_image": ["Required unless Image parameter is set."],
        "drain_timeout": ["Enter a duration, for example 90 s, 10 min or 1 h 30 min."],
        "volumes": ["This is not valid JSON at column 17: a comma or a closing bracket is missing."],
        "idle_rule": shown["idle_rule"],
    }
    page = answer.content.decode()
    summary = page.partition("error-summary")[2].partition("</ul>")[0]
    assert "Correct these 8 fields" in summary
    assert 'tabindex="-1" autofocus' in summary
    links = re.findall(r'href="#([a-z_]+)"', summary)
    assert links[:2] == ["pool_name", "pool_aws_region"]
    assert all(f'id="{link}"' in page for link in links)
    assert not PATTERN.search(re.sub(r"<[^>]+>", "", summary))


def test_ec2_pool_has_either_an_image_or_an_image_parameter(alice: Client) -> None:
    neither = errors(alice.post("/node-pools/new", EC2_POOL | {"aws_image": ""}))
    assert neither == {"aws_image": ["Required unless Image parameter is set."]}
    both = errors(alice.post("/node-pools/new", EC2_POOL | {"aws_image_parameter": "/berth/image"}))
    assert both == {"aws_image": ["Cannot be combined with Image parameter. Allowed: one of them."]}


def test_required_settings_of_each_provider_are_marked(alice: Client) -> None:
    page = alice.get("/node-pools/new").content.decode()
    fields = re.findall(r"<(?:input|textarea) [^>]*required[^>]*>", page)
    names = {match[1] for field in fields if (match := re.search(r'name="([^"]+)"', field))}
    assert {"name", "aws_region", "aws_instance_types", "aws_subnets"} <= names
    assert not names & {"aws_image", "gpu_model", "slurm_partition"}


def test_new_ssh_pool_needs_a_host(alice: Client) -> None:
    common = {name: value for name, value in EC2_POOL.items() if not name.startswith("aws_")}
    metal = {**common, "provider": "ssh", "runtime": "", "ssh_user": "root", "ssh_port": "22"}
    shown = errors(alice.post("/node-pools/new", metal))
    assert shown["ssh_hosts"] == ["Enter at least one host, for example: - address: gpu-1.example.org"]
    assert not NodePool.objects.filter(provider="ssh").exists()


@pytest.mark.parametrize(
    ("volumes", "expected"),
    [
        ("[{name: data}]", "at column 3 (name: data}]): a key must be in double quotes."),
        ("[\n  {}\n  {}\n]", "at line 3, column 3 ({}): a comma or a closing bracket is missing."),
        ("[] []", "at column 4 ([]): there is more text after the end of the list."),
    ],
)
def test_error_for_invalid_json_states_what_is_wrong_and_where(
    cast: Cast, alice: Client, volumes: str, expected: str
) -> None:
    shown = errors(alice.post("/node-pools/new", EC2_POOL | {"volumes": volumes}))
    assert shown == {"volumes": [f"This is not valid JSON {expected}"]}


def test_hint_about_this_machine_is_shown_only_for_the_local_provider(alice: Client) -> None:
    page = alice.get("/node-pools/new").content.decode()
    (hint,) = re.findall(r"<span([^>]*)>This machine has", page)
    assert 'data-shown-for="provider=local"' in hint


def test_reducing_the_hardware_of_a_pool_in_use_requires_confirmation(cast: Cast, alice: Client) -> None:
    NodePool.objects.update(gpus_per_node=8)
    path = "/node-pools/local/settings"
    form = alice.get(path).context["form"]
    values = {name: form[name].value() for name in form.fields if form[name].value() is not None}
    node = make.node(cast.pool)
    make.place(make.workload(cast.vision, "train", phase="running"), node, [0])
    answer = alice.post(path, values | {"gpus_per_node": "4"})
    page = answer.content.decode()
    assert NodePool.objects.get().gpus_per_node == 8
    workloads = f"{node.name}: vision/train (1 pod)"
    for fragment in ("Reduce the hardware of local?", "4 instead of 8 GPUs", workloads):
        assert fragment in page
    token = answer.context["confirmation"].token
    other = alice.post(path, values | {"gpus_per_node": "2", "confirmed": token})
    assert "2 instead of 8 GPUs" in other.content.decode(), "only the confirmed change is saved"
    assert alice.post(path, values | {"gpus_per_node": "4", "confirmed": token}).status_code == 302
    assert NodePool.objects.get().gpus_per_node == 4
    assert alice.post(path, values | {"gpus_per_node": "8", "version": ""}).status_code == 302, "an increase"
