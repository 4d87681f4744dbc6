"""Tests that forms show errors at their fields and keep the user's input."""

import json
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from berth.core.errors import Invalid
from berth.documents import read_document as read
from pools.models import NodePool
from projects.models import ApiToken, Audit, Budget, Membership, Project, Quota, Workload
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn

HTMX = {"HX-Request": "true"}
DOCUMENT = """
name: from-the-web
project: vision
command: "true"
roles: [{name: worker, replicas: 2, gpu: 1}]
"""


@pytest.fixture
def alice(sign_in: SignIn) -> Client:
    return sign_in("alice")


def quota_fields(**changes: object) -> dict[str, object]:
    empty = dict.fromkeys(("limit_gpu", "cpu", "limit_cpu", "memory_mib", "limit_memory_mib", "rank"), "")
    return {**empty, "gpu": "2", "weight": "1", "over_quota": "on", "version": "0", **changes}


def errors(answer: Any) -> dict[str, list[str]]:
    return {name: list(messages) for name, messages in answer.context["form"].errors.items()}


def test_quota_form_creates_and_edits_a_quota_in_gpus(alice: Client) -> None:
    path = "/quotas/projects/vision/local"
    answer = alice.post(path, quota_fields(gpu="2.5", limit_gpu="4"), headers=HTMX)
    assert answer.status_code == 204
    assert "vision" in json.loads(answer.headers["HX-Trigger"])["berth:done"]["message"]
    quota = Quota.objects.get()
    assert (quota.gpu_milli, quota.limit_gpu_milli, quota.cpu_milli, quota.version) == (2500, 4000, None, 1)
    assert alice.post(path, quota_fields(gpu="", version="1")).headers["Location"] == "/quotas?pool=local"
    quota.refresh_from_db()
    assert (quota.gpu_milli, quota.limit_gpu_milli, quota.version) == (None, None, 2)


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"gpu": "9", "limit_gpu": "4"}, "gpu", "at most 4"),
        ({"gpu": "-1"}, "gpu", "0 to"),
        ({"gpu": "lots"}, "gpu", "number"),
        ({"gpu": "nan"}, "gpu", "number"),
        ({"gpu": "1e999"}, "gpu", ""),
        ({"gpu": "0.00001"}, "gpu", "in steps of 0.001"),
        ({"limit_memory_mib": "1.5"}, "limit_memory_mib", "in whole MiB"),
        ({"weight": "-3"}, "weight", "0 to"),
        ({"weight": ""}, "weight", "Enter a value"),
        ({"rank": "5000"}, "rank", "1000"),
        ({"rank": "1.5"}, "rank", "whole number"),
    ],
)
def test_invalid_quota_shows_an_error_on_its_field_and_preserves_the_input(
    changes: dict[str, str], field: str, words: str, alice: Client
) -> None:
    answer = alice.post("/quotas/projects/vision/local", quota_fields(**changes), headers=HTMX)
    assert answer.status_code == 422
    assert words in " ".join(errors(answer)[field])
    assert not Quota.objects.exists()
    text = answer.content.decode()
    assert 'aria-invalid="true"' in text
    assert answer.context["form"][field].value() == changes[field]


@pytest.mark.heavy
def test_conflicting_quota_edit_shows_the_other_change_and_can_be_saved_again(
    cast: Cast, alice: Client, sign_in: SignIn
) -> None:
    path = "/quotas/projects/vision/local"
    make.quota(cast.vision, cast.pool, 2)
    form = alice.get(path, headers=HTMX).context["form"]
    seen = {"version": "1", "seen": json.dumps(form.initial["seen"])}
    assert sign_in("bob").post(path, quota_fields(gpu="3", rank="5", **seen)).status_code == 302
    answer = alice.post(path, quota_fields(gpu="4", **seen), headers=HTMX)
    assert answer.status_code == 412
    text = answer.content.decode()
    assert "Changed by bob" in text
    assert answer.context["differing"] == [("GPU quota", "3", "4")], "only bob changed the rank"
    assert Quota.objects.get().gpu_milli == 3000, "nothing was overwritten"
    again = {name: answer.context["form"][name].value() for name in ("gpu", "rank", "version", "seen")}
    assert alice.post(path, quota_fields(**again), headers=HTMX).status_code == 204
    quota = Quota.objects.get()
    assert (quota.gpu_milli, quota.rank, quota.version) == (4000, 5, 3)


@pytest.mark.heavy
def test_editing_a_deleted_quota_causes_a_conflict(cast: Cast, alice: Client) -> None:
    path = "/quotas/projects/vision/local"
    make.quota(cast.vision, cast.pool, 2).delete()
    answer = alice.post(path, quota_fields(version="1"), headers=HTMX)
    assert answer.status_code == 412
    assert "The quota was deleted" in answer.content.decode()


def test_deleting_a_quota_requires_confirmation(cast: Cast, alice: Client) -> None:
    make.quota(cast.vision, cast.pool, 2)
    path = "/quotas/projects/vision/local/delete"
    assert "over quota" in alice.get(path).content.decode()
    assert Quota.objects.exists()
    assert alice.post(path, headers=HTMX).status_code == 204
    assert not Quota.objects.exists()


@pytest.mark.heavy
def test_quota_form_keeps_a_separate_cpu_weight(cast: Cast, alice: Client) -> None:
    quota = make.quota(cast.vision, cast.pool, 2, weight_cpu=7.0)
    alice.post("/quotas/projects/vision/local", quota_fields(gpu="3", version="1"), headers=HTMX)
    quota.refresh_from_db()
    assert (quota.gpu_milli, quota.weight_gpu, quota.weight_cpu) == (3000, 1.0, 7.0)


def test_project_form_creates_a_project_and_rejects_invalid_or_duplicate_names(alice: Client) -> None:
    path = "/departments/research/new-project"
    answer = alice.post(path, {"name": "No Good", "title": "", "rank": "0"}, headers=HTMX)
    assert "lowercase" in errors(answer)["name"][0]
    assert alice.post(path, {"name": "robots", "title": "", "rank": "3"}, headers=HTMX).status_code == 204
    assert Project.objects.get(name="robots").rank == 3
    answer = alice.post(path, {"name": "robots", "title": "", "rank": "0"}, headers=HTMX)
    assert answer.status_code == 422


def test_submission_redirects_to_the_new_workload(cast: Cast, sign_in: SignIn) -> None:
    answer = sign_in("dave").post("/submit", {"document": DOCUMENT, "step": "submit"}, headers=HTMX)
    workload = Workload.objects.get()
    assert answer.headers["HX-Redirect"] == f"/workloads/{workload.pk}"
    assert (workload.name, workload.project, workload.submitted_by) == (
        "from-the-web",
        cast.vision,
        cast.dave.user,
    )


INVALID_DOCUMENTS = (
    (DOCUMENT.replace("replicas: 2", "min: 4, max: 2"), "roles[0].min", "at most Max replicas (2)"),
    (DOCUMENT.replace("gpu: 1", "gpu: 1.5"), "roles[0].gpu", "a whole number up to 1024, or a fraction"),
    (DOCUMENT + f"array: {{matrix: {{LR: [0x{'f' * 5000}]}}}}", "array.matrix.LR[0]", "LR"),
    (DOCUMENT + "colour: red\n", "colour", "Unknown key"),
    (DOCUMENT.replace("project: vision", "project: ads"), "project", "Does not exist"),
    ("just words", "", "Not a mapping"),
    ("a: [1, 2", "", "Not valid YAML"),
    ("x" * 300_000, "", "Too long"),
    ("&a [*a, *a]", "", "Anchors and aliases"),
)


def test_invalid_document_shows_an_error_and_preserves_the_text(sign_in: SignIn) -> None:
    dave = sign_in("dave")
    for document, path, words in INVALID_DOCUMENTS:
        answer = dave.post("/submit", {"document": document, "step": "submit"})
        assert answer.status_code == 422, path
        text = answer.content.decode()
        assert (f">{path}</code>" if path else '<a href="#document">Document</a>: ') in text
        assert words in text
        assert answer.context["text"] == document, "the editor keeps the text"
        assert not Workload.objects.exists()


def test_viewer_sees_the_missing_role_instead_of_a_submission_form(sign_in: SignIn) -> None:
    answer = sign_in("erin").get("/submit")
    text = answer.content.decode()
    assert answer.status_code == 403
    assert "you need the member role in a project" in text
    assert "<textarea" not in text and "my-project" not in text


@pytest.mark.heavy
def test_rejected_submission_by_a_viewer_preserves_the_text(sign_in: SignIn) -> None:
    answer = sign_in("erin").post("/submit", {"document": DOCUMENT, "step": "submit"})
    text = answer.content.decode()
    assert "does not allow you to submit" in text
    assert "You need the member role in the project vision. Ask carol to grant it." in text
    assert answer.context["text"] == DOCUMENT


def test_only_users_who_may_submit_see_the_submit_page_in_the_menu(sign_in: SignIn) -> None:
    for name, sees_submit in (("dave", True), ("bob", True), ("erin", False), ("frank", False)):
        text = sign_in(name).get("/workloads").content.decode()
        assert ('class="nav-link" href="/submit"' in text) is sees_submit, name
        assert ("Submit workload" in text) is sees_submit, name


@pytest.mark.heavy
def test_copied_document_has_a_new_name(cast: Cast, sign_in: SignIn) -> None:
    like = make.workload(cast.vision, "train")
    text = sign_in("dave").get(f"/submit?like={like.pk}").context["text"]
    assert read(text)["name"] == "train-2"
    assert next(iter(read(text))) == "name"
    assert "train-2" not in sign_in("grace").get(f"/submit?like={like.pk}").context["text"]


def test_deeply_nested_document_is_rejected() -> None:
    with pytest.raises(Invalid):
        read("[" * 100_000)


def test_granted_and_revoked_roles_are_audited(cast: Cast, sign_in: SignIn) -> None:
    carol = sign_in("carol")
    values = {"username": "frank", "scope": "project:vision", "role": "member"}
    assert carol.post("/access/grant", values, headers=HTMX).status_code == 204
    row = Membership.objects.get(user=cast.frank.user)
    assert carol.post(f"/access/members/{row.pk}/revoke", headers=HTMX).status_code == 204
    assert not Membership.objects.filter(user=cast.frank.user).exists()
    assert set(Audit.objects.filter(object_type="membership").values_list("action", flat=True)) == {
        "grant",
        "revoke",
    }


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"username": "nobody", "scope": "project:vision", "role": "member"}, "username"),
        ({"username": "frank", "scope": "project:ads", "role": "member"}, "scope"),
        ({"username": "frank", "scope": "project:vision", "role": "platform_admin"}, "role"),
    ],
)
def test_invalid_grant_shows_an_error_on_its_field(
    values: dict[str, str], field: str, cast: Cast, sign_in: SignIn
) -> None:
    answer = sign_in("carol").post("/access/grant", values, headers=HTMX)
    assert answer.status_code == 422
    assert list(errors(answer)) == [field]
    assert not Membership.objects.filter(user=cast.frank.user).exists()


def test_token_secret_is_shown_once(cast: Cast, sign_in: SignIn) -> None:
    dave = sign_in("dave")
    answer = dave.post(
        "/access/tokens/new", {"name": "laptop", "scopes": ["read"], "life": "30"}, headers=HTMX
    )
    token = ApiToken.objects.get()
    secret = answer.context["secret"]
    assert secret in answer.content.decode()
    assert secret not in dave.get("/account").content.decode()
    assert token.prefix in dave.get("/account").content.decode()
    assert token.prefix not in sign_in("alice").get("/account").content.decode()
    assert sign_in("carol").post(f"/access/tokens/{token.pk}/revoke").status_code == 404
    assert dave.post(f"/access/tokens/{token.pk}/revoke", headers=HTMX).status_code == 204
    token.refresh_from_db()
    assert token.revoked_at is not None


def test_login_attempts_are_rate_limited(cast: Cast, settings: Settings) -> None:
    settings.BERTH_RATE_LIMITS = {**settings.BERTH_RATE_LIMITS, "login": 3}
    guess = {"username": "dave", "password": "wrong"}
    tries = [Client().post("/login", guess, REMOTE_ADDR="203.0.113.9") for _ in range(4)]
    assert [response.status_code for response in tries] == [200, 200, 200, 429]
    assert int(tries[-1].headers["Retry-After"]) > 0


def test_admin_site_uses_the_common_sign_in_page(cast: Cast) -> None:
    assert reverse("admin:login") == "/admin/login/"
    values = {"username": "alice", "password": "correct horse battery"}
    answer = Client().post("/admin/login/?next=/admin/pools/node/", values)
    assert answer.headers["Location"] == "/login?next=/admin/pools/node/"
    shown = Client().get("/admin/", follow=True)
    assert shown.redirect_chain[-1][0] == "/login?next=/admin/"
    assert [template.name for template in shown.templates][:1] == ["web/login.html"]


def test_login_does_not_redirect_to_another_site(cast: Cast) -> None:
    values = {"username": "dave", "password": "correct horse battery", "next": "https://elsewhere.example/"}
    answer = Client().post("/login", values, REMOTE_ADDR="203.0.113.10")
    assert answer.headers["Location"] == "/"


def test_forms_without_a_csrf_token_are_rejected(cast: Cast) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(cast.alice.user)
    answer = client.post("/departments/new", {"name": "ops"})
    assert answer.status_code == 403
    assert "The form has expired" in answer.content.decode()
    assert 'aria-label="Main"' in answer.content.decode(), "the page has the navigation of the application"
    assert client.post("/departments/new", {"name": "ops"}, headers=HTMX).content.startswith(
        b"The form does not"
    )


def test_default_pool_form_can_be_saved_and_rejects_an_invalid_name(alice: Client) -> None:
    form = alice.get("/node-pools/new").context["form"]
    assert "null" not in str(form)
    shown = {name: form[name].value() for name in form.fields}
    values = {name: value for name, value in shown.items() if value is not None and value is not False}
    values |= {name: form.fields[name].choices[0][0] for name in ("provider", "runtime")}
    rejected = alice.post("/node-pools/new", {**values, "name": "with_line"}, headers=HTMX)
    assert errors(rejected)["name"] == ["Use lowercase letters, digits and hyphens, for example with-line."]
    assert alice.post("/node-pools/new", {**values, "name": "big"}, headers=HTMX).status_code == 204
    made = NodePool.objects.get(name="big")
    assert (made.nodes_min, made.nodes_max, made.provider_settings) == (0, 4, {})


@pytest.mark.heavy
def test_pool_can_be_created_paused_and_scaled_within_its_limits(cast: Cast, alice: Client) -> None:
    answer = alice.get("/node-pools/new")
    initial = {
        name: field.initial
        for name, field in answer.context["form"].fields.items()
        if field.initial is not None
    }
    values = {**initial, "name": "big", "provider": "fake", "runtime": "fake", "node_placement": "binpack"}
    wrong = {**values, "nodes_min": "5", "nodes_max": "2", "memory_mib": "much"}
    bad = alice.post("/node-pools/new", wrong, headers=HTMX)
    assert bad.status_code == 422
    assert errors(bad)["nodes_max"] == ["Must be at least Minimum nodes (5)."]
    assert errors(bad).keys() == {"nodes_max", "memory_mib"}, "all errors are shown together"
    typed = {"memory_mib": "1,024 GiB", "nodes_max": "2", "nodes_min": "3", "name": "with_line"}
    bad = alice.post("/node-pools/new", {**values, **typed}, headers=HTMX)
    assert errors(bad).keys() == {"nodes_max", "name"}
    assert alice.post("/node-pools/new", {**values, "nodes_max": "3"}, headers=HTMX).status_code == 204
    assert alice.post("/node-pools/big/pause", headers=HTMX).status_code == 204
    too_many = alice.post("/node-pools/big/scale", {"nodes_desired": "9", "version": "2"}, headers=HTMX)
    assert "0 to 3" in errors(too_many)["nodes_desired"][0]
    assert (
        alice.post("/node-pools/big/scale", {"nodes_desired": "2", "version": "2"}, headers=HTMX).status_code
        == 204
    )
    text = alice.get("/node-pools/big").content.decode()
    assert "Paused" in text
    assert "2 desired" in text


def test_node_is_cordoned_with_a_reason(cast: Cast, alice: Client) -> None:
    node = make.node(cast.pool)
    assert alice.post(f"/nodes/{node.name}/cordon", {"reason": "loud fan"}, headers=HTMX).status_code == 204
    node.refresh_from_db()
    assert node.state == "cordoned"
    assert "loud fan" in alice.get("/node-pools/local?tab=history").content.decode()
    again = alice.post(f"/nodes/{node.name}/cordon", {"reason": ""}, headers=HTMX)
    assert again.status_code == 409
    assert "cordoned" in again.content.decode()


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"gpu_hours": ""}, "gpu_hours", "Enter a value."),
        ({"gpu_hours": "many"}, "gpu_hours", '"many" is not valid. Enter a whole number, for example 12.'),
        ({"gpu_hours": "0"}, "gpu_hours", '"0" is too low. Enter 1 or more.'),
        (
            {"owner": "departments/reserch"},
            "owner",
            '"departments/reserch" is not available. Did you mean departments/research?',
        ),
    ],
)
def test_form_error_states_the_value_and_the_allowed_values(
    alice: Client, changes: dict[str, str], field: str, message: str
) -> None:
    fields = {"owner": "departments/research", "gpu_hours": "500", "warn_at": "80", "version": "0"}
    answer = alice.post("/budgets/new", {**fields, **changes})
    assert answer.status_code == 422
    assert errors(answer) == {field: [message]}
    assert not Budget.objects.exists()


@pytest.mark.heavy
def test_form_error_shortens_a_long_value_and_escapes_it(alice: Client) -> None:
    answer = alice.post("/departments/new", {"name": "vision", "rank": "<b>" + "9" * 500})
    [message] = errors(answer)["rank"]
    assert message.startswith('"<b>999') and len(message) < 160
    assert "&lt;b&gt;999" in answer.content.decode()


@pytest.mark.heavy
def test_grant_form_suggests_the_nearest_role(alice: Client) -> None:
    answer = alice.post("/access/grant", {"username": "dave", "scope": "projects/vision", "role": "membr"})
    assert errors(answer)["role"] == ['"membr" is not available. Did you mean member?']
