"""Tests for placeholders in the queue, which stand for workloads that the user cannot see."""

import re

import pytest
from django.test import Client

from projects.models import Phase, Project, Workload
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn

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


def test_positions_of_hidden_workloads_have_placeholders(cast: Cast, sign_in: SignIn) -> None:
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


def test_reserved_and_new_hidden_workloads_have_placeholders(cast: Cast, sign_in: SignIn) -> None:
    make.workload(cast.ads, "holds", phase=Phase.RESERVED, pools=["local"])
    queue(cast.vision, "first", 1)
    for name in ("fresh-1", "fresh-2"):
        queue(cast.ads, name, None)
    client = sign_in("dave")
    assert rows(client) == [f"reserved {ONE}", "1 first", f"new {SEVERAL}"]
    make.workload(cast.vision, "own", phase=Phase.RESERVED, pools=["local"])
    text = "own", f"reserved {ONE}", "In queue order", "1 first", f"new {SEVERAL}"
    assert rows(client)[1:] == list(text)


def test_pool_with_hidden_workloads_only_keeps_its_heading(cast: Cast, sign_in: SignIn) -> None:
    make.pool("spare")
    queue(cast.ads, "theirs", 1, "spare")
    queue(cast.vision, "own", 1)
    assert rows(sign_in("dave"), "/queue") == ["local", "1 own", "spare", f"1 {ONE}"]


@pytest.mark.heavy
def test_placeholders_continue_on_later_pages(cast: Cast, sign_in: SignIn) -> None:
    for position in range(1, 161, 2):
        queue(cast.vision, f"own-{position}", position)
        queue(cast.ads, f"theirs-{position}", position + 1)
    client = sign_in("dave")
    seen, path = list[str](), "/queue?pool=local"
    while path:
        response = client.get(path)
        seen += rows(client, path)
        after = response.context["listing"].next
        path = f"/queue?pool=local&cursor={after}" if after else ""
    numbers = [int(row.split()[0]) for row in seen]
    assert numbers == list(range(1, 161))
