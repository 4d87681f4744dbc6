"""Tests for the quota page of one pool."""

import re

import pytest

from projects.models import Department, Project, Quota
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn


@pytest.mark.heavy
def test_many_projects_are_collapsed_by_department(cast: Cast, sign_in: SignIn) -> None:
    Project.objects.bulk_create(Project(name=f"many-{n}", department=cast.product) for n in range(1000))
    make.quota(cast.vision, cast.pool, 2)
    client = sign_in("alice")
    folded = client.get("/quotas?pool=local")
    text = folded.content.decode()
    assert "Show 1002 projects in product" in text
    assert "many-7" not in text
    assert len(folded.content) < 60_000
    opened = client.get("/quotas?pool=local&open=research").content.decode()
    assert "Hide 2 projects in research" in opened
    assert ">vision</a>" in opened
    assert "many-7" not in opened
    assert ">many-7</a>" in client.get("/quotas?pool=local&open=product").content.decode()


@pytest.mark.heavy
def test_short_project_list_is_not_collapsed(cast: Cast, sign_in: SignIn) -> None:
    text = sign_in("alice").get("/quotas?pool=local").content.decode()
    assert all(f">{name}</a>" in text for name in ("vision", "speech", "ads", "search"))
    assert "Show 2 projects" not in text


@pytest.mark.parametrize("path", ["/quotas?pool=local", "/fair-share?pool=local", "/quotas"])
def test_projects_are_listed_below_their_department_even_if_it_has_no_quota(
    cast: Cast, sign_in: SignIn, path: str
) -> None:
    for owner in (cast.product, cast.ads, cast.vision, cast.speech):
        make.quota(owner, cast.pool, 2)
    text = sign_in("alice").get(path).content.decode()
    names = re.findall(r">(product|ads|search|research|speech|vision)</(?:a|strong|b|span|th)>", text)
    assert list(dict.fromkeys(names)) == ["product", "ads", "search", "research", "speech", "vision"]


@pytest.mark.heavy
def test_fair_share_page_omits_columns_with_only_default_values(cast: Cast, sign_in: SignIn) -> None:
    quotas = [make.quota(owner, cast.pool, 2) for owner in (cast.product, cast.ads, cast.vision)]
    client = sign_in("alice")
    text = client.get("/fair-share?pool=local").content.decode()
    assert "All queues have rank 0, weight 1, no limit and no decayed usage." in text
    assert not any(f'data-label="{name}"' in text for name in ("Rank", "Weight", "Limit", "Decayed usage"))
    assert 'data-label="Pending"' in text
    quotas[1].weight_gpu = 3
    quotas[1].save()
    text = client.get("/fair-share?pool=local").content.decode()
    assert "All queues have rank 0, no limit and no decayed usage." in text
    assert 'data-label="Weight"' in text and 'data-label="Limit"' not in text
    quotas[1].limit_gpu_milli = 5000
    quotas[1].save()
    assert re.search(r'data-label="Limit">\s*5<', client.get("/fair-share?pool=local").content.decode())
    file = client.get("/fair-share?pool=local&format=csv").getvalue().decode()
    assert all(
        name in file.splitlines()[0] for name in ("Rank", "Weight", "Limit", "Decayed usage", "Pending")
    )


def test_creating_the_first_department_redirects_to_the_quota_grid(cast: Cast, sign_in: SignIn) -> None:
    alice = sign_in("alice")
    form = {"name": "lab", "title": "", "rank": "0"}
    answer = alice.post("/departments/new", form, headers={"HX-Request": "true"})
    assert answer.status_code == 204 and "HX-Redirect" not in answer, "an open grid shows the new row"
    Quota.objects.all().delete()
    Project.objects.all().delete()
    Department.objects.all().delete()
    assert 'href="/departments/new">Create department</a>' in alice.get("/quotas").content.decode()
    answer = alice.post("/departments/new", form, headers={"HX-Request": "true"})
    assert answer["HX-Redirect"] == "/quotas"
    assert "Department lab created." in alice.get("/quotas").content.decode()


def test_department_and_project_bars_have_the_same_scale(cast: Cast, sign_in: SignIn) -> None:
    for owner, gpus in ((cast.product, 16), (cast.research, 4), (cast.vision, 4)):
        make.quota(owner, cast.pool, gpus)
    tree = sign_in("alice").get("/quotas?pool=local").context["tree"]
    lines = {line.owner.name: line for top, _, _ in tree for line in (top, *top.children)}
    marks = {name: lines[name].bar.quota for name in ("product", "research", "vision")}
    assert marks == {"product": 800, "research": 200, "vision": 200}, "16 and 4 GPUs on a scale of 20"


def test_pool_quota_list_has_the_same_header_as_the_grid(cast: Cast, sign_in: SignIn) -> None:
    alice = sign_in("alice")
    pages = [alice.get(path).content.decode() for path in ("/quotas", "/quotas?pool=local")]
    grid, listed = (page.partition('<div class="page-head">')[2].partition("</details>")[0] for page in pages)
    assert grid == listed and "Create quota group" in grid
    names = re.findall(r'aria-label="Actions for (\w+)"', pages[1])
    assert names == ["product", "ads", "search", "research", "speech", "vision"]
    assert "Actions for" not in sign_in("dave").get("/quotas?pool=local").content.decode()


def test_pool_quota_values_link_to_their_fields_for_users_who_may_change_them(
    cast: Cast, sign_in: SignIn
) -> None:
    quota = make.quota(cast.vision, cast.pool, 2)
    alice, listed = sign_in("alice"), "/quotas?pool=local"
    text = alice.get(listed).content.decode()
    assert 'data-label="Rank"' not in text and "All queues have rank 0." in text
    quota.rank = 1
    quota.save()
    text = alice.get(listed).content.decode()
    for label, field in (
        ("Quota of vision: 2 GPUs", "gpu"),
        ("Limit of vision: unlimited", "limit_gpu"),
        ("Weight of vision: 1", "weight"),
        ("Rank of vision: 1", "rank"),
    ):
        link = re.search(rf'hx-get="([^"]+)" hx-target="([^"]+)" aria-label="{label}, change"', text)
        assert link is not None, label
        assert f'id="{link[2].removeprefix("#")}"' in text, "the row that the form opens in"
        assert re.search(rf'<input[^>]*name="{field}"[^>]*autofocus', alice.get(link[1]).content.decode())
    assert ", change" not in sign_in("dave").get(listed).content.decode()


def test_pool_quota_legend_lists_only_what_the_bars_show(cast: Cast, sign_in: SignIn) -> None:
    make.quota(cast.vision, cast.pool, 2)

    def legend() -> str:
        text = sign_in("alice").get("/quotas?pool=local").content.decode()
        return text.partition('<div class="legend">')[2].partition("</div>")[0]

    assert "quota" in legend() and "within quota" not in legend() and "pending" not in legend()
    make.workload(cast.vision, "waits")
    assert "pending" in legend() and "reserved" not in legend() and "within quota" not in legend()


def test_fair_share_page_opens_on_the_busiest_pool(cast: Cast, sign_in: SignIn) -> None:
    busy = make.pool("train")
    make.workload(cast.vision, "waits", pools=["train"])
    alice = sign_in("alice")
    opened = alice.get("/fair-share?sort=name", follow=True)
    assert opened.redirect_chain == [("/fair-share?sort=name&pool=train", 302)]
    assert opened.context["pool"] == busy
    assert alice.get("/fair-share?pool=local").context["pool"] == cast.pool
    file = alice.get("/fair-share?format=csv", follow=True)
    assert "fair-shares-in-train" in file.headers["Content-Disposition"]


def test_fair_share_page_without_visible_pools_does_not_redirect(cast: Cast, sign_in: SignIn) -> None:
    assert sign_in("frank").get("/fair-share").status_code == 200
