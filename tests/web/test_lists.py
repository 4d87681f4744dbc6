"""Tests that every list sorts, searches and exports only the rows that the user may see."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import DjangoDbBlocker

from projects.models import Autoscaler, Delivery, Phase, Service, Template, Workload
from projects.services import quotas
from projects.services.notifications import subscriptions
from projects.services.people import members, tokens
from tests import factories as make
from tests.cast import Cast, make_cast
from tests.harness.shared_rows import shared_rows
from tests.web.conftest import SignIn, streamed


@dataclass(frozen=True)
class ListPage:
    """A list in which dave of vision sees `ours` but not `theirs`, which belongs to ads.

    `search` matches `ours`.
    """

    path: str
    ours: str
    search: str
    theirs: str = "ranker"
    name: str = ""
    sorts: str = ""
    reader: str = "dave"

    def address(self, **query: str) -> str:
        prefixed = {f"{self.name}-{key}" if self.name else key: value for key, value in query.items()}
        joint = "&" if "?" in self.path else "?"
        return self.path + joint + "&".join(f"{key}={value}" for key, value in prefixed.items())


LISTS = (
    ListPage("/workloads?state=all", "trainer", "trainer", sorts="name gpus submitted state"),
    ListPage("/services", "chat", "chat", theirs="recommend", sorts="name serving model"),
    ListPage("/queue?pool=local", "trainer", "trainer", sorts="position name gpus priority since"),
    ListPage("/quotas?pool=local", "vision", "vision", theirs="ads", sorts="name quota allocated share"),
    ListPage("/quotas", "vision", "vision", theirs="ads", sorts="name gpu.local limit_gpu.local"),
    ListPage("/fair-share?pool=local", "vision", "vision", theirs="ads", sorts="name quota share allocated"),
    ListPage("/quotas/changes", "vision", "vision", theirs="ads", sorts="at actor comment"),
    ListPage("/node-pools", "local", "local", theirs="", sorts="name nodes allocated allocation maximum"),
    ListPage("/node-pools/local", "autoscale", "autoscale", theirs="", name="history", sorts="at kind"),
    ListPage("/evictions", "trainer", "", sorts="at kind gpus lost"),
    ListPage("/activity", "vision", "vision", theirs="ads", sorts="at", reader="carol"),
    ListPage("/access", "dave", "dave", theirs="grace", name="people", sorts="user role scope since"),
    ListPage("/account", "laptop", "laptop", theirs="robot", name="tokens", sorts="name prefix expires"),
    ListPage("/templates", "begin", "begin", theirs="secret-start", sorts="name project changed"),
    ListPage("/notifications", "workloads submitted by dave", "dave", theirs="grace", sorts="channel made"),
    ListPage("/notifications", "vision/trainer", "trainer", name="log", sorts="at event state attempts"),
)  # fmt: skip
names = [f"{page.path} {page.name}".strip() for page in LISTS]
every_list = pytest.mark.parametrize("page", LISTS, ids=names)
# One list each of workloads, a tree of queues, a second list on its page, and rows of one user.
SAMPLE = {"/workloads?state=all", "/quotas?pool=local", "/node-pools/local history", "/access tokens"}
sampled_lists = pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name, marks=[] if name in SAMPLE else [pytest.mark.heavy])
        for page, name in zip(LISTS, names, strict=True)
    ],
)


@pytest.fixture(scope="module")
def shared_cast(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Cast]:
    """Create the rows for all tests in this file once. Each test's changes are rolled back."""
    with shared_rows(django_db_blocker):
        cast = make_cast()
        populate(cast)
        yield cast


def populate(cast: Cast) -> None:
    """Create two objects of each kind: one that dave of vision sees, and one of project ads."""
    for project, name, service, person in (
        (cast.vision, "trainer", "chat", cast.dave), (cast.ads, "ranker", "recommend", cast.grace),
    ):  # fmt: skip
        quotas.set_quota(actor=cast.alice, owner=project, pool=cast.pool, values={"gpu": 2})
        assert person.user is not None
        waits = make.workload(project, name, by=person.user, reason="ProjectLimit", message="It waits.")
        serves = make.workload(project, service, kind="service", phase=Phase.RUNNING)
        row = Service.objects.create(
            workload=serves, model_name=f"model of {service}", role="worker", initial_engines=1, next_number=1
        )
        Autoscaler.objects.create(service=row)
        make.eviction(waits, serves, cast.pool)
        subscription = subscriptions.subscribe(
            actor=person, scope=person.user, events=["failed"], to=f"{name}@example.org"
        )
        Delivery.objects.create(
            kind="failed", workload_id=waits.pk, subscription_id=subscription.pk, to=subscription.to,
            channel=subscription.channel, next_attempt_at=waits.submitted_at,
            content={"project": project.name, "workload": name},
        )  # fmt: skip
    for person, name in ((cast.dave, "laptop"), (cast.dave, "desk"), (cast.grace, "robot")):
        tokens.issue(actor=person, name=name, scopes=["read"], expires_at=None)
    for project, name in ((cast.vision, "begin"), (cast.speech, "other"), (cast.ads, "secret-start")):
        Template.objects.create(project=project, name=name, changed_by="alice", version=1)
    subscriptions.subscribe(actor=cast.dave, scope=cast.dave.user, events=["failed"], to="dave@example.org")
    make.scaling(cast.pool, "autoscale", "8 GPUs wait", at=make.ago(minutes=1))


def read_export(client: Client, address: str) -> list[dict[str, str]]:
    answer: Any = client.get(address)
    assert answer.status_code == 200, address
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    assert answer["Content-Disposition"].endswith('.csv"')
    return list(csv.DictReader(io.StringIO(streamed(answer).decode())))


@pytest.mark.every_case
@every_list
def test_export_contains_only_visible_rows(cast: Cast, sign_in: SignIn, page: ListPage) -> None:
    mine = str(read_export(sign_in(page.reader), page.address(format="csv")))
    assert page.ours in mine
    assert not page.theirs or page.theirs not in mine
    if page.theirs and page.name != "tokens" and page.path != "/notifications":
        assert page.theirs in str(read_export(sign_in("alice"), page.address(format="csv")))


@pytest.mark.heavy
@sampled_lists
def test_search_applies_to_list_and_export(cast: Cast, sign_in: SignIn, page: ListPage) -> None:
    client = sign_in(page.reader)
    if not page.search:
        pytest.skip("this list has its own filters, which other tests cover")
    assert page.ours in str(read_export(client, page.address(format="csv", search=page.search)))
    assert read_export(client, page.address(format="csv", search="nothing-has-this-name")) == []
    html = client.get(page.address(search=page.search)).content.decode()
    assert f'value="{page.search}"' in html
    nothing = client.get(page.address(search="nothing-has-this-name")).content.decode()
    assert 'class="empty"' in nothing, "an empty list explains itself"
    assert client.get(page.address(search="%00%27%3B--%25" + "x" * 500)).status_code == 200


@pytest.mark.heavy
@sampled_lists
def test_list_and_export_can_be_sorted_in_both_directions(
    cast: Cast, sign_in: SignIn, page: ListPage
) -> None:
    own = page.name == "tokens" or page.path == "/notifications"
    client = sign_in(page.reader if own else "alice")
    keys = page.sorts.split()
    assert 'aria-sort="ascending"' in client.get(page.address(sort=keys[-1])).content.decode()
    for key in keys:
        up = read_export(client, page.address(sort=key, format="csv"))
        down = read_export(client, page.address(sort=f"-{key}", format="csv"))
        assert len(up) > 1 or "/node-pools" in page.path or page.name == "log"
        if page.path.startswith(("/quotas?", "/fair-share")) or page.path == "/quotas":
            assert sorted(map(str, up)) == sorted(map(str, down)), "in a tree within each department"
        else:
            assert down == up[::-1], key
    assert client.get(page.address(sort="no-such-column")).status_code == 200


@pytest.mark.heavy
@sampled_lists
def test_export_link_preserves_the_query_of_the_page(cast: Cast, sign_in: SignIn, page: ListPage) -> None:
    text = sign_in(page.reader).get(page.address(sort=page.sorts.split()[0])).content.decode()
    word = f"{page.name}-format=csv" if page.name else "format=csv"
    links = [part.split('"', 1)[0] for part in text.split('href="?')[1:] if word in part.split('"', 1)[0]]
    assert any(f"sort={page.sorts.split()[0]}" in link for link in links), "the file is in the page's order"
    assert "<th scope=" in text and 'class="table-wrap' in text


@pytest.mark.heavy
def test_export_headers_name_units(cast: Cast, sign_in: SignIn) -> None:
    client = sign_in("alice")
    heads = {
        "/workloads": ("Allocated GPUs", "Requested GPUs"),
        "/services": ("Active engines", "Queue time p95 (s)"),
        "/queue?pool=local": ("Requested (GPUs)",),
        "/quotas?pool=local": ("Quota (GPUs)", "Fair share (GPUs)", "Allocated (GPUs)"),
        "/node-pools": ("Allocated (GPUs)", "Allocation (%)", "Per node (cores)", "Per node (MiB)"),
    }
    for path, expected in heads.items():
        rows = read_export(client, f"{path}{'&' if '?' in path else '?'}format=csv")
        assert set(expected) <= set(rows[0]), path


def test_exported_cells_escape_formulas(cast: Cast, sign_in: SignIn) -> None:
    alice = sign_in("alice")
    for begin in ("=", "+", "-", "@", "\t", "\uff1d"):
        Workload.objects.update(message=f"{begin}HYPERLINK(1)")
        for row in read_export(alice, "/workloads?format=csv"):
            assert row["Status"] == f"'{begin}HYPERLINK(1)"


@pytest.mark.heavy
def test_pool_charts_can_be_exported(cast: Cast, sign_in: SignIn) -> None:
    make.node(cast.pool)
    client = sign_in("dave")
    nodes = read_export(client, "/node-pools/local?format=nodes")
    assert [row["GPUs"] for row in nodes] == ["2"]
    course = read_export(client, "/node-pools/local?format=course&span=1h")
    assert {"From", "Desired (nodes)", "Current (nodes)"} <= set(course[0])


@pytest.mark.heavy
def test_long_list_is_paginated_and_its_export_is_complete(cast: Cast, sign_in: SignIn) -> None:
    for n in range(70):
        members.create_user(actor=cast.alice, username=f"person-{n:02}", email="", password="correct horse")
        person = User.objects.get(username=f"person-{n:02}")
        members.grant(actor=cast.alice, user=person, role="viewer", scope=cast.vision)
    client = sign_in("carol")
    first = client.get("/access?people-sort=-user")
    assert len(first.context["members"]) == 50
    assert first.context["members"][0][0].user.username == "person-69"
    second = client.get(f"/access?people-sort=-user&people-cursor={first.context['people'].next}")
    assert second.context["members"][0][0].user.username == "person-19"
    assert len(read_export(client, "/access?people-format=csv")) >= 73
