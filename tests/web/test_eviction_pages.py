"""Tests for the eviction pages: periods, moved workloads, and the later state of victims."""

from datetime import timedelta

import pytest
from django.utils import timezone

from projects.models import Workload
from scheduler.models import Eviction
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn


def create_eviction(cast: Cast, name: str, *, kind: str = "reclaim", hours: int = 1) -> Eviction:
    victim = make.workload(cast.vision, name, submitted_at=make.ago(hours=300))
    preemptor = make.workload(cast.ads, f"for-{name}", phase="running")
    return make.eviction(victim, preemptor, cast.pool, kind=kind, at=make.ago(hours=hours))


def test_evictions_of_the_last_day_are_one_click_away(cast: Cast, sign_in: SignIn) -> None:
    for name, hours in (("today", 3), ("this-week", 50), ("long-ago", 200)):
        create_eviction(cast, name, hours=hours)
    alice = sign_in("alice")
    shown = {
        period: [row.victim.name for row in alice.get(f"/evictions?period={period}").context["rows"]]
        for period in ("", "24h", "7d")
    }
    assert shown["24h"] == ["today"]
    assert sorted(shown["7d"]) == ["this-week", "today"]
    assert len(shown[""]) == 3
    page = alice.get("/evictions?period=24h").content.decode()
    assert '<option value="24h" selected>Last 24 hours</option>' in page


def test_preset_period_overrides_dates(cast: Cast, sign_in: SignIn) -> None:
    create_eviction(cast, "today")
    alice = sign_in("alice")
    page = alice.get("/evictions?period=24h&since=2020-01-01&until=2020-01-02")
    assert [row.victim.name for row in page.context["rows"]] == ["today"]
    assert '<option value="24h" selected>' in page.content.decode()
    page = alice.get("/evictions?since=2020-01-01&until=2020-01-02")
    assert page.context["rows"] == []
    assert '<option value="custom" selected>Custom dates</option>' in page.content.decode()


def test_evictions_can_be_searched_by_partial_victim_or_preemptor_name(cast: Cast, sign_in: SignIn) -> None:
    create_eviction(cast, "detr-long")
    other = make.eviction(make.workload(cast.ads, "quick"), make.workload(cast.ads, "fast"), cast.pool)
    assert other.workload_name == "quick"
    alice = sign_in("alice")
    for text in ("detr", "DETR-long", "or-detr"):
        page = alice.get(f"/evictions?workload={text}")
        assert [row.victim.name for row in page.context["rows"]] == ["detr-long"], text
    make.eviction(make.workload(cast.speech, "own"), make.workload(cast.ads, "hidden"), cast.pool)
    bob_page = sign_in("dave").get("/evictions?workload=hidden")
    assert bob_page.context["rows"] == []


def test_eviction_lists_show_victims_and_preemptors(cast: Cast, sign_in: SignIn) -> None:
    create_eviction(cast, "stopped")
    victim, preemptor = make.workload(cast.ads, "slow"), make.workload(cast.vision, "quick")
    make.eviction(victim, preemptor, cast.pool)
    dave = sign_in("dave")
    for path in ("/evictions", "/"):
        page = dave.get(path).content.decode()
        assert '<th scope="col">Victim</th><th scope="col">Preemptor</th>' in page, path
    assert "Victim ↓ Preemptor →" in dave.get("/evictions").content.decode()


def test_eviction_page_has_one_legend(cast: Cast, sign_in: SignIn) -> None:
    victim, preemptor = (make.workload(project, "train") for project in (cast.vision, cast.ads))
    sides = {side: [make.eviction_side(side, 8, 12, 16, 12)] for side in ("victim", "preemptor")}
    alice = sign_in("alice")
    for usage in (0.0, 0.25):
        for side in sides.values():
            side[0]["usage"] = usage
        row = make.eviction(victim, preemptor, cast.pool, numbers=sides)
        text = alice.get(f"/evictions/{row.pk}").content.decode()
        assert text.count('class="legend"') == 1


def test_eviction_page_omits_zero_decayed_usage(cast: Cast, sign_in: SignIn) -> None:
    victim, preemptor = (make.workload(project, "train") for project in (cast.vision, cast.ads))
    sides = {side: [make.eviction_side(side, 8, 12, 16, 12)] for side in ("victim", "preemptor")}
    alice = sign_in("alice")
    for usage, is_shown in ((0.0, False), (0.25, True)):
        for side in sides.values():
            side[0]["usage"] = usage
        row = make.eviction(victim, preemptor, cast.pool, numbers=sides)
        text = alice.get(f"/evictions/{row.pk}").content.decode()
        assert ("Decayed usage" in text) == is_shown


def test_moved_workload_is_not_counted_as_evicted(cast: Cast, sign_in: SignIn) -> None:
    create_eviction(cast, "stopped")
    create_eviction(cast, "moved", kind="consolidate")
    page = sign_in("alice").get("/evictions").content.decode()
    assert "<span>1 eviction</span> · <span>1 workload moved</span>" in page


def test_eviction_page_shows_the_rule_as_a_sentence_and_bars_for_each_queue(
    cast: Cast, sign_in: SignIn
) -> None:
    victim, preemptor = (make.workload(project, "train") for project in (cast.vision, cast.ads))
    row = make.eviction(
        victim, preemptor, cast.pool, rule="in vision, priority 50 preempts priority 40",
        numbers={"victim": [make.eviction_side("vision", 8, 12, 16, 12)]},
    )  # fmt: skip
    page = sign_in("alice").get(f"/evictions/{row.pk}").content.decode()
    assert "In vision, priority 50 preempts priority 40." in page
    for label in ("16 GPUs allocated before the eviction", "12 GPUs allocated after the eviction"):
        assert f'aria-label="{label}"' in page


def test_gpus_of_a_queue_with_unlimited_quota_are_not_drawn_as_over_quota(
    cast: Cast, sign_in: SignIn
) -> None:
    victim, preemptor = (make.workload(project, "train") for project in (cast.vision, cast.ads))
    side = make.eviction_side("vision", 8, 12, 16, 12) | {"quota": {"gpu": None}}
    row = make.eviction(victim, preemptor, cast.pool, numbers={"victim": [side]})
    ((_, (queue,)),) = sign_in("alice").get(f"/evictions/{row.pk}").context["sides"]
    assert [{part.kind for part in bar.parts} for _, bar in queue["bars"]] == [{"used"}, {"used"}]
    assert [bar.quota for _, bar in queue["bars"]] == [None, None]


def test_queue_bars_of_an_eviction_have_the_same_scale(cast: Cast, sign_in: SignIn) -> None:
    victim, preemptor = (make.workload(project, "train") for project in (cast.vision, cast.ads))
    large, small = make.eviction_side("research", 16, 16, 16, 12), make.eviction_side("ads", 4, 4, 0, 4)
    row = make.eviction(victim, preemptor, cast.pool, numbers={"victim": [large], "preemptor": [small]})
    sides = sign_in("alice").get(f"/evictions/{row.pk}").context["sides"]
    bars = [bar for _, queues in sides for queue in queues for _, bar in queue["bars"]]
    assert [sum(part.width for part in bar.parts) for bar in bars] == [800, 600, 0, 200]


def test_eviction_page_shows_what_happened_to_the_victim(cast: Cast, sign_in: SignIn) -> None:
    row = create_eviction(cast, "train")
    alice, victim = sign_in("alice"), Workload.objects.filter(name="train")

    def shown() -> str:
        return alice.get(f"/evictions/{row.pk}").content.decode()

    expected_start = timezone.now() + timedelta(hours=2)
    victim.update(phase="pending", explanation={"expected_start": expected_start.isoformat()})
    assert "expected start:" in shown() and f'<time datetime="{expected_start.isoformat()}"' in shown()
    victim.update(explanation={"queue_position": 3})
    assert "Queue position 3</a>" in shown()
    victim.update(explanation=None)
    assert "expected start unknown" in shown()
    victim.update(phase="running", started_at=timezone.now())
    assert "restarted" in shown()


@pytest.mark.heavy
@pytest.mark.parametrize(("kind", "title"), [("preempt", "Preempted"), ("shrink", "Scaled down")])
def test_eviction_titles_describe_what_happened(kind: str, title: str, cast: Cast, sign_in: SignIn) -> None:
    eviction = create_eviction(cast, "train", kind=kind)
    for path in ("/evictions", f"/evictions/{eviction.pk}"):
        assert f">{title}</span>" in sign_in("dave").get(path).content.decode()
