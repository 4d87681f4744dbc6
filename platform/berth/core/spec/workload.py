"""The workload document, used by REST, files, the SDK, scenarios and dry runs."""

from typing import Annotated, Any, Literal

from pydantic import Field

from berth.core.spec.roles import (
    Command,
    Document,
    Environment,
    Labels,
    RoleSpec,
    Seconds,
    SecretUse,
    SecretUses,
    Topology,
)
from berth.core.spec.sections.after import Dependencies
from berth.core.spec.sections.arrays import ArraySpec
from berth.core.spec.sections.code import Code
from berth.core.spec.sections.outputs import Outputs
from berth.core.spec.sections.ports import Ports
from berth.core.spec.sections.retry import COMPLETED, POD_FAILED, RetryRule, RetryRules
from berth.core.spec.sections.service import ServiceSpec
from berth.core.spec.sections.volumes import Volumes
from berth.core.spec.values.notice import NoticeSignal
from berth.core.spec.values.quantities import Duration, Moment, Priority
from berth.core.spec.values.texts import Directory, Name, Text
from berth.core.values.images import Image, PullPolicy
from berth.core.values.priorities import DEFAULT, SERVICE_DEFAULT, default_priority, is_preemptible_by_default

CHILDREN_MAX = 256
GRACE_DEFAULT, GRACE_MAX = 30, 86_400
KEEP_MAX = 30 * 86_400
PRIORITY_DEFAULTS = f"{DEFAULT} by default, {SERVICE_DEFAULT} for services."
IDLE_COMMAND = (
    "/bin/sh",
    "-c",
    "echo 'This role runs no command: it idles until the other roles complete.'; exec sleep infinity",
)

Roles = Annotated[tuple[RoleSpec, ...], Field(min_length=1, max_length=CHILDREN_MAX, strict=False)]
Groups = Annotated["tuple[GroupSpec, ...]", Field(min_length=1, max_length=CHILDREN_MAX, strict=False)]
Names = Annotated[tuple[Name, ...], Field(max_length=256, strict=False)]


class GroupSpec(Document):
    """Group of roles or nested groups. At least `need` of them must run (default: all)."""

    name: Name
    need: Annotated[int, Field(ge=1, le=CHILDREN_MAX)] | None = None
    topology: Topology | None = None
    roles: Roles | None = None
    groups: Groups | None = None


class RestartPolicy(Document):
    """Short form of one retry rule. If `max_restarts` is null, the number of restarts is unlimited."""

    kind: Literal["never", "on_failure", "always"] = "never"
    max_restarts: Annotated[int, Field(ge=0, le=1_000_000)] | None = None


class PreemptionNotice(Document):
    """Signal that pods receive `lead` seconds before SIGTERM when the workload is evicted or suspended."""

    signal: NoticeSignal
    lead: Annotated[Duration, Field(ge=1, le=GRACE_MAX)]


class Notification(Document):
    """Recipient of notifications.

    `to` is an email address or a webhook URL, with the prefix `slack:` for Slack.
    """

    to: Annotated[Text, Field(min_length=1)]
    on: Annotated[
        tuple[Literal["started", "completed", "failed", "preempted", "cancelled", "unschedulable"], ...],
        Field(min_length=1, max_length=6, strict=False),
    ] = ("completed", "failed")


class WorkloadSpec(Document):
    """A workload document as submitted. Build instances with `parse_workload`, which checks all rules."""

    name: Name
    project: Name | None = None
    pools: Names = ()
    burst_after: Annotated[Seconds, Field(ge=1)] | None = None
    kind: Literal["training", "elastic", "interactive", "service"] = "training"
    priority: Annotated[Priority | None, Field(description=PRIORITY_DEFAULTS)] = None
    preemptible: bool | None = None
    submitted: Moment | None = None
    max_runtime: Annotated[Duration, Field(ge=1)] | None = None
    deadline: Moment | None = None
    idle_timeout: Annotated[Seconds, Field(ge=1)] | None = None
    preemption_delay: Seconds | None = None
    # Time until a stale gang is stopped. If it is negative, stale gangs are never stopped.
    stale_gang_grace: Annotated[Duration, Field(ge=-(10**9), le=10**9)] | None = None
    grace_period_seconds: Annotated[Duration, Field(ge=0, le=GRACE_MAX)] = GRACE_DEFAULT
    preemption: PreemptionNotice | None = None
    after: Dependencies = ()
    need: Annotated[int, Field(ge=1, le=CHILDREN_MAX)] | None = None
    topology: Topology | None = None
    roles: Roles | None = None
    groups: Groups | None = None
    command: Command | None = None
    env: Environment = Field(default_factory=dict)
    image: Image | None = None
    image_pull_policy: PullPolicy = "if_not_present"
    secrets: SecretUses = ()
    volumes: Volumes = ()
    code: Code = None
    outputs: Outputs = ()
    keep_failed_pod: Annotated[Duration, Field(ge=1, le=KEEP_MAX)] | None = None
    working_dir: Annotated[Text, Field(min_length=1)] | None = None
    workspace: Directory | None = None
    restart_policy: RestartPolicy = RestartPolicy()
    retry: RetryRules = ()
    labels: Labels = Field(default_factory=dict)
    notifications: Annotated[tuple[Notification, ...], Field(max_length=32, strict=False)] = ()
    service: ServiceSpec | None = None
    ports: Ports = ()
    array: ArraySpec | None = None

    @property
    def is_preemptible(self) -> bool:
        if self.preemptible is not None:
            return self.preemptible
        return is_preemptible_by_default(self.effective_priority)

    @property
    def effective_priority(self) -> int:
        """Priority from the document, or the default for the workload's kind."""
        return default_priority(self.kind) if self.priority is None else self.priority

    @property
    def burst_pool(self) -> str | None:
        """Pool that the workload may use only after `burst_after` seconds, or None."""
        return None if self.burst_after is None else self.pools[-1]

    @property
    def retry_rules(self) -> tuple[RetryRule, ...]:
        """Rules in `retry` or, if there are none, the rule that is equivalent to `restart_policy`."""
        policy = self.restart_policy
        if self.retry or policy.kind == "never" or policy.max_restarts == 0:
            return self.retry
        kinds = (POD_FAILED, COMPLETED) if policy.kind == "always" else (POD_FAILED,)
        return (RetryRule(on=kinds, max=policy.max_restarts),)

    @property
    def stop_seconds(self) -> int:
        """Maximum time between the decision to stop a pod and SIGKILL."""
        return self.grace_period_seconds + (self.preemption.lead if self.preemption else 0)

    @property
    def all_roles(self) -> tuple[RoleSpec, ...]:
        """All roles, including those in groups, in document order."""
        return tuple(_leaf_roles(self))

    def role_argv(self, role: RoleSpec) -> tuple[str, ...]:
        """Return the argument vector of the role's replicas.

        A command given as one string runs in a shell.
        """
        if role.idle:
            return IDLE_COMMAND
        command = role.command if role.command is not None else self.command
        if command is None:
            return ()
        return ("/bin/sh", "-c", command) if isinstance(command, str) else command

    def role_workspace(self, role: RoleSpec) -> str | None:
        return self.workspace if role.workspace is None else role.workspace

    def role_env(self, role: RoleSpec) -> dict[str, str]:
        return {**self.env, **role.env}

    def role_secrets(self, role: RoleSpec) -> tuple[SecretUse, ...]:
        return (*self.secrets, *role.secrets)

    @property
    def uses_personal_secrets(self) -> bool:
        git = self.code.git if self.code is not None else None
        if git is not None and git.personal:
            return True
        return any(use.personal for role in self.all_roles for use in self.role_secrets(role))

    def document(self) -> dict[str, Any]:
        """Return the document to store, without defaults. Parsing it yields an equal spec."""
        return self.model_dump(mode="json", exclude_defaults=True)


def _leaf_roles(node: WorkloadSpec | GroupSpec) -> list[RoleSpec]:
    if node.roles is not None:
        return list(node.roles)
    return [role for group in node.groups or () for role in _leaf_roles(group)]
