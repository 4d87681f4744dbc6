"""Browser test data: templates, secrets and subscriptions."""

from typing import Any

from projects.models import Delivery
from projects.services.notifications.subscriptions import subscribe
from tests import factories as make
from tests.browser.data.project_templates import create_templates
from tests.browser.data.requests import acting
from tests.browser.data.secrets import create_secrets

SLACK = "slack:https://hooks.slack.example.org/services/T024/B951/x8Kq2vLmPz"


def create_project_contents(scene: Any) -> None:
    create_templates(scene)
    create_secrets(scene)
    create_notifications(scene)


def create_notifications(scene: Any) -> None:
    ada, carol = (acting(scene.people[name]) for name in ("ada", "carol"))
    rows = [
        subscribe(actor=ada, scope=ada.user, to="ada@example.org", events=["preempted", "failed", "pending"]),
        subscribe(
            actor=carol,
            scope=scene.projects["vision"],
            to=SLACK,
            events=["preempted", "failed", "pending", "idle"],
            pending_minutes=240,
        ),
        subscribe(
            actor=ada,
            scope=None,
            to="https://alerts.example.org/berth",
            events=["budget", "schedule", "pool"],
        ),
    ]
    delivered = Delivery.State.DELIVERED
    evicted = scene.workloads["detr-long"]
    for row, kind, minutes, state, error, content in (
        (rows[2], "budget", 26 * 60, delivered, "", {"owner": "ads"}),
        (rows[2], "pool", 200, Delivery.State.FAILED, "HTTP status 503", {"pool": "train"}),
        (rows[1], "preempted", 12, delivered, "", {"project": "vision", "workload": evicted.name}),
    ):
        at = make.ago(minutes=minutes)
        Delivery.objects.create(
            at=at,
            kind=kind,
            workload_id=evicted.pk if "workload" in content else None,
            subscription_id=row.pk,
            to=row.to,
            channel=row.channel,
            content=content,
            state=state,
            attempts=1 if state == delivered else 8,
            next_attempt_at=at,
            last_error=error,
            ended_at=at,
        )
