"""Models for Python sessions: workers and calls."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from projects.models.workloads import Pod, Workload


class Session(models.Model):
    """Python session. Functions and results are opaque bytes to the server."""

    class Executor(models.TextChoices):
        PROCESS = "process"
        THREAD = "thread"

    workload = models.OneToOneField(
        Workload, on_delete=models.CASCADE, primary_key=True, related_name="session"
    )
    address = models.CharField(max_length=255, help_text="URL at which the workers reach this server.")
    executor = models.CharField(max_length=10, choices=Executor.choices, default=Executor.PROCESS)
    slots = models.PositiveIntegerField(default=1, help_text="Concurrent calls per node.")
    max_attempts = models.PositiveIntegerField(default=3)
    idle_timeout = models.PositiveIntegerField(
        help_text="The session ends after this many seconds without a request from the client."
    )
    python = models.CharField(
        max_length=20, help_text="Python version of the client. Workers must run the same minor version."
    )
    cloudpickle = models.CharField(max_length=20)
    setup = models.BinaryField(default=bytes, help_text="Pickled plugins of the client.")
    turn = models.PositiveBigIntegerField(default=0, help_text="Node that receives the next call.")
    ended_count = models.PositiveBigIntegerField(default=0, help_text="Number of ended calls.")
    received_count = models.PositiveBigIntegerField(
        default=0, help_text="Number of ended calls that the client has received."
    )
    error = models.TextField(blank=True, help_text="Error that prevents the session from running functions.")
    seen_at = models.DateTimeField(db_default=Now(), help_text="Time of the client's last request.")

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="session_tries_and_runs_at_least_one", condition=Q(slots__gte=1, max_attempts__gte=1)
            ),
        ]

    def __str__(self) -> str:
        return str(self.workload)


class SessionWorker(models.Model):
    """Process that runs functions in a pod. A restarted pod has a new worker."""

    class State(models.TextChoices):
        READY = "ready"
        GONE = "gone"

    pod = models.OneToOneField(Pod, on_delete=models.CASCADE, primary_key=True, related_name="session_worker")
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="workers")
    node = models.PositiveIntegerField(help_text="Rank of the pod in the run.")
    state = models.CharField(max_length=10, choices=State.choices, default=State.READY)
    python = models.CharField(max_length=20)
    cloudpickle = models.CharField(max_length=20)
    joined_at = models.DateTimeField(db_default=Now())
    seen_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["session", "node", "joined_at"]

    def __str__(self) -> str:
        return f"node {self.node} of {self.session}"


class Call(models.Model):
    """Function call that runs on one node, or a broadcast.

    A broadcast has one child call per worker and is never leased itself.
    """

    class State(models.TextChoices):
        PENDING = "pending"
        LEASED = "leased"
        ENDED = "ended"

    class Outcome(models.TextChoices):
        VALUE = "value"
        ERROR = "error"  # the function raised an error, which is stored in `result`
        FAILED = "failed"  # the function could not run; `error` contains the reason
        CANCELLED = "cancelled"

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="calls", db_index=False)
    key = models.UUIDField(help_text="Idempotency key chosen by the client.")
    broadcast = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.CASCADE, related_name="children"
    )
    is_broadcast = models.BooleanField(default=False)
    is_late = models.BooleanField(
        default=False, help_text="Whether the call is for a worker that joined after the broadcast was sent."
    )
    node = models.PositiveIntegerField(null=True, blank=True)
    state = models.CharField(max_length=10, choices=State.choices, default=State.PENDING)
    outcome = models.CharField(max_length=10, choices=Outcome.choices, blank=True)
    error = models.JSONField(default=dict, blank=True, help_text="Type, message and traceback.")
    attempts = models.PositiveIntegerField(default=0)
    delivered = models.BooleanField(
        default=False, help_text="Whether the worker that leased the call has received it."
    )
    worker = models.ForeignKey(
        SessionWorker, null=True, blank=True, on_delete=models.SET_NULL, related_name="calls"
    )
    payload = models.BinaryField(default=bytes)
    result = models.BinaryField(default=bytes)
    size = models.PositiveBigIntegerField(
        default=0, help_text="Combined size of payload and result in bytes."
    )
    created_at = models.DateTimeField(db_default=Now())
    ended = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="Sequence number, assigned when the call ends."
    )

    class Meta:
        ordering = ["id"]
        indexes = [
            models.Index(
                fields=["session", "state", "id"], name="call_not_ended", condition=~Q(state="ended")
            ),
            models.Index(fields=["session", "ended"], name="call_ended", condition=Q(state="ended")),
        ]
        constraints = [
            models.UniqueConstraint(name="call_once", fields=["session", "key"]),
            models.CheckConstraint(
                name="call_ended_has_an_outcome",
                condition=Q(state="ended", ended__isnull=False) & ~Q(outcome="")
                | ~Q(state="ended") & Q(ended__isnull=True, outcome=""),
            ),
        ]

    def __str__(self) -> str:
        return f"call {self.key} of {self.session_id}"
