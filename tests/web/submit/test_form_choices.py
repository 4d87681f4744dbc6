"""Tests for the secrets, GPU models and topology levels that the submission form offers."""

import re
from html import unescape

import pytest
from django.test import Client
from django.utils import timezone

from pools.models import PoolSecret, SecretKind
from projects.models import ProjectSecret, UserSecret
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn
from tests.web.submit.test_submission_page import refresh_form

STORED = {"sealed": "x", "created_at": timezone.now(), "updated_at": timezone.now()}
TEXT = "name: fine\nproject: vision\ncommand: run\nroles: [{gpu: 1}]\n"


@pytest.fixture
def dave(cast: Cast, sign_in: SignIn) -> Client:
    return sign_in("dave")


def field_html(client: Client, text: str, path: str) -> str:
    page = refresh_form(client, text).content.decode()
    ident = "w-f-" + re.sub(r"[^a-z0-9_]+", "-", path).strip("-")
    return unescape(page.partition(f'id="{ident}" data-field')[2].partition("data-field")[0])


def offered_secrets(html: str) -> list[tuple[str, str]]:
    """Return the text that each button adds, and whether the button is pressed."""
    return re.findall(r'data-value="([^"]+)" aria-pressed="(\w+)"', html)


def create_secrets(cast: Cast) -> None:
    other = make.pool("other")
    for project, name in ((cast.vision, "hf-token"), (cast.vision, "shared"), (cast.ads, "ads-key")):
        ProjectSecret.objects.create(project=project, name=name, **STORED)
    login = {"kind": SecretKind.REGISTRY, "registry": "docker.io", "username": "berth"}
    ProjectSecret.objects.create(project=cast.vision, name="login", **STORED, **login)
    for pool, name in ((cast.pool, "shared"), (cast.pool, "wandb"), (other, "wandb"), (other, "far")):
        PoolSecret.objects.create(pool=pool, name=name, **STORED)
    for person, name in ((cast.dave, "mine"), (cast.alice, "hers")):
        UserSecret.objects.create(user=person.user, name=name, **STORED)


def test_form_offers_the_secrets_that_the_workload_may_use(cast: Cast, dave: Client) -> None:
    create_secrets(cast)
    html = field_html(dave, TEXT + "secrets: [{name: hf-token, file: token}]\n", "secrets")
    assert offered_secrets(html) == [
        ("hf-token=HF_TOKEN", "true"), ("shared=SHARED", "false"), ("far=FAR", "false"),
        ("wandb=WANDB", "false"), ("personal/mine=MINE", "false"),
    ]  # fmt: skip
    assert re.findall(r'<span class="hint">([^<]+)</span><button', html) == [
        "Project vision", "Pool other", f"Pools {cast.pool.name} and other", "Personal",
    ]  # fmt: skip
    in_one_pool = field_html(dave, TEXT + f"pools: [{cast.pool.name}]\n", "secrets")
    assert "far=FAR" not in in_one_pool and "wandb=WANDB" in in_one_pool


def test_form_offers_no_secrets_of_projects_that_the_user_cannot_see(cast: Cast, dave: Client) -> None:
    create_secrets(cast)
    html = field_html(dave, TEXT.replace("project: vision", "project: ads"), "secrets")
    assert "ads-key" not in html and "personal/mine=MINE" in html


def test_git_secret_is_offered_and_can_be_personal(cast: Cast, dave: Client) -> None:
    create_secrets(cast)
    git = "code: {git: {url: 'https://git.example.org/a.git', secret: mine, personal: true}}\n"
    html = field_html(dave, TEXT + git, "code.git.secret")
    assert offered_secrets(html) == [
        ("hf-token", "false"), ("shared", "false"), ("personal/mine", "true"),
    ]  # fmt: skip
    assert 'value="personal/mine"' in html


def test_form_without_secrets_links_to_the_form_for_a_new_secret(cast: Cast, dave: Client) -> None:
    html = field_html(dave, TEXT, "secrets")
    assert "No secrets available yet." in html and 'href="/secrets/new/value"' in html


def test_form_lists_the_gpu_models_and_topology_levels_of_the_allowed_pools(cast: Cast, dave: Client) -> None:
    for name, model, levels in (("h", "H100", ["zone", "rack"]), ("l", "L4", ["row"])):
        pool = make.pool(name)
        pool.gpu_model, pool.topology = model, levels
        pool.save()
    everywhere = field_html(dave, TEXT, "roles[0].gpu_models")
    assert {"H100", "L4"} <= set(re.findall(r'type="checkbox"[^>]* value="([^"]+)"', everywhere))
    text = TEXT + "pools: [h]\ntopology: {required: rack}\n"
    models = field_html(dave, text, "roles[0].gpu_models")
    assert re.findall(r'type="checkbox"[^>]* value="([^"]+)"', models) == ["H100"]
    options = field_html(dave, text, "topology.required")
    assert re.findall(r'<option value="([^"]*)"( selected)?', options) == [
        ("", ""), ("zone", ""), ("rack", " selected"),
    ]  # fmt: skip


def test_form_states_that_the_allowed_pools_have_no_topology_levels(cast: Cast, dave: Client) -> None:
    html = field_html(dave, TEXT, "topology.required")
    assert "No topology levels in the allowed pools." in html and 'href="/node-pools"' in html


def test_resources_stay_on_the_page_while_the_roles_key_is_misspelled(dave: Client) -> None:
    page = refresh_form(dave, TEXT.replace("roles:", "rolls:")).content.decode()
    assert "Did you mean <code>roles</code>?" in page and ">Resources</h2>" in page
    assert 'name="f:rolls[0].gpu" value="1"' in re.sub(r"\s+", " ", page)
