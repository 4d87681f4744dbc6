"""Models for service autoscalers: settings, metrics and decisions."""

from django.db import models
from django.db.models import Q

from projects.models.scaling import Direction, RequestStatus, ScaleRequest, Service


class Autoscaler(models.Model):
    """Autoscaler of a service. `memory` stores the metrics window and condition streaks."""

    service = models.OneToOneField(Service, on_delete=models.CASCADE, related_name="autoscaler")
    enabled = models.BooleanField(default=False)
    settings = models.JSONField(
        default=dict, help_text="Settings document. Missing keys take their defaults."
    )
    memory = models.JSONField(default=dict)
    last_decision = models.JSONField(null=True, blank=True)
    last_scale_at = models.DateTimeField(null=True, blank=True)
    last_scale_action = models.CharField(max_length=9, choices=Direction.choices, blank=True)
    scraped_at = models.DateTimeField(null=True, blank=True)
    evaluated_at = models.DateTimeField(null=True, blank=True)
    last_error = models.TextField(blank=True, help_text="Error from the last decision.")

    def __str__(self) -> str:
        return f"{self.service} autoscaler"


class MetricsPoint(models.Model):
    """Aggregated metrics of a service's inference engines at one point in time. Null means unknown."""

    service = models.ForeignKey(Service, on_delete=models.CASCADE, related_name="points", db_index=False)
    at = models.DateTimeField()
    engines = models.PositiveIntegerField()
    reporting = models.PositiveIntegerField()
    values = models.JSONField(default=dict)
    by_engine = models.JSONField(default=dict)

    class Meta:
        ordering = ["service", "at"]
        constraints = [models.UniqueConstraint(name="metrics_point_once", fields=["service", "at"])]

    def __str__(self) -> str:
        return f"{self.service_id} at {self.at}"


class Scaling(models.Model):
    """Scaling action of an autoscaler, with its metrics, conditions and outcome."""

    service = models.ForeignKey(Service, on_delete=models.CASCADE, related_name="scalings")
    request = models.OneToOneField(
        ScaleRequest, null=True, blank=True, on_delete=models.SET_NULL, related_name="scaling"
    )
    action = models.CharField(max_length=9, choices=Direction.choices)
    status = models.CharField(max_length=15, choices=RequestStatus.choices)
    triggered_at = models.DateTimeField()
    completed_at = models.DateTimeField(null=True, blank=True)
    from_engines = models.PositiveIntegerField()
    to_engines = models.PositiveIntegerField()
    delta = models.PositiveIntegerField()
    reason = models.TextField()
    triggered_conditions = models.JSONField(default=list)
    metrics_snapshot = models.JSONField(default=dict)
    error_message = models.TextField(blank=True)

    class Meta:
        verbose_name_plural = "service scaling"
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["service", "-id"], name="scaling_newest"),
            models.Index(fields=["service"], name="scaling_open", condition=Q(completed_at__isnull=True)),
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.from_engines} to {self.to_engines}: {self.status}"
