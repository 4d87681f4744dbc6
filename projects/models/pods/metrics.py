"""Models for the metrics that workloads report."""

from django.contrib.postgres.fields import ArrayField
from django.db import models

from projects.models.workloads import Pod, Workload


class Metric(models.Model):
    """Metric of a workload, with a bounded number of points.

    Values and their steps are null until a finite value is reported.
    """

    workload = models.ForeignKey(Workload, on_delete=models.CASCADE, related_name="metrics", db_index=False)
    name = models.CharField(max_length=64)
    steps = ArrayField(models.BigIntegerField(), default=list, help_text="Steps of the stored points.")
    values = ArrayField(models.FloatField(), default=list)
    stride = models.BigIntegerField(default=1, help_text="Number of steps per stored point.")
    last_step = models.BigIntegerField(null=True)
    last_value = models.FloatField(null=True)
    min_step = models.BigIntegerField(null=True)
    min_value = models.FloatField(null=True)
    max_step = models.BigIntegerField(null=True)
    max_value = models.FloatField(null=True)
    not_finite = models.PositiveIntegerField(default=0, help_text="Number of values that were not finite.")
    not_finite_step = models.BigIntegerField(
        null=True, help_text="Step of the latest report if its value was not finite."
    )
    reported_at = models.DateTimeField()

    class Meta:
        ordering = ["workload", "name"]
        constraints = [models.UniqueConstraint(name="metric_once", fields=["workload", "name"])]

    def __str__(self) -> str:
        return self.name


class MetricsReader(models.Model):
    """Progress of reading a pod's log for metrics."""

    pod = models.OneToOneField(Pod, primary_key=True, on_delete=models.CASCADE, related_name="+")
    offset = models.BigIntegerField(default=0, help_text="In bytes.")
    is_complete = models.BooleanField(
        default=False, help_text="Whether the entire log has been read since the pod ended."
    )

    def __str__(self) -> str:
        return str(self.pod_id)
