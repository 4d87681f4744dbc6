"""Typed answers of the server; fields of newer servers are kept."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

Numbers = dict[str, Any]
ENDED = ("completed", "failed", "cancelled")


class Answer(BaseModel):
    """Something the server said."""

    model_config = ConfigDict(extra="allow", frozen=True)

    def plain(self) -> dict[str, Any]:
        """As the server said it, nothing added: for JSON and YAML."""
        return self.model_dump(mode="json", exclude_unset=True)


class Amounts(Answer):
    """Devices, cores, MiB; None is unlimited."""

    gpu: float | None = None
    cpu: float | None = None
    memory_mib: int | None = None


class Gpus(Answer):
    asked: float = 0
    now: float = 0


class PodCount(Answer):
    running: int = 0
    wanted: int = 0


class PortLink(Answer):
    """Opens a port in a browser, once, until it expires."""

    url: str
    expires_at: datetime


class Workload(Answer):
    id: str
    name: str
    project: str
    phase: str
    department: str = ""
    kind: str = ""
    priority: int = 0
    preemptible: bool = True
    pools: list[str] = []
    pool: str | None = None
    reason: str = ""
    message: str = ""
    since: datetime | None = None
    submitted_at: datetime | None = None
    submitted_by: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    run: int = 0
    preemptions: int = 0
    restarts: int = 0
    exit_code: int | None = None
    gpus: Gpus = Gpus()
    pods: PodCount = PodCount()
    labels: dict[str, str] = {}
    position: int | None = None
    expected_start: datetime | None = None
    expected_because: str = ""
    spec: dict[str, Any] = {}
    warnings: list[str] = []  # of a submission

    @property
    def handle(self) -> str:
        return f"{self.project}/{self.name}"

    @property
    def has_ended(self) -> bool:
        return self.phase in ENDED


class Pod(Answer):
    id: str
    role: str = ""
    index: int = 0
    run: int = 0
    rank: int = 0
    node: str | None = None
    state: str = ""
    since: datetime | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    devices: list[int] = []

    @property
    def short_name(self) -> str:
        return f"{self.role}-{self.index}"


class Event(Answer):
    at: datetime
    kind: str
    subject: str = ""
    message: str = ""
    actor: str = ""
    data: Numbers = {}


class Eviction(Answer):
    id: int
    at: datetime
    kind: str
    pool: str = ""
    workload: str | None = None
    workload_name: str = ""
    project: str = ""
    department: str = ""
    beneficiary: str | None = None
    beneficiary_name: str = ""
    beneficiary_project: str = ""
    gave_way: str = ""
    for_whom: str = ""
    rule: str = ""
    summary: str = ""
    lines: list[str] = []
    numbers: Numbers = {}
    whole: bool = True
    gpus: float = 0
    lost_gpu_seconds: int = 0
    cycle: int | None = None


class EvictionPair(Answer):
    gave_way: str
    for_whom: str = ""
    evictions: int = 0
    gpus: float = 0
    lost_gpu_seconds: int = 0


class MatrixOfEvictions(Answer):
    """The most work lost first."""

    pairs: list[EvictionPair] = []
    left_out: int = 0


class Blocker(Answer):
    reason: str
    message: str = ""
    numbers: Numbers = {}


class Waited(Answer):
    """`until` None: it waits for this now."""

    reason: str
    since: datetime
    until: datetime | None = None


class Explanation(Answer):
    phase: str
    reason: str = ""
    message: str = ""
    position: int | None = None
    key: list[str] = []
    expected_start: datetime | None = None
    expected_because: str = ""
    blockers: list[Blocker] = []
    queue: Any = None
    evictions: list[Eviction] = []
    explained_at: datetime | None = None
    cycle: Any = None
    waited: list[Waited] = []


class Problem(Answer):
    """One thing to mend in a document."""

    path: str = ""
    message: str = ""
    given: str = ""
    allowed: str = ""


class DryRun(Answer):
    outcome: str
    workload: Numbers | None = None
    decisions: list[Numbers] = []
    evictions: list[Numbers] = []
    blockers: list[Blocker] = []
    position: int | None = None
    expected_start: datetime | None = None
    expected_because: str = ""
    warnings: list[str] = []
    errors: list[Problem] = []


class Department(Answer):
    name: str
    title: str = ""
    rank: int = 0
    reclaim_min_runtime: int | None = None
    preempt_min_runtime: int | None = None


class Project(Answer):
    name: str
    department: str = ""
    title: str = ""
    rank: int = 0
    reclaim_min_runtime: int | None = None
    preempt_min_runtime: int | None = None


class Quota(Answer):
    owner: dict[str, str]
    pool: str
    gpu: float | None = None
    cpu: float | None = None
    memory_mib: int | None = None
    limit: dict[str, float | None] = {}
    weight: float | dict[str, float] = 1
    over_quota: bool = True
    rank: int | None = None
    version: int = 0
    standing: dict[str, Any] | None = None


class QuotaSet(Quota):
    """As it is stored now; `warnings` tell what is odd about it."""

    warnings: list[dict[str, str]] = []


class QuotaImpact(Answer):
    """What an edited set of quotas would change; `tag` is what apply asks for."""

    changes_nothing: bool = False
    tag: str = ""
    quotas: list[Numbers] = []
    shares: list[Numbers] = []
    starts: list[Numbers] = []
    no_longer_start: list[Numbers] = []
    evictions: list[Numbers] = []
    reasons: list[Numbers] = []
    warnings: list[Numbers] = []
    unseen: Numbers = {}


class QuotaChange(Answer):
    """Quotas that were changed together."""

    id: int
    at: datetime
    actor: str = ""
    note: str = ""
    undoes: int | None = None
    undone_by: int | None = None
    lapses_at: datetime | None = None
    lapsed: str | None = None
    quotas: list[Numbers] = []
    hidden: int = 0


class ShareChapter(Answer):
    """One resource of one queue: `lines` say in words what `rounds` say in numbers."""

    kind: str
    name: str
    of: str = ""
    resource: str = "gpu"
    total: float = 0
    share: float = 0
    lines: list[str] = []
    rounds: list[Numbers] = []


class ShareStory(Answer):
    pool: str
    story: list[ShareChapter] = []


class Cycle(Answer):
    id: int
    at: datetime
    trigger: str = ""
    observe_ms: float = 0
    decide_ms: float = 0
    commit_ms: float = 0
    nodes: int = 0
    workloads: int = 0
    pending: int = 0
    bundles: int = 0
    applied: int = 0
    stale: int = 0
    evictions: int = 0
    engine: str = ""


class Replay(Answer):
    cycle: int
    same: bool
    engine_then: str = ""
    engine_now: str = ""
    differing: int = 0
    differences: list[str] = []
    summary: str = ""


class Token(Answer):
    id: int | str
    name: str
    prefix: str = ""
    scopes: list[str] = []
    created_at: datetime | None = None
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None
    by_sign_in: bool = False
    token: str | None = None


class PasswordChanged(Answer):
    """`token` replaces the one in use if that one was created by sign-in."""

    revoked_tokens: int
    token: str | None = None
    expires_at: datetime | None = None


class Identity(Answer):
    username: str
    platform_admin: bool = False
    roles: list[Any] = []
    scopes: list[str] = []
