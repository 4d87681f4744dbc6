"""Tests for subscriptions and the resulting notifications."""

import socket
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from berth.core.errors import Conflict, Forbidden, Invalid, NotFound
from berth.core.spec.values.addresses import webhook_url
from projects.delivering import rendering
from projects.delivering.destination import ForbiddenAddress, resolve_destination
from projects.models import Delivery, Membership, Phase, Subscription, Workload
from projects.services.notifications import notify
from projects.services.notifications.idle import notify_about_idle_gpus
from projects.services.notifications.subscriptions import display_address, subscribe, unsubscribe
from projects.services.quotas import budgets
from projects.services.workloads.phase_transitions import change_phase
from scheduler.reports.usage.budgets import record_budget_warnings
from tests import factories as make
from tests.cast import Cast, make_cast

WEBHOOK = "https://hooks.slack.com/services/T000/B000/secretsecret"


@pytest.fixture
def cast(transactional_db: None) -> Cast:
    return make_cast()


def fail(workload: Workload) -> None:
    change_phase(
        workload, expected=["running"], to=Phase.FAILED, reason="ExitCode", message="Exit 1.",
        actor="scheduler", now=timezone.now(),
    )  # fmt: skip


def deliveries() -> list[tuple[str, str]]:
    return list(Delivery.objects.order_by("to", "pk").values_list("to", "kind"))


def test_workload_event_notifies_subscriptions_in_every_scope(cast: Cast) -> None:
    places = {"dave": cast.dave.user, "vision": cast.vision, "research": cast.research, "all": None}
    subscribers = {"dave": cast.dave, "vision": cast.carol, "research": cast.bob, "all": cast.alice}
    for name, place in places.items():
        subscribe(actor=subscribers[name], scope=place, to=f"{name}@example.org", events=["failed"])
    subscribe(actor=cast.carol, scope=cast.carol.user, to="carol@example.org", events=["failed"])
    subscribe(actor=cast.bob, scope=cast.speech, to="speech@example.org", events=["failed"])
    fail(make.workload(cast.vision, "w", phase="running", by=cast.dave.user))
    assert deliveries() == [
        (f"{name}@example.org", "failed") for name in ("all", "dave", "research", "vision")
    ]


def test_address_in_both_a_subscription_and_the_document_is_notified_once(cast: Cast) -> None:
    subscribe(actor=cast.dave, scope=cast.dave.user, to="dave@example.org", events=["failed"])
    workload = make.workload(cast.vision, "w", phase="running", by=cast.dave.user)
    workload.spec["notifications"] = [{"to": "dave@example.org"}]
    workload.save()
    fail(workload)
    assert deliveries() == [("dave@example.org", "failed")]


def test_former_member_is_not_notified(cast: Cast) -> None:
    subscribe(actor=cast.dave, scope=cast.dave.user, to="dave@example.org", events=["failed", "pending"])
    pending = make.workload(cast.vision, "waits", by=cast.dave.user, since=make.ago(hours=3))
    Membership.objects.filter(user=cast.dave.user).delete()
    fail(make.workload(cast.vision, "w", phase="running", by=cast.dave.user))
    assert (deliveries(), notify.notify_about_pending_workloads(timezone.now()), pending.phase) == (
        [],
        0,
        "pending",
    )


def test_each_long_pending_period_triggers_one_notification(cast: Cast) -> None:
    subscribe(actor=cast.carol, scope=cast.vision, to="v@example.org", events=["pending"], pending_minutes=30)
    now = timezone.now()
    workload = make.workload(cast.vision, "w", since=now - timedelta(minutes=31))
    make.workload(cast.vision, "young", since=now - timedelta(minutes=29))
    make.workload(cast.ads, "others", since=now - timedelta(hours=9))
    assert [notify.notify_about_pending_workloads(now), notify.notify_about_pending_workloads(now)] == [1, 0]
    assert Delivery.objects.get().content["minutes"] == 31
    later = now + timedelta(hours=5)
    Workload.objects.filter(pk=workload.pk).update(since=later)
    Workload.objects.filter(name="young").delete()
    assert notify.notify_about_pending_workloads(later + timedelta(minutes=31)) == 1


def test_budget_warning_notifies_project_and_department_subscriptions(cast: Cast) -> None:
    from scheduler.models import UsageHour

    subscribe(actor=cast.carol, scope=cast.vision, to="v@example.org", events=["budget"])
    subscribe(actor=cast.bob, scope=cast.research, to="r@example.org", events=["budget"])
    subscribe(actor=cast.bob, scope=cast.speech, to="s@example.org", events=["budget"])
    budgets.set_budget(actor=cast.alice, owner=cast.vision, values={"gpu_hours": 10})
    now = timezone.now()
    UsageHour.objects.create(
        hour=now.replace(minute=0, second=0, microsecond=0), pool_id=cast.pool.pk, pool_name="local",
        department_id=cast.research.pk, department_name="research", project_id=cast.vision.pk,
        project_name="vision", gpu_milli_seconds=9 * 3_600_000,
    )  # fmt: skip
    assert [record_budget_warnings(now), record_budget_warnings(now)] == [1, 0]
    assert deliveries() == [("r@example.org", "budget"), ("v@example.org", "budget")]
    subject = rendering.subject(Delivery.objects.order_by("pk")[0].content)
    assert subject == "vision has used 80% of its budget"


def test_platform_admins_are_notified_of_a_failing_pool_at_most_every_few_hours(cast: Cast) -> None:
    subscribe(actor=cast.alice, scope=None, to="ops@example.org", events=["pool"])
    now = timezone.now()
    assert notify.notify_about_pools(now) == 0
    cast.pool.last_error = "provision: quota: 0 vCPUs"
    cast.pool.save()
    assert [notify.notify_about_pools(now), notify.notify_about_pools(now + timedelta(minutes=5))] == [1, 0]
    assert notify.notify_about_pools(now + timedelta(hours=7)) == 1
    assert rendering.plain_text(Delivery.objects.order_by("pk")[0].content).startswith(
        "The node pool local is failing."
    )


def test_only_admins_of_a_scope_can_create_its_subscriptions(cast: Cast) -> None:
    wanted: dict[str, Any] = {"to": "x@example.org", "events": ["failed"]}
    for actor, place, rejection in (
        (cast.dave, cast.vision, Forbidden),
        (cast.grace, cast.vision, NotFound),
        (cast.carol, cast.research, Forbidden),
        (cast.bob, None, Forbidden),
        (cast.dave, cast.carol.user, Forbidden),
    ):
        with pytest.raises(rejection):
            subscribe(actor=actor, scope=place, **wanted)
    mine = subscribe(actor=cast.dave, scope=cast.dave.user, **wanted)
    with pytest.raises(Forbidden):
        unsubscribe(actor=cast.alice, subscription=mine)
    unsubscribe(actor=cast.dave, subscription=mine)
    assert not Subscription.objects.exists()


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"to": "nowhere"}, "to"),
        ({"events": []}, "events"),
        ({"events": ["pool"]}, "events"),
        ({"pending_minutes": 0}, "pending_minutes"),
    ],
)
def test_error_for_an_invalid_subscription_names_the_field(
    cast: Cast, wrong: dict[str, Any], path: str
) -> None:
    wanted: dict[str, Any] = {"to": "x@example.org", "events": ["failed"], **wrong}
    with pytest.raises(Invalid) as rejected:
        subscribe(actor=cast.dave, scope=cast.dave.user, **wanted)
    assert [problem.path for problem in rejected.value.problems] == [path]


@pytest.mark.parametrize(
    ("to", "why"),
    [
        ("http://127.0.0.1:9000/hook", "127.0.0.1 is the Berth server itself"),
        ("http://2130706433/", "2130706433 resolves to 127.0.0.1, which is the Berth server itself"),
        ("slack:http://10.1.2.3/hook", "10.1.2.3 is not a public address"),
        ("http://169.254.169.254/", "169.254.169.254 is never allowed"),
    ],
)
def test_subscribing_and_delivering_to_a_forbidden_address_fail_with_the_same_message(
    cast: Cast, to: str, why: str
) -> None:
    with pytest.raises(Invalid) as rejected:
        subscribe(actor=cast.dave, scope=cast.dave.user, to=to, events=["failed"])
    (problem,) = rejected.value.problems
    assert (problem.path, problem.message) == ("to", f"is not allowed: {why}")
    assert problem.allowed == "a public address", "only platform admins can change the server's settings"
    with pytest.raises(ForbiddenAddress) as at_delivery:
        resolve_destination(webhook_url(to), ())
    assert str(at_delivery.value) == why


def test_localhost_is_rejected_and_other_names_are_resolved_on_delivery(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Invalid, match="which is the Berth server itself"):
        subscribe(actor=cast.dave, scope=cast.dave.user, to="http://localhost/", events=["failed"])
    look_up = socket.getaddrinfo

    def reject_host_names(*arguments: Any, **options: Any) -> Any:
        numeric_only = options.get("flags", 0) & socket.AI_NUMERICHOST
        assert numeric_only, "host names must not be resolved during the request"
        return look_up(*arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", reject_host_names)
    made = subscribe(actor=cast.dave, scope=cast.dave.user, to="http://chat.internal/", events=["failed"])
    assert made.pk


def test_webhook_address_in_an_allowed_network_is_accepted(cast: Cast, settings: Any) -> None:
    settings.BERTH_NOTIFY_NETWORKS = ["10.0.0.0/8"]
    made = subscribe(actor=cast.dave, scope=cast.dave.user, to="http://10.1.2.3/hook", events=["failed"])
    assert made.channel == "webhook"


def test_duplicate_subscription_is_rejected(cast: Cast) -> None:
    subscribe(actor=cast.dave, scope=cast.dave.user, to=WEBHOOK, events=["failed"])
    with pytest.raises(Conflict):
        subscribe(actor=cast.dave, scope=cast.dave.user, to=WEBHOOK, events=["started"])


def test_webhook_secret_is_masked() -> None:
    assert display_address("ops@example.org") == "ops@example.org"
    assert display_address(WEBHOOK) == "https://hooks.slack.com/…cret"
    assert display_address("slack:https://user:pw@chat.example.org/a") == "slack:https://chat.example.org/…"


def test_idle_gpus_trigger_one_notification_per_idle_period(cast: Cast) -> None:
    from scheduler.models import PodUtilization

    subscribe(actor=cast.carol, scope=cast.vision, to="v@example.org", events=["idle"])
    subscribe(actor=cast.bob, scope=cast.speech, to="s@example.org", events=["idle"])
    now, node = timezone.now(), make.node(cast.pool)
    idle, works = (make.workload(cast.vision, name, phase="running", run=1) for name in ("idle", "works"))
    make.used(make.place(idle, node, [0]), 0, busy_at=now - timedelta(minutes=61))
    make.used(make.place(works, node, [1]), 80)
    assert [notify_about_idle_gpus(now), notify_about_idle_gpus(now)] == [1, 0]
    assert deliveries() == [("v@example.org", "idle")]
    content = Delivery.objects.get().content
    assert rendering.subject(content) == "The GPUs of vision/idle have been idle for 61 minutes"
    assert content["message"].startswith("1 allocated GPUs have been idle")
    later = now + timedelta(hours=5)
    PodUtilization.objects.filter(pod__workload=idle).update(at=later, busy_at=later - timedelta(hours=2))
    assert notify_about_idle_gpus(later) == 1
