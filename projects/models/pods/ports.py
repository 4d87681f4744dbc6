"""Models for one-time links to workload ports, and the port sessions that they start."""

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from projects.models.people import ApiToken
from projects.models.workloads import Workload


class PortLink(models.Model):
    """One-time link for one user.

    The row stores digests of the link secret and the port session cookie.
    """

    digest = models.CharField(max_length=64, unique=True)
    workload = models.ForeignKey(Workload, on_delete=models.CASCADE, related_name="port_links")
    port = models.CharField(max_length=15)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="port_links")
    session_hash = models.CharField(max_length=64, help_text="Hash that changes with the user's password.")
    token = models.ForeignKey(
        ApiToken, null=True, blank=True, on_delete=models.CASCADE, related_name="+",
        help_text="Token that requested the link. The connection ends when the token expires or is revoked.",
    )  # fmt: skip
    session_key = models.CharField(
        max_length=40, blank=True, default="", editable=False,
        help_text="Browser session that requested the link. The port session ends with this browser session.",
    )  # fmt: skip
    issued_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(help_text="Expiry of the link.")
    used_at = models.DateTimeField(null=True, blank=True)
    cookie_digest = models.CharField(max_length=64, null=True, blank=True, unique=True)
    session_until = models.DateTimeField(help_text="Time by which the port session ends.")
    seen_at = models.DateTimeField(null=True, blank=True, help_text="Time of the last request.")

    class Meta:
        ordering = ["-issued_at", "-id"]
        indexes = [
            models.Index(
                fields=["workload", "-seen_at"], name="port_session_seen", condition=Q(seen_at__isnull=False)
            )
        ]
        constraints = [
            models.CheckConstraint(
                name="port_link_is_used_for_a_session",
                condition=Q(used_at__isnull=True, cookie_digest__isnull=True)
                | Q(used_at__isnull=False, cookie_digest__isnull=False),
            )
        ]

    def __str__(self) -> str:
        return f"{self.port} of {self.workload}"
