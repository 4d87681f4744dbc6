"""Properties of generated models: model `X` inherits from `XMixin`."""

from typing import TYPE_CHECKING

from berth.client.errors import SessionEnded

if TYPE_CHECKING:
    from berth.client.models.scheduling import Invariant, Leader

ENDED = ("completed", "failed", "cancelled")
FINAL = ("ACTIVE", "PARTIAL", "COMPLETED", "NOOP", "FAILED", "CANCELLED")


class HandleMixin:
    if TYPE_CHECKING:
        project: str
        name: str

    @property
    def handle(self) -> str:
        return f"{self.project}/{self.name}"


ServiceMixin = HandleMixin
TemplateMixin = HandleMixin
ScheduleMixin = HandleMixin


class WorkloadMixin(HandleMixin):
    if TYPE_CHECKING:
        phase: str

    @property
    def has_ended(self) -> bool:
        return self.phase in ENDED


class TaskCountsMixin:
    if TYPE_CHECKING:
        completed: int
        failed: int
        cancelled: int

    @property
    def ended(self) -> int:
        """Number of tasks that have ended."""
        return self.completed + self.failed + self.cancelled


class ArrayMixin(HandleMixin):
    if TYPE_CHECKING:
        state: str

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED


class PodMixin:
    if TYPE_CHECKING:
        role: str
        index: int

    @property
    def short_name(self) -> str:
        return f"{self.role}-{self.index}"


class ScaleRequestMixin:
    if TYPE_CHECKING:
        status: str

    @property
    def is_final(self) -> bool:
        return self.status in FINAL


class MemberMixin:
    if TYPE_CHECKING:
        department: str | None
        project: str | None

    @property
    def scope(self) -> str:
        """Project or department to which the role applies, or "everywhere" for a platform-wide role."""
        return self.project or self.department or "everywhere"


class HealthMixin:
    if TYPE_CHECKING:
        leader: Leader | None
        invariants: list[Invariant]

    @property
    def is_healthy(self) -> bool:
        leads = self.leader is not None and self.leader.alive
        return leads and all(invariant.ok for invariant in self.invariants)


class SessionStateMixin(HandleMixin):
    if TYPE_CHECKING:
        phase: str
        message: str
        error: str

    @property
    def has_ended(self) -> bool:
        return bool(self.error) or self.phase in ENDED

    def ended_error(self) -> SessionEnded:
        reason = self.error or self.message or f"it is {self.phase}"
        return SessionEnded(f"The session {self.handle} has ended: {reason}")

    def start_timeout_error(self, required_nodes: int, seconds: float) -> SessionEnded:
        state = f"{self.phase}: {self.message}"
        return SessionEnded(f"{required_nodes} nodes were not ready within {seconds:g} s ({state})")
