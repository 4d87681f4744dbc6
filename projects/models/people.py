"""Models for roles, memberships, API tokens, identities and saved views."""

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from berth.db.queries.fast_rows import FastRows
from projects.models.tenants import Department, Project


class Role(models.TextChoices):
    PLATFORM_ADMIN = "platform_admin"
    DEPARTMENT_ADMIN = "department_admin"
    PROJECT_ADMIN = "project_admin"
    MEMBER = "member"
    VIEWER = "viewer"


class Membership(FastRows):
    """Role of a user: on the platform, in a department and its projects, or in a single project."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=20, choices=Role.choices)
    department = models.ForeignKey(
        Department, null=True, blank=True, on_delete=models.CASCADE, related_name="members"
    )
    project = models.ForeignKey(
        Project, null=True, blank=True, on_delete=models.CASCADE, related_name="members"
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        verbose_name = "role"
        ordering = ["user__username", "id"]
        constraints = [
            models.CheckConstraint(
                name="membership_role_fits_its_scope",
                condition=Q(role="platform_admin", department__isnull=True, project__isnull=True)
                | Q(role="department_admin", department__isnull=False, project__isnull=True)
                | Q(role="project_admin", department__isnull=True, project__isnull=False)
                | Q(role__in=["member", "viewer"], department__isnull=True, project__isnull=False)
                | Q(role="viewer", department__isnull=False, project__isnull=True),
            ),
            models.UniqueConstraint(
                name="membership_once_per_scope",
                fields=["user", "department", "project"],
                nulls_distinct=False,
            ),
        ]

    def __str__(self) -> str:
        role = self.get_role_display().lower()
        return f"{self.user}: {role} of {self.project or self.department or 'the platform'}"


class ApiToken(FastRows):
    """API token of a user, stored as a SHA-256 digest. Scopes are read, write and admin."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=12, help_text="First characters of the token, to identify it.")
    digest = models.CharField(max_length=64, unique=True)
    scopes = models.JSONField(default=list)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    session_hash = models.CharField(
        max_length=64,
        blank=True,
        default="",
        editable=False,
        help_text="Hash that changes with the user's password. Set for tokens created by sign-in.",
    )

    class Meta:
        verbose_name = "API token"
        ordering = ["-created_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                name="token_name_once_per_person",
                fields=["user", "name"],
                condition=Q(revoked_at__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    @property
    def interactive(self) -> bool:
        return bool(self.session_hash)


class Identity(models.Model):
    """Stable identifier of a user at an OpenID Connect provider (issuer and subject)."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="identities")
    issuer = models.CharField(max_length=255)
    subject = models.CharField(max_length=255)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ["id"]
        verbose_name_plural = "identities"
        constraints = [models.UniqueConstraint(name="identity_once", fields=["issuer", "subject"])]

    def __str__(self) -> str:
        return f"{self.user} at {self.issuer}"


class SavedView(models.Model):
    """Saved view of the workload list: filters, columns and sort order."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=60)
    query = models.TextField(help_text="Query string of the page.")
    saved_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(name="view_name_once_per_person", fields=["user", "name"])]

    def __str__(self) -> str:
        return self.name
