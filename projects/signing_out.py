"""Close port visits on sign-out."""

from typing import Any

from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_out
from django.dispatch import receiver

from projects.services.workloads.ports import end_visits


@receiver(user_logged_out, dispatch_uid="projects.signing_out")
def leave_ports(sender: object, user: User | None = None, **more: Any) -> None:
    if user is not None:
        end_visits(user)
