"""Lease table: one row per job that only one process may run at a time."""

from django.db import models


class Lease(models.Model):
    """Lease that expires at `expires_at`, according to the database's clock.

    Every new holder increments `epoch`.
    """

    name = models.CharField(max_length=40, primary_key=True)
    holder = models.CharField(max_length=200, blank=True)
    epoch = models.BigIntegerField()
    renewed_at = models.DateTimeField()
    expires_at = models.DateTimeField()

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(condition=models.Q(epoch__gte=1), name="lease_epoch_from_one"),
        ]

    def __str__(self) -> str:
        return f"{self.name}: {self.holder or 'no holder'} ({self.epoch})"
