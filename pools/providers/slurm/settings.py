"""Validate a Slurm pool's settings."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from berth.core.errors import Invalid
from berth.core.problems import Problem
from berth.core.values.durations import format_duration, parse_duration
from pools.providers import formats
from pools.providers.slurm.rest.address import check_certificate, check_url
from pools.providers.ssh.endpoint import PORT
from pools.providers.ssh.settings import (
    DEFAULT_KEY,
    Address,
    BastionSettings,
    HostKey,
    KeyReference,
    Port,
    User,
)
from pools.providers.validation import parse_settings

LONGEST = 366 * 24 * 3600
SHORTEST_NOTICE = 60
LONGEST_NOTICE = 65535  # Slurm can send a signal at most this many seconds before a job ends
DURATION_ALLOWED = "seconds, or a duration such as 24h or 1h30m"
# Options that Berth derives from the pool, or that would break the link between a job and its node.
# With some of these options, sbatch succeeds without submitting a job.
RESERVED_OPTIONS = (
    "account", "array", "batch", "chdir", "clusters", "comment", "constraint",
    "cpus-per-task", "dependency", "error",
    "exclusive", "export", "export-file", "get-user-env", "gpus", "gres", "help", "hold", "job-name", "mem",
    "mem-per-cpu", "nodes", "no-requeue", "ntasks", "output", "parsable", "partition", "qos", "quiet",
    "requeue", "signal", "test-only", "time", "uid", "usage", "version", "wait", "wrap",
)  # fmt: skip


def _check_duration(value: object) -> str:
    seconds = parse_duration(value)
    if seconds is None or not 1 <= seconds <= LONGEST:
        raise PydanticCustomError("duration", "is not a valid duration", {"allowed": DURATION_ALLOWED})
    return format_duration(seconds)


def _check_notice(duration: str) -> str:
    if not SHORTEST_NOTICE <= (parse_duration(duration) or 0) <= LONGEST_NOTICE:
        allowed = f"{format_duration(SHORTEST_NOTICE)} to {format_duration(LONGEST_NOTICE)}"
        raise PydanticCustomError("notice", "is out of range", {"allowed": allowed})
    return duration


def _check_option(option: str) -> str:
    name = option.removeprefix("--").partition("=")[0]
    # Slurm also accepts abbreviated option names.
    if any(reserved.startswith(name) for reserved in RESERVED_OPTIONS):
        allowed = "options for which the pool has no setting, such as --reservation=gpu-week"
        raise PydanticCustomError("reserved_option", "is set by Berth", {"allowed": allowed})
    return option


# Additional options that all supported versions of slurmrestd have under the same name.
REST_OPTIONS = ("licenses", "reservation")
_PATH = "provider_settings"
Names = Annotated[str, formats.SLURM_NAME]
Constraint = Annotated[str, formats.SLURM_CONSTRAINT]
Gres = Annotated[str, formats.GRES]
Directory = Annotated[str, formats.SHARED_DIRECTORY]
Program = Annotated[str, formats.PROGRAM_DIRECTORY]
Option = Annotated[str, formats.SBATCH_OPTION, AfterValidator(_check_option)]
RestUrl = Annotated[str, Field(max_length=500), AfterValidator(check_url)]
Certificate = Annotated[str, Field(max_length=64 * 1024), AfterValidator(check_certificate)]
Line = Annotated[str, formats.SHELL_LINE]
Duration = Annotated[str, BeforeValidator(_check_duration)]


class LoginSettings(BaseModel):
    """Login node with Slurm's programs, accessed over SSH. `key` is the name of one of the pool's secrets."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    address: Address
    host_key: HostKey
    user: User
    port: Port = PORT
    key: KeyReference = f"secret:{DEFAULT_KEY}"
    bastion: BastionSettings | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return all values including defaults, as a JSON object."""
        values = {
            "address": self.address, "port": self.port, "user": self.user, "host_key": self.host_key,
            "key": self.key.removeprefix("secret:"), "bastion": None,
        }  # fmt: skip
        if self.bastion is not None:
            bastion = self.bastion
            values["bastion"] = {
                "address": bastion.address, "port": bastion.port, "host_key": bastion.host_key,
                "user": bastion.user or self.user,
                "key": (bastion.key or self.key).removeprefix("secret:"),
            }  # fmt: skip
        return values


class SlurmSettings(BaseModel):
    """Settings of a Slurm pool, whose nodes are Slurm jobs.

    If no partition is set, jobs run in Slurm's default partition.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    login: LoginSettings | None = Field(
        None,
        title="Login node",
        description="Machine on which Slurm's programs run, reached over SSH. Defaults to Berth's machine.",
        examples=["address: login.example.org\nuser: berth\nhost_key: ssh-ed25519 A..."],
    )
    rest_url: RestUrl | None = Field(
        None,
        title="slurmrestd URL",
        description="Address of Slurm's REST API, used instead of Slurm's programs: HTTPS, or a port or a "
        "Unix socket (unix:/PATH) on Berth's machine.",
        examples=["https://slurm.example.org"],
    )
    rest_user: User | None = Field(
        None, title="slurmrestd user", description="User of the token, who owns the jobs.", examples=["berth"]
    )
    rest_ca: Certificate | None = Field(
        None,
        title="slurmrestd CA",
        description="Certificate of the CA that signed the server's certificate, in PEM format. Defaults to "
        "the certificates of the operating system.",
        examples=["-----BEGIN CERTIFICATE-----"],
        json_schema_extra={"multiline": True},
    )
    partition: Names | None = Field(
        None,
        description="Slurm partition. Defaults to the cluster's default partition. Required with slurmrestd.",
    )
    account: Names | None = Field(
        None, description="Account for the jobs. Defaults to the user's default account."
    )
    qos: Names | None = Field(None, title="QOS", description="Defaults to the account's default QOS.")
    constraint: Constraint | None = Field(
        None, description="Required features of the machines, as for `sbatch`.", examples=["a100&ib"]
    )
    gres: Gres = Field(
        "gpu",
        title="GPU resource",
        description="Generic resource for GPUs; a type is optional. Its count is the pool's GPUs per node.",
        examples=["gpu:a100"],
    )
    time_limit: Duration | None = Field(
        None, description="Time limit of a job. Defaults to the partition's limit.", examples=["24h"]
    )
    notice_lead: Annotated[Duration, AfterValidator(_check_notice)] = Field(
        "10m", description="Time before the end of the allocation at which its node is drained."
    )
    exclusive: bool = Field(True, title="Whole machines", description="Each job gets a machine of its own.")
    directory: Directory = Field(
        "~/.berth",
        description="Directory for private files and logs, which all machines of the partition share.",
    )
    workspaces: Directory | None = Field(
        None, description="Shared directory for workspaces. Defaults to `workspaces` in `directory`."
    )
    setup: Annotated[tuple[Line, ...], Field(max_length=50, strict=False)] = Field(
        (),
        description="Shell commands that each job runs before the agent starts.",
        examples=["module load python"],
    )
    bin: Program | None = Field(
        None,
        title="Programs",
        description="Directory of Slurm's programs. Defaults to the directories in PATH.",
    )
    options: Annotated[tuple[Option, ...], Field(max_length=20, strict=False)] = Field(
        (), description="Additional `sbatch` options.", examples=["--reservation=gpu-week"]
    )

    @property
    def rest_options(self) -> Mapping[str, str]:
        """Additional `sbatch` options as fields of a slurmrestd job, such as {"reservation": "gpu-week"}."""
        pairs = (option.removeprefix("--").partition("=") for option in self.options)
        return {name: value for name, _, value in pairs}

    @property
    def shared_workspaces(self) -> str:
        return self.workspaces or f"{self.directory}/workspaces"

    @property
    def notice_seconds(self) -> int:
        return parse_duration(self.notice_lead) or 0

    @property
    def limit_seconds(self) -> int | None:
        return parse_duration(self.time_limit)

    @property
    def limit_minutes(self) -> int | None:
        """Time limit in minutes (Slurm's unit), rounded up, or None if there is no limit."""
        return None if self.limit_seconds is None else -(-self.limit_seconds // 60)


def slurm_settings(value: Any) -> SlurmSettings:
    """Return the validated settings. Raises Invalid with the path of each problem in `provider_settings`."""
    settings = parse_settings(SlurmSettings, value)
    if problems := list(access_problems(settings)):
        raise Invalid(problems)
    return settings


def access_problems(settings: SlurmSettings) -> Iterator[Problem]:
    """Yield a problem for each setting that is inconsistent with `rest_url` or requires it."""
    if settings.rest_url is None:
        for name in ("rest_user", "rest_ca"):
            if getattr(settings, name) is not None:
                yield Problem(f"{_PATH}.{name}", "has no effect without rest_url", "", "nothing")
        return
    needed = "required with rest_url"
    if settings.rest_user is None:
        yield Problem(f"{_PATH}.rest_user", f"is {needed}", "", "the token's user, such as berth")
    if settings.partition is None:
        # Newer versions of slurmrestd do not say which partition is the default.
        yield Problem(f"{_PATH}.partition", f"is {needed}", "", "a partition name")
    for name in ("login", "bin"):
        if getattr(settings, name) is not None:
            yield Problem(f"{_PATH}.{name}", "conflicts with rest_url", "", "either this setting or rest_url")
    for option in settings.options:
        name, _, value = option.removeprefix("--").partition("=")
        if name not in REST_OPTIONS or not value:
            allowed = ", ".join(f"--{each}=VALUE" for each in REST_OPTIONS)
            yield Problem(f"{_PATH}.options", "is not available with rest_url", option, allowed)


def check_time_limit(settings: SlurmSettings, boot_timeout: int) -> None:
    """Raise Invalid if the time limit leaves no time for workloads after a node has booted."""
    shortest = boot_timeout + settings.notice_seconds
    if settings.limit_seconds is None or settings.limit_seconds > shortest:
        return
    message = (
        f"leaves no time for work between a boot of up to {format_duration(boot_timeout)} (boot_timeout) "
        f"and the notice {settings.notice_lead} before the end (notice_lead)"
    )
    allowed = f"more than {format_duration(shortest)}"
    raise Invalid([Problem("provider_settings.time_limit", message, settings.time_limit or "", allowed)])
