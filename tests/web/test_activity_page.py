"""Tests for the activity page."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from projects.models import Audit
from projects.services import quotas, workloads
from projects.services.people import members
from projects.services.quotas import budgets, parse_columns
from projects.services.quotas.drafts import Draft, QuotaChangeDraft, apply_draft
from projects.services.quotas.reverts import revert
from projects.services.workloads import templates
from projects.web.activity.entries import ActivityEntry
from projects.web.activity.grouping import EntryGroup
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn, streamed


def shown(client: Client, query: str = "") -> list[ActivityEntry | EntryGroup]:
    context: Any = client.get(f"/activity{query}").context
    return [entry for _, of_day in context["days"] for entry in of_day]


def entries(client: Client, query: str = "") -> list[ActivityEntry]:
    return [
        entry
        for row in shown(client, query)
        for entry in (row.entries if isinstance(row, EntryGroup) else [row])
    ]


def sentence(entry: ActivityEntry) -> str:
    return f"{entry.row.actor} {entry.verb} {entry.name}{entry.tail}"


def test_quota_change_is_described_in_one_sentence_with_the_changed_values(
    cast: Cast, sign_in: SignIn
) -> None:
    quotas.set_quota(actor=cast.alice, owner=cast.vision, pool=cast.pool, values={"gpu": 2})
    quotas.set_quota(
        actor=cast.bob, owner=cast.vision, pool=cast.pool, values={"gpu": 4, "limit": {"gpu": 8}}
    )
    second, first = entries(sign_in("carol"))
    assert sentence(first) == "alice created the quota of vision in pool local: 2 GPUs"
    assert ("GPUs", "2") in [(change.label, change.after) for change in first.changes]
    assert sentence(second) == "bob changed the quota of vision in pool local: GPUs 2 → 4, GPU limit ∞ → 8"
    assert (second.link, second.changes) == ("/quotas?pool=local", [])
    assert ("set_quota", "Create or change quota") in sign_in("carol").get("/activity").context["actions"]


def test_quota_change_entry_shows_number_comment_expiry_and_reverted_change(
    cast: Cast, sign_in: SignIn
) -> None:
    quota = make.quota(cast.vision, cast.pool, 2)
    edit = QuotaChangeDraft(cast.vision, cast.pool, parse_columns({"gpu": 4}), "changes[0]")
    due = timezone.now() + timedelta(days=2)
    change, _ = apply_draft(actor=cast.alice, draft=Draft((edit,), "holiday", due))
    assert change is not None
    text = sign_in("carol").get("/activity").content.decode()
    assert re.search(rf">change {change.pk}</a>, <span>expires <time.*</span>: holiday", text)
    reverting = revert(actor=cast.alice, change=change)
    text = sign_in("carol").get("/activity").content.decode()
    reverts = f'reverts <a href="/quotas/changes?change={change.pk}">change {change.pk}</a>'
    assert f">change {reverting.pk}</a>, <span>{reverts}</span>)" in text, "the number comes first"
    quota.refresh_from_db()
    assert quota.gpu_milli == 2000


def test_scale_requests_show_the_service_instead_of_the_request_id(cast: Cast, sign_in: SignIn) -> None:
    request_id = "77eafff7-140d-433f-9037-8c00e74a5c69"
    for action, name in (("scale_out", f"scale_out {request_id}: PENDING"), ("cancel", "Scale-in of chat")):
        Audit.objects.create(
            actor="dave", action=action, object_type="scalerequest", object_id=request_id, object_name=name,
            project_id=cast.vision.pk, after={"num_replicas": 2} if action == "scale_out" else None,
        )  # fmt: skip
    cancelled, requested = map(sentence, entries(sign_in("alice")))
    assert cancelled == "dave cancelled a scale-in of service chat in vision"
    assert requested == "dave requested a scale-out of a deleted service in vision: 2 engines"


def test_two_quota_changes_within_a_minute_are_not_merged(cast: Cast, sign_in: SignIn) -> None:
    for number in range(4):
        Audit.objects.create(
            actor="alice", action="set_quota", object_type="quota", object_id=str(number),
            object_name=f"p{number} in pool local", change_id=12 + number // 2,
        )  # fmt: skip
    assert len(shown(sign_in("alice"))) == 4


@pytest.mark.heavy
def test_activity_page_spells_out_roles_and_units(cast: Cast, sign_in: SignIn) -> None:
    members.grant(actor=cast.alice, user=cast.dave.user, role="project_admin", scope=cast.vision)
    values = {"gpu_hours": 4500, "warn_at": [80, 100]}
    budgets.set_budget(actor=cast.alice, owner=cast.vision, values=values)
    budget, role = entries(sign_in("carol"))[:2]
    assert sentence(role) == "alice made dave a project admin of vision (before: member)"
    assert sentence(budget) == "alice created the budget of vision: 4,500 GPU-hours a month"


@pytest.mark.heavy
def test_changed_document_is_shown_as_a_diff(cast: Cast, sign_in: SignIn) -> None:
    text = "command: python train.py\nroles:\n  - {name: worker, replicas: 1, gpu: 1}\n"
    for command in ("train.py", "train.py --fast"):
        templates.set_template(
            actor=cast.carol, project=cast.vision, name="nightly", text=text.replace("train.py", command)
        )
    changed, created = entries(sign_in("carol"))
    assert sentence(created) == "carol created template vision/nightly"
    assert changed.link == "/templates/vision/nightly/edit"
    (document,) = changed.changes
    assert ("removed", "command: python train.py") in document.diff
    assert ("added", "command: python train.py --fast") in document.diff


@pytest.mark.heavy
def test_deleted_workload_is_not_linked(cast: Cast, sign_in: SignIn) -> None:
    document = {"name": "run", "command": "true", "roles": [{"name": "worker", "replicas": 1, "gpu": 1}]}
    workload = workloads.submit(actor=cast.dave, project=cast.vision, document=document)
    (submitted,) = entries(sign_in("carol"))
    assert sentence(submitted) == "dave submitted workload run in vision: training, 1 GPU, priority 50"
    assert submitted.link == f"/workloads/{workload.pk}"
    workload.delete()
    assert [entry.link for entry in entries(sign_in("carol"))] == [""]


def test_channels_and_secrets_have_the_same_names_as_on_their_pages(cast: Cast, sign_in: SignIn) -> None:
    for key, name in enumerate(("vision to chat", "vision to mail", "vision to webhook")):
        Audit.objects.create(
            actor="alice", action="subscribe", object_type="subscription", object_id=str(key),
            object_name=name,
        )  # fmt: skip
    for before in (None, {"secret": "hub"}):
        Audit.objects.create(
            actor="alice", action="set_secret", object_type="nodepool", object_id="1", object_name="local",
            before=before, after={"secret": "hub"},
        )  # fmt: skip
    texts = [sentence(entry) for entry in entries(sign_in("alice"))]
    assert "alice replaced secret hub of node pool local" in texts[0]
    assert "alice created secret hub of node pool local" in texts[1]
    endings = ("sent to a webhook", "sent by email", "sent to Slack")
    assert [text.endswith(ending) for text, ending in zip(texts[2:], endings, strict=True)] == [True] * 3


def test_user_filter_offers_only_users_with_visible_changes(cast: Cast, sign_in: SignIn) -> None:
    for actor, project in (("alice", cast.vision), ("bob", cast.ads)):
        Audit.objects.create(
            actor=actor, action="edit", object_type="project", object_id=str(project.pk),
            object_name=project.name, project_id=project.pk,
        )  # fmt: skip

    def offered(username: str, query: str = "") -> list[str]:
        page = sign_in(username).get(f"/activity{query}").content.decode()
        (options,) = re.findall(r'<select id="f-actor" name="actor">(.*?)</select>', page)
        return re.findall(r">([^<]+)</option>", options)

    assert offered("dave") == ["Any user", "alice"]
    assert offered("alice") == ["Any user", "alice", "bob"]
    assert offered("dave", "?actor=dave") == ["Any user", "alice", "dave"], "the filter of a link is visible"
    assert [entry.row.actor for entry in entries(sign_in("alice"), "?actor=bob")] == ["bob"]


def test_date_filter_applies_to_page_and_export(cast: Cast, sign_in: SignIn) -> None:
    quotas.set_quota(actor=cast.alice, owner=cast.vision, pool=cast.pool, values={"gpu": 2})
    client = sign_in("alice")
    today, tomorrow = (f"{timezone.now() + timedelta(days=days):%Y-%m-%d}" for days in (0, 1))
    assert len(entries(client, f"?since={today}")) == 1
    assert entries(client, f"?since={tomorrow}") == []
    export: Any = client.get(f"/activity?until={tomorrow}&format=csv")
    assert b"vision in pool" in streamed(export)


def test_statement_count_does_not_depend_on_the_number_of_entries(cast: Cast, sign_in: SignIn) -> None:
    client = sign_in("alice")
    counts = []
    for number in (1, 30):
        Audit.objects.bulk_create(
            Audit(
                actor="dave", action="submit", object_type="workload", object_name="run",
                project_id=cast.vision.pk, object_id="6bddf89d-1724-4763-9f1e-2f27365daa43",
            )
            for _ in range(number)
        )  # fmt: skip
        with CaptureQueriesContext(connection) as statements:
            assert client.get("/activity").status_code == 200
        counts.append(len(statements))
    assert counts[0] == counts[1]


def test_similar_changes_within_a_minute_are_grouped_into_one_expandable_row(
    cast: Cast, sign_in: SignIn
) -> None:
    at = make.ago(hours=1).replace(second=0, microsecond=0)
    Audit.objects.create(
        actor="alice", action="create", object_type="project", object_id="y", object_name="early",
        at=at - timedelta(minutes=2),
    )  # fmt: skip
    for number in range(6):
        for kind, action in (("project", "create"), ("quota", "set_quota")):
            name = f"p{number}" if kind == "project" else f"p{number} in pool local"
            Audit.objects.create(
                actor="alice", action=action, object_type=kind, object_id=f"x{number}", object_name=name,
                at=at + timedelta(seconds=number),
            )  # fmt: skip
    client = sign_in("alice")
    quota_group, project_group, single = shown(client)
    assert isinstance(quota_group, EntryGroup) and isinstance(project_group, EntryGroup)
    assert (quota_group.verb, project_group.verb) == ("created 6 quotas", "created 6 projects")
    assert [entry.name for entry in project_group.first_entries_by_object] == ["p5", "p4", "p3", "p2"]
    assert project_group.unnamed_count == 2
    assert isinstance(single, ActivityEntry) and single.name == "early"
    page = client.get("/activity").content.decode()
    assert '<span class="if-open">Hide</span> 6 changes' in page and "and 2 more" in page
    assert "created the quota of" in page, "the unfolded sentences are complete"
    file = streamed(client.get("/activity?format=csv"))
    assert file.count(b"\n") == 14, "the file has one line per change"
