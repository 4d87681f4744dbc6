"""Tests for the bars of projects on the overview."""

import re

import pytest

from berth.server.web.charts.bars import bar_scale, gpu_ticks, tight_bar_scale
from projects.models import Project, Quota, Workload
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn


def test_pending_gpus_of_a_project_exclude_unschedulable_workloads(cast: Cast, sign_in: SignIn) -> None:
    make.workload(cast.vision, "too-large", replicas=64, reason="Unschedulable", pools=[cast.pool.name])
    make.workload(cast.vision, "next", replicas=3, pools=[cast.pool.name])
    assert "3 GPUs pending" in sign_in("dave").get("/").content.decode()


def test_projects_with_quota_are_listed_on_the_overview_even_if_no_project_uses_gpus(
    cast: Cast, sign_in: SignIn
) -> None:
    for number in range(13):
        project = Project.objects.create(name=f"team-{number:02}", department=cast.research)
        make.quota(project, cast.pool, 1)
    make.workload(cast.vision, "train", phase="completed")
    page = sign_in("alice").get("/").content.decode()
    card = page.partition('id="queues-title"')[2].partition("</section>")[0]
    assert re.findall(r">(team-\d\d)</a>", card) == [f"team-{number:02}" for number in range(12)]


def test_project_bars_use_at_most_four_colours_and_marks(
    cast: Cast, sign_in: SignIn, running: Workload
) -> None:
    make.quota(cast.vision, cast.pool, 1)
    make.workload(cast.vision, "huge", replicas=100, pools=[cast.pool.name])
    page = sign_in("dave").get("/").content.decode()
    card = page.partition('id="queues-title"')[2].partition("</section>")[0]
    encodings = {"used": "within quota", "over": "over quota", "quota": "quota"}
    assert dict(re.findall(r'<i class="([\w-]+)"></i>([\w ]+)', card)) == encodings
    bar = card.partition(">vision</a>")[2].partition("</svg>")[0]
    assert set(re.findall(r'<(?:rect|line) class="([\w-]+)"', bar)) == {
        "track",
        "used",
        "over",
        "edge",
        "quota",
    }
    assert "100 GPUs pending" in card


@pytest.mark.heavy
def test_project_bars_and_their_legend_show_the_fair_share(
    cast: Cast, sign_in: SignIn, running: Workload
) -> None:
    make.quota(cast.vision, cast.pool, 1)
    make.queue_status(cast.vision, cast.pool, share=2, allocated=2, requested=0)
    line = next(
        line
        for _, lines in sign_in("dave").get("/").context["queues"]
        for line in lines
        if line.owner == cast.vision
    )
    page = sign_in("dave").get("/").content.decode()
    card = page.partition('id="queues-title"')[2].partition("</section>")[0]
    bar = card.partition(">vision</a>")[2].partition("</svg>")[0]
    (position,) = re.findall(r'<line class="share" x1="(\d+)"', bar)
    assert int(position) == round(1000 * 2000 / line.scale) > 0, "the mark is at 2 GPUs"
    assert '<i class="share"></i>fair share' in card


@pytest.mark.parametrize(
    ("longest", "labels"),
    [
        (0, []),
        (750, ["0", "1"]),
        (4000, ["0", "1", "2", "3", "4", "5"]),
        (16_000, ["0", "4", "8", "12", "16", "20"]),
        (17_000, ["0", "8", "16", "24"]),
    ],
)
def test_project_bars_have_few_axis_labels_in_whole_gpus(longest: int, labels: list[str]) -> None:
    ticks = gpu_ticks(bar_scale(longest))
    assert [each.text for each in ticks] == labels
    assert [ticks[0].position, ticks[-1].position] == [0, 100] if ticks else not longest


@pytest.mark.parametrize(
    ("longest", "scale"), [(0, 0), (750, 1000), (4000, 4000), (12_000, 12_000), (12_250, 16_000)]
)
def test_project_bar_axis_ends_at_the_first_label_after_the_longest_bar(longest: int, scale: int) -> None:
    assert tight_bar_scale(longest) == scale


@pytest.mark.heavy
def test_overview_of_a_pool_omits_projects_without_quota_and_gpus(cast: Cast, sign_in: SignIn) -> None:
    other = make.pool("other")
    make.workload(cast.vision, "done", phase="completed", first_started_at=make.ago(hours=1))
    make.quota(cast.vision, cast.pool, 1)
    idle = Project.objects.create(name="idle", department=cast.research)
    client = sign_in("alice")

    def card(pool: str) -> str:
        text = client.get("/", {"pool": pool}).content.decode()
        part = text.partition('id="queues-title"')[2].partition("</section>")[0]
        return " ".join(re.sub(r"<[^>]+>", " ", part).split())

    assert "vision" in card(cast.pool.name) and idle.name not in card(cast.pool.name)
    assert card(cast.pool.name).endswith("Show 4 more projects in Quotas")
    assert card("other").endswith("No project has a quota or GPUs in other. Show 5 projects in Quotas")
    make.quota(idle, other, 1)
    assert "idle 0 of quota 1" in card("other")
    assert card("other").endswith("Show 4 more projects in Quotas")


def test_overview_names_the_pool_where_a_project_is_over_quota(
    cast: Cast, sign_in: SignIn, running: Workload
) -> None:
    # The quota of another pool is unused, so the amount over quota does not follow from the total quota.
    Quota.objects.all().delete()
    other = make.pool("other")
    make.quota(cast.vision, cast.pool, 1)
    make.quota(cast.vision, other, 8)
    make.queue_status(cast.vision, cast.pool, share=2, allocated=2, requested=0)
    text = sign_in("alice").get("/").content.decode()
    amount = next(part for part in text.split('<div class="queue">') if ">vision</a>" in part)
    held = Workload.objects.get(pk=running.pk).gpu_milli_now // 1000
    words = " ".join(re.sub(r"<[^>]+>", " ", amount).split())
    assert f"{cast.pool.name}: {held} of quota 1, fair share 2, 1 over quota" in words
    assert "other: 0 of quota 8" in words and "unused" not in words
    assert f"{held} of quota 9" in words and words.count("over quota") == 1
    Quota.objects.filter(pool=other).update(gpu_milli=500)
    text = sign_in("alice").get("/").content.decode()
    assert text.partition(">vision</a>")[2].partition('<div class="queue')[0].count("over quota") == 1
    assert words.count("fair share") == 1, "fair shares in different pools are not added up"
    assert len(re.findall(r'<line class="share"', amount)) == 1
    marks = re.findall(r'<line class="quota" x1="(\d+)"', amount)
    assert [int(mark) for mark in marks] == [125, 1000], "each bar has the mark of its pool's quota"
