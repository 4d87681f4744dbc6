"""Model of single sign-on identities."""

from django.conf import settings
from django.db import models
from django.db.models.functions import Now


class Identity(models.Model):
    """The provider's own, never changing word for one person (issuer and subject, OpenID Connect Core 2)."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="identities")
    issuer = models.CharField(max_length=255)
    subject = models.CharField(max_length=255)
    made_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ["id"]
        verbose_name_plural = "identities"
        constraints = [models.UniqueConstraint(name="identity_once", fields=["issuer", "subject"])]

    def __str__(self) -> str:
        return f"{self.user} at {self.issuer}"
