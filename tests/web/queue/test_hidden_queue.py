"""Tests for placeholders in the queue, which stand for workloads that the user cannot see."""

import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from projects.models import Phase, Project, Workload
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn
from tests.web.queue.test_queue_page import submit_array

ONE, SEVERAL = "A workload of another project", "Workloads of other projects"


def queue(project: Project, name: str, position: int | None, pool: str = "local") -> Workload:
    explanation = {"pool": pool, "queue_position": position, "ordering": ["vision: within its quota"]}
    return make.workload(
        project,
        name,
        reason="ProjectLimit",
        explanation={} if position is None else explanation,
        pools=[pool],
    )


def rows(client: Client, path: str = "/queue?pool=local") -> list[str]:
    """Return the position and the name of every row, and the titles of pools and sections."""
    body = client.get(path).content.decode().partition("</thead>")[2].partition("</table>")[0]
    result = []
    for row in re.findall(r"<tr[^>]*>(.*?)</tr>", body, re.DOTALL):
        position = re.search(r'<td class="num[^>]*>(?:<button[^>]*>|<span[^>]*>)?([^<]*)', row)
        name = re.search(r"<th[^>]*>(?:<a[^>]*>)?([^<]*)", row)
        result.append(f"{position[1] if position else ''} {name[1] if name else ''}".strip())
    return result


def pages(client: Client, path: str) -> list[list[str]]:
    """Return the rows of every page of a list."""
    result, cursor = list[list[str]](), ""
    while True:
        result.append(rows(client, f"{path}{cursor}"))
        after = client.get(f"{path}{cursor}").context["listing"].next
        if after is None:
            return result
        cursor = f"&cursor={after}"


@pytest.mark.heavy
def test_hidden_workloads_have_placeholders_at_their_positions(cast: Cast, sign_in: SignIn) -> None:
    for position in (1, 3, 4, 6):
        queue(cast.ads, f"theirs-{position}", position)
    queue(cast.vision, "second", 2)
    queue(cast.vision, "fifth", 5)
    client = sign_in("dave")
    assert rows(client) == [f"1 {ONE}", "2 second", f"3\N{EN DASH}4 {SEVERAL}", "5 fifth", f"6 {ONE}"]
    assert "theirs" not in client.get("/queue?pool=local").content.decode()
    assert rows(sign_in("alice"))[:2] == ["1 theirs-1", "2 second"]
    for query in ("&search=second", "&reason=ProjectLimit", "&project=vision", "&mine=1", "&sort=name"):
        assert not any("other project" in row for row in rows(client, f"/queue?pool=local{query}")), query
    note = "Workloads of other projects are listed only in queue order."
    assert note in client.get("/queue?sort=name").content.decode()
    for query in ("", "?sort=name&mine=1"):
        assert note not in client.get(f"/queue{query}").content.decode()
    assert note not in sign_in("alice").get("/queue?sort=name").content.decode()


def test_placeholders_show_the_requested_gpus(cast: Cast, sign_in: SignIn) -> None:
    make.workload(cast.ads, "holds", phase=Phase.RESERVED, pools=["local"], replicas=4)
    for position, replicas in ((3, 3), (1, 2), (4, 5)):
        theirs = queue(cast.ads, f"theirs-{position}", position)
        Workload.objects.filter(pk=theirs.pk).update(gpu_milli_min=1000 * replicas)
    queue(cast.vision, "second", 2)
    make.workload(cast.ads, "fresh", pools=["local"], replicas=7)
    page = sign_in("dave").get("/queue?pool=local").content.decode()
    assert re.findall(r'hidden-workload.*?data-label="GPUs">(\d+)<', page) == ["4", "2", "8", "7"]


def test_unused_positions_have_no_placeholders(cast: Cast, sign_in: SignIn) -> None:
    queue(cast.vision, "first", 1)
    queue(cast.vision, "third", 3)
    queue(cast.ads, "theirs", 5)
    client = sign_in("dave")
    assert rows(client) == ["1 first", "3 third", f"5 {ONE}"]
    queue(cast.vision, "ninth", 9)
    assert rows(client) == ["1 first", "3 third", f"5 {ONE}", "9 ninth"]
    queue(cast.ads, "another", 7)
    assert rows(client) == ["1 first", "3 third", f"5\N{EN DASH}7 {SEVERAL}", "9 ninth"]


def test_hidden_workload_with_the_same_position_as_a_visible_one_has_a_placeholder(
    cast: Cast, sign_in: SignIn
) -> None:
    queue(cast.vision, "own", 2)
    queue(cast.ads, "stale", 2)
    assert rows(sign_in("dave")) == ["2 own", f"2 {ONE}"]


def test_hidden_workloads_between_grouped_tasks_have_a_placeholder(cast: Cast, sign_in: SignIn) -> None:
    array = submit_array(cast, "sweep", 2)
    for position, task in zip((1, 3), Workload.objects.filter(array=array).order_by("pk"), strict=True):
        explanation = {"pool": "local", "queue_position": position, "ordering": ["vision: within its quota"]}
        Workload.objects.filter(pk=task.pk).update(held=False, reason="ProjectLimit", explanation=explanation)
    queue(cast.ads, "theirs", 2)
    assert rows(sign_in("dave")) == ["1, 3 sweep", f"2 {ONE}"]


def test_placeholder_query_count_does_not_grow_with_hidden_workloads(cast: Cast, sign_in: SignIn) -> None:
    queue(cast.vision, "own", 5)
    queue(cast.ads, "theirs", 1)
    client = sign_in("dave")
    rows(client)

    def count_queries() -> int:
        with CaptureQueriesContext(connection) as queries:
            rows(client)
        return len(queries)

    few = count_queries()
    for position in (2, 3, 4, 6, 7):
        queue(cast.ads, f"theirs-{position}", position)
    assert count_queries() == few


def test_reserved_and_new_hidden_workloads_have_placeholders(cast: Cast, sign_in: SignIn) -> None:
    make.workload(cast.ads, "holds", phase=Phase.RESERVED, pools=["local"])
    queue(cast.vision, "first", 1)
    for name in ("fresh-1", "fresh-2"):
        queue(cast.ads, name, None)
    client = sign_in("dave")
    assert rows(client) == [f"reserved {ONE}", "1 first", f"new {SEVERAL}"]
    make.workload(cast.vision, "own", phase=Phase.RESERVED, pools=["local"])
    text = "reserved own", f"reserved {ONE}", "1 first", f"new {SEVERAL}"
    assert rows(client) == list(text)


def test_pool_with_only_hidden_workloads_keeps_its_heading(cast: Cast, sign_in: SignIn) -> None:
    make.pool("spare")
    queue(cast.ads, "theirs", 1, "spare")
    queue(cast.vision, "own", 1)
    assert rows(sign_in("dave"), "/queue") == ["local", "1 own", "spare", f"1 {ONE}"]


def test_hidden_workloads_without_a_pool_have_a_placeholder(cast: Cast, sign_in: SignIn) -> None:
    make.pool("spare")
    queue(cast.vision, "own", 1)
    make.workload(cast.ads, "theirs", pools=["local", "spare"])
    client = sign_in("dave")
    assert rows(client, "/queue") == ["local", "1 own", "Several pools", f"new {ONE}"]
    assert rows(client) == ["1 own", f"new {ONE}"]
    assert "visible only to its members" in client.get("/queue").content.decode()


@pytest.mark.heavy
def test_placeholders_continue_on_later_pages(cast: Cast, sign_in: SignIn) -> None:
    for position in range(1, 161, 2):
        queue(cast.vision, f"own-{position}", position)
        queue(cast.ads, f"theirs-{position}", position + 1)
    seen = pages(sign_in("dave"), "/queue?pool=local")
    assert [int(row.split()[0]) for each in seen for row in each] == list(range(1, 161))


@pytest.mark.heavy
def test_placeholders_are_not_repeated_if_the_first_row_of_a_page_has_no_position(
    cast: Cast, sign_in: SignIn
) -> None:
    make.workload(cast.ads, "holds", phase=Phase.RESERVED, pools=["local"])
    queue(cast.ads, "theirs", 1)
    queue(cast.ads, "fresh", None)
    for index in range(60):
        queue(cast.vision, f"own-{index}", None)
    first, second = pages(sign_in("dave"), "/queue?pool=local")
    hidden = [[row for row in each if ONE in row] for each in (first, second)]
    assert hidden == [[f"reserved {ONE}", f"1 {ONE}"], [f"new {ONE}"]]


@pytest.mark.heavy
def test_placeholders_are_not_repeated_if_the_first_row_of_a_page_allows_several_pools(
    cast: Cast, sign_in: SignIn
) -> None:
    make.pool("spare")
    for position in range(2, 52):
        queue(cast.vision, f"own-{position}", position)
    for position in (1, 52):
        queue(cast.ads, f"theirs-{position}", position)
    queue(cast.ads, "fresh", None)
    make.workload(cast.vision, "any", pools=["local", "spare"])
    first, second = pages(sign_in("dave"), "/queue?pool=local")
    hidden = [[row for row in each if ONE in row] for each in (first, second)]
    assert hidden == [[f"1 {ONE}"], [f"52 {ONE}", f"new {ONE}"]]


@pytest.mark.heavy
def test_pools_with_only_hidden_workloads_come_last(cast: Cast, sign_in: SignIn) -> None:
    for name in ("aside", "spare"):
        make.pool(name)
    for position in range(1, 51):
        queue(cast.vision, f"own-{position}", position)
    queue(cast.ads, "last", 51)
    queue(cast.vision, "own", 1, "spare")
    queue(cast.ads, "theirs", 1, "aside")
    first, second = pages(sign_in("dave"), "/queue?")
    assert first[0] == "local"
    assert first[-2:] == ["50 own-50", f"51 {ONE}"]
    assert second == ["spare", "1 own", "aside", f"1 {ONE}"]
