"""Stored responses to requests with an idempotency key."""

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class StoredResponse(models.Model):
    """Stored response for one user and key.

    `status` is null only inside the transaction that writes the row.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_index=False
    )
    key = models.CharField(max_length=255)
    fingerprint = models.CharField(
        max_length=64, help_text="Keyed digest of the method, the URL and the body."
    )
    status = models.PositiveSmallIntegerField(null=True)
    headers = models.JSONField(default=dict)
    body = models.BinaryField(default=b"")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        verbose_name = "stored response"
        ordering = ["-id"]
        indexes = [models.Index(fields=["created_at"], name="stored_response_age")]
        constraints = [
            models.UniqueConstraint(name="stored_response_per_user_and_key", fields=["user", "key"]),
            models.CheckConstraint(
                name="stored_response_status_range",
                condition=Q(status__isnull=True) | Q(status__gte=200, status__lte=299),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.key}: {self.status}"
