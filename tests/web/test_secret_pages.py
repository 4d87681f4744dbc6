"""Tests for the secrets page: who can see and set secrets, and that no page contains a value."""

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from pools.joining.sealed import unseal
from pools.models import PoolSecret
from pools.services.secrets import SecretContent, set_pool_secret
from projects.models import ProjectSecret, UserSecret
from projects.services import workloads
from projects.services.secrets import set_project_secret
from tests import factories as make
from tests.cast import Cast, training
from tests.web.conftest import SignIn, streamed

HTMX = {"HX-Request": "true"}
TOKEN = "correct-horse-battery-staple"
FORM = {"owner": "project/vision", "name": "hf-token", "value": f" {TOKEN}\r\n"}
LOGIN = {"owner": "pool/local", "name": "hub", "registry": "docker.io", "username": "berth", "value": TOKEN}


def set_secret(
    cast: Cast, name: str = "hf-token", *, registry: str = "", username: str = ""
) -> ProjectSecret:
    content = SecretContent(TOKEN, registry=registry, username=username)
    return set_project_secret(
        actor=cast.carol, project=cast.vision, name=name, content=content, at=timezone.now()
    )[0]


def text(answer: Any) -> str:
    content = str(answer.content.decode())
    assert TOKEN not in content
    return content


def hidden_value(form: str) -> str:
    """Return the form value that confirms a replacement."""
    match = re.search(r'name="replaces" value="([^"]+)"', form)
    assert match is not None
    return match[1]


def test_project_admin_sets_replaces_and_deletes_a_secret(cast: Cast, sign_in: SignIn) -> None:
    carol = sign_in("carol")
    assert "No secrets yet" in text(carol.get("/secrets"))
    assert carol.post("/secrets/new/value", FORM, headers=HTMX).status_code == 204
    assert unseal(ProjectSecret.objects.get().sealed) == f" {TOKEN}\n"
    assert "hf-token" in text(carol.get("/secrets"))
    replacement = text(carol.get("/secrets/new/value?owner=project/vision&name=hf-token", headers=HTMX))
    assert "Replace secret hf-token of project vision</h2>" in replacement
    assert '<input type="hidden" name="name" value="hf-token"' in replacement
    assert "<select" not in replacement and "Replace secret</button>" in replacement
    assert re.search(r'<textarea name="value"[^>]* autofocus', replacement)
    confirmed = FORM | {"value": "second", "replaces": hidden_value(replacement)}
    assert carol.post("/secrets/new/value", confirmed, headers=HTMX).status_code == 204
    assert unseal(ProjectSecret.objects.get().sealed) == "second"
    confirm = text(carol.get("/secrets/project/vision/hf-token/delete", headers=HTMX))
    assert "Delete the secret hf-token of project vision?" in confirm
    assert carol.post("/secrets/project/vision/hf-token/delete", headers=HTMX).status_code == 204
    assert not ProjectSecret.objects.exists()


def test_new_secret_replaces_an_existing_one_only_after_confirmation(cast: Cast, sign_in: SignIn) -> None:
    set_secret(cast)
    bob, added = sign_in("bob"), FORM | {"value": "of bob"}
    answer = bob.post("/secrets/new/value", added, headers=HTMX)
    question = text(answer)
    assert answer.status_code == 422
    assert "hf-token exists (set by carol on " in question and "Replace it?" in question
    assert '<button class="button primary">Replace secret</button>' in question
    assert "Add secret" not in question
    assert unseal(ProjectSecret.objects.get().sealed) == TOKEN, "nothing is stored before the confirmation"
    confirmed = added | {"replaces": hidden_value(question)}
    set_project_secret(
        actor=cast.carol, project=cast.vision, name="hf-token", content=SecretContent("newer"),
        at=timezone.now(),
    )  # fmt: skip
    asked_again = bob.post("/secrets/new/value", confirmed, headers=HTMX)
    assert asked_again.status_code == 422, "the confirmation was for an older version"
    assert unseal(ProjectSecret.objects.get().sealed) == "newer"
    confirmed = added | {"replaces": hidden_value(text(asked_again))}
    answer = bob.post("/secrets/new/value", confirmed, headers=HTMX)
    assert (answer.status_code, "hf-token replaced." in answer.headers["HX-Trigger"]) == (204, True)
    assert unseal(ProjectSecret.objects.get().sealed) == "of bob"
    tampered = bob.post("/secrets/new/value", added | {"replaces": "project/vision/hf-token@x"}, headers=HTMX)
    assert tampered.status_code == 422


@pytest.mark.heavy
def test_secrets_page_counts_workloads_with_an_older_version(cast: Cast, sign_in: SignIn) -> None:
    secret = set_secret(cast)
    document = training("bert", secrets=[{"name": "hf-token", "env": "HF_TOKEN"}])
    workload = workloads.submit(actor=cast.dave, document=document)
    make.secret_use(workload, secret)
    erin = sign_in("erin")
    assert "older version" not in text(erin.get("/secrets"))
    ProjectSecret.objects.update(version=2)
    assert "1 workload still uses an older version" in text(erin.get("/secrets"))
    assert "><span>1 run</span></a>" in text(erin.get("/secrets")), (
        "the row counts the runs that received the secret"
    )
    page = text(erin.get("/secrets/project/vision/hf-token/uses"))
    assert "bert" in page and "Outdated" in page
    exported = streamed(erin.get("/secrets/project/vision/hf-token/uses?format=csv"))
    assert b"vision/bert" in exported
    assert sign_in("frank").get("/secrets/project/vision/hf-token/uses").status_code == 404


def test_any_user_can_set_a_personal_secret_and_only_its_owner_sees_it(cast: Cast, sign_in: SignIn) -> None:
    erin = sign_in("erin")
    form = FORM | {"owner": "user/me"}
    assert erin.post("/secrets/new/value", form, headers=HTMX).status_code == 204
    page = text(erin.get("/secrets"))
    assert "hf-token" in page and "Personal" in page
    assert "hf-token" not in text(sign_in("alice").get("/secrets"))
    assert sign_in("alice").post("/secrets/user/me/hf-token/delete").status_code == 404
    assert "No uses yet" in text(erin.get("/secrets/user/me/hf-token/uses"))
    assert "Delete your secret hf-token?" in text(erin.get("/secrets/user/me/hf-token/delete", headers=HTMX))
    assert erin.post("/secrets/user/me/hf-token/delete", headers=HTMX).status_code == 204
    assert not UserSecret.objects.exists()


def test_platform_admin_sets_pool_credentials(cast: Cast, sign_in: SignIn) -> None:
    alice = sign_in("alice")
    assert alice.post("/secrets/new/registry", LOGIN, headers=HTMX).status_code == 204
    row = PoolSecret.objects.get()
    assert (row.registry, row.username, unseal(row.sealed)) == ("docker.io", "berth", TOKEN)
    assert "docker.<wbr>io" in text(alice.get("/secrets?search=pool%20local"))
    replacement = text(alice.get("/secrets/new/registry?owner=pool/local&name=hub", headers=HTMX))
    assert 'value="docker.io"' in replacement and 'value="berth"' in replacement
    assert "Secrets</a>" in text(alice.get("/node-pools/local"))
    assert alice.post("/secrets/pool/local/hub/delete", headers=HTMX).status_code == 204
    assert not PoolSecret.objects.exists()


@pytest.mark.heavy
def test_platform_admin_sets_and_replaces_a_pools_s3_key(cast: Cast, sign_in: SignIn) -> None:
    alice, address = sign_in("alice"), "/secrets/new/s3_key"
    form = {"owner": "pool/local", "name": "s3-reader", "username": "AKIAEXAMPLE", "value": TOKEN}
    assert alice.post(address, form, headers=HTMX).status_code == 204
    secret = PoolSecret.objects.get()
    assert (secret.kind, secret.username, unseal(secret.sealed)) == ("s3_key", "AKIAEXAMPLE", TOKEN)
    key = SecretContent(TOKEN, is_ssh_key=True)
    PoolSecret.objects.create(
        pool=cast.pool, name="ssh-key", kind=key.kind, sealed=secret.sealed, created_at=timezone.now(),
        created_by="alice", updated_at=timezone.now(), updated_by="alice",
    )  # fmt: skip
    listed = text(alice.get("/secrets"))
    assert f"{address}?owner=pool/local&amp;name=s3-reader" in listed
    assert "Replace ssh-key" not in listed, "its form is the pool's"
    assert "AKIAEXAMPLE" in listed
    replacement = text(alice.get(f"{address}?owner=pool/local&name=s3-reader", headers=HTMX))
    assert 'value="AKIAEXAMPLE"' in replacement
    wrong = text(alice.post(address, form | {"username": "a b"}, headers=HTMX))
    assert "valid access key ID" in wrong
    assert "project/vision" not in wrong
    assert "S3 key</a>" not in text(sign_in("carol").get("/secrets"))
    assert sign_in("carol").get(address).status_code == 403


def test_members_see_secret_names_and_cannot_change_secrets(cast: Cast, sign_in: SignIn) -> None:
    set_secret(cast)
    set_pool_secret(
        actor=cast.alice, pool=cast.pool, name="shared", content=SecretContent(TOKEN), at=timezone.now()
    )
    for name in ("dave", "erin"):
        page = text(sign_in(name).get("/secrets"))
        assert "hf-token" in page and "shared" in page
        assert "Registry credentials</a>" not in page and "Replace" not in page and "Delete" not in page
        assert sign_in(name).post("/secrets/new/value", FORM).status_code == 422, "the owner is not offered"
        assert sign_in(name).get("/secrets/new/registry").status_code == 403
        assert sign_in(name).post("/secrets/project/vision/hf-token/delete").status_code == 403
        assert sign_in(name).post("/secrets/pool/local/shared/delete").status_code == 403
    assert "hf-token" not in text(sign_in("grace").get("/secrets"))
    assert sign_in("grace").post("/secrets/project/vision/hf-token/delete").status_code == 404
    carol = sign_in("carol")
    assert "Pool local" not in text(carol.get("/secrets/new/value"))
    assert carol.post("/secrets/new/value", FORM | {"owner": "pool/local"}, headers=HTMX).status_code == 422
    assert ProjectSecret.objects.count() == PoolSecret.objects.count() == 1


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("value", {"name": "HF"}, "Use lowercase letters, digits and hyphens"),
        ("value", {"value": f"{TOKEN}{'x' * 70_000}"}, "oo long"),
        ("registry", {"registry": "https://docker.io"}, "valid registry"),
        ("registry", {"username": "a:b"}, "valid username"),
    ],
)
def test_invalid_form_does_not_contain_the_secret_value(
    sign_in: SignIn, kind: str, changes: dict[str, str], message: str
) -> None:
    form = {**(FORM if kind == "value" else LOGIN), **changes}
    answer = sign_in("alice").post(f"/secrets/new/{kind}", form, headers=HTMX)
    assert (answer.status_code, message in text(answer)) == (422, True)


@pytest.mark.heavy
def test_confirmation_lists_the_live_workloads_that_use_the_secret(cast: Cast, sign_in: SignIn) -> None:
    set_secret(cast)
    uses = {"secrets": [{"name": "hf-token", "env": "HF_TOKEN"}]}
    workloads.submit(actor=cast.dave, project=cast.vision, document=training("reader", **uses))
    role = {"name": "w", "gpu": 1, **uses}
    workloads.submit(actor=cast.dave, project=cast.vision, document=training("by-role", roles=[role]))
    workloads.submit(actor=cast.dave, project=cast.vision, document=training("other"))
    page = text(sign_in("carol").get("/secrets/project/vision/hf-token/delete", headers=HTMX))
    assert "vision/reader" in page and "vision/by-role" in page and "vision/other" not in page


@pytest.mark.heavy
def test_csv_export_contains_no_secret_value(cast: Cast, sign_in: SignIn) -> None:
    set_secret(cast, registry="docker.io", username="berth")
    answer = sign_in("dave").get("/secrets?format=csv")
    lines = streamed(answer).decode()
    assert "hf-token,project vision,Registry,docker.io,berth" in lines
    assert TOKEN not in lines and ProjectSecret.objects.get().sealed not in lines


@pytest.mark.heavy
def test_admin_site_shows_secrets_without_their_values(cast: Cast) -> None:
    secret = set_secret(cast)
    user = cast.alice.user
    user.is_staff = True
    user.save()
    client = Client()
    client.force_login(user)
    listed = client.get(reverse("admin:projects_projectsecret_changelist"))
    shown = client.get(reverse("admin:projects_projectsecret_change", args=[secret.pk]))
    for answer in (listed, shown):
        assert "hf-token" in text(answer)
        assert secret.sealed not in answer.content.decode()
    action = {"action": "download", "_selected_action": [secret.pk]}
    download = client.post(reverse("admin:projects_projectsecret_changelist"), action)
    assert secret.sealed not in streamed(download).decode()
