"""Models of Python sessions: workers and calls."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from projects.models.workloads import Pod, Workload


class Session(models.Model):
    """What a workload is told beside its document. Functions and results are bytes that we never read."""

    class Executor(models.TextChoices):
        PROCESS = "process"
        THREAD = "thread"

    workload = models.OneToOneField(
        Workload, on_delete=models.CASCADE, primary_key=True, related_name="session"
    )
    address = models.CharField(max_length=255, help_text="Where its workers reach this server.")
    executor = models.CharField(max_length=10, choices=Executor.choices, default=Executor.PROCESS)
    slots = models.PositiveIntegerField(default=1, help_text="Calls at a time on each node.")
    max_attempts = models.PositiveIntegerField(default=3)
    idle_timeout = models.PositiveIntegerField(help_text="Seconds without a word from its client.")
    python = models.CharField(max_length=20, help_text="Of the client; workers must have the same.")
    cloudpickle = models.CharField(max_length=20)
    setup = models.BinaryField(default=bytes, help_text="The client's own plugins, as it pickled them.")
    turn = models.PositiveBigIntegerField(default=0, help_text="Whose turn is next.")
    ends = models.PositiveBigIntegerField(default=0, help_text="How many calls have ended.")
    taken = models.PositiveBigIntegerField(default=0, help_text="How many of these the client has.")
    fault = models.TextField(blank=True, help_text="Why it cannot run any function at all.")
    seen_at = models.DateTimeField(db_default=Now(), help_text="When its client asked last.")

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="session_tries_and_runs_at_least_one", condition=Q(slots__gte=1, max_attempts__gte=1)
            ),
        ]

    def __str__(self) -> str:
        return str(self.workload)


class SessionWorker(models.Model):
    """The process in a pod that runs functions. A pod that is started again is another pod."""

    class State(models.TextChoices):
        READY = "ready"
        GONE = "gone"

    pod = models.OneToOneField(Pod, on_delete=models.CASCADE, primary_key=True, related_name="session_worker")
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="workers")
    node = models.PositiveIntegerField(help_text="Its rank in the run.")
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
    """One function to run once, on whichever node has its turn, or (`node` is set) on that one.

    A broadcast is a call of its own, never leased, with one child for each worker that ever was ready.
    """

    class State(models.TextChoices):
        WAITING = "waiting"
        LEASED = "leased"
        ENDED = "ended"

    class Outcome(models.TextChoices):
        VALUE = "value"
        ERROR = "error"  # the function raised; `result` is what
        FAILED = "failed"  # it could not be run; `told` says why
        CANCELLED = "cancelled"

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="calls")
    key = models.UUIDField(help_text="The client's name for it: sent twice, it is one call.")
    broadcast = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.CASCADE, related_name="children"
    )
    is_broadcast = models.BooleanField(default=False)
    is_late = models.BooleanField(default=False, help_text="A child for who came after the broadcast.")
    node = models.PositiveIntegerField(null=True, blank=True)
    state = models.CharField(max_length=10, choices=State.choices, default=State.WAITING)
    outcome = models.CharField(max_length=10, choices=Outcome.choices, blank=True)
    told = models.JSONField(default=dict, blank=True, help_text="In words: type, message, traceback.")
    attempts = models.PositiveIntegerField(default=0)
    delivered = models.BooleanField(default=False, help_text="To the worker that it is leased to.")
    worker = models.ForeignKey(
        SessionWorker, null=True, blank=True, on_delete=models.SET_NULL, related_name="calls"
    )
    payload = models.BinaryField(default=bytes)
    result = models.BinaryField(default=bytes)
    size = models.PositiveBigIntegerField(default=0, help_text="Bytes of payload and result.")
    created_at = models.DateTimeField(db_default=Now())
    ended = models.PositiveBigIntegerField(null=True, blank=True, help_text="Which one it was to end.")

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
