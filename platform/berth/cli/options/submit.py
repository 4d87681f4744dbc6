"""Options for `berth submit`."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from berth.cli.exits import InvalidInput
from berth.cli.options.quantities import (
    parse_dependency,
    parse_key_values,
    parse_number,
    parse_secret,
    parse_secret_name,
    parse_toleration,
    parse_volume_mount,
)
from berth.cli.options.submit_values import (
    build_notification,
    parse_amount,
    parse_notice,
    parse_priority,
    parse_restart_policy,
    parse_retry,
    parse_seconds,
    without_empty_values,
)
from berth.cli.printing.arrays import parse_array_option
from berth.cli.printing.output import Output, OutputOption
from berth.core.values.priorities import DEFAULT, PRIORITIES, SERVICE_DEFAULT

Text = str | None
Texts = list[str] | None


def _option(help_text: str, *names: str, metavar: Text = None) -> Any:
    return typer.Option(*names, help=help_text, metavar=metavar, show_default=False)


@dataclass(frozen=True)
class SubmitFlags:
    """Options for `berth submit`. Options without a value are omitted from the document."""

    command: Annotated[
        Texts,
        typer.Argument(
            metavar="[FILE...] [-- COMMAND...]",
            help="Workload documents; or, after --, the command that each replica runs.",
        ),
    ] = None
    file: Annotated[
        Texts,
        _option(
            "File with workload documents, YAML or JSON (`-` for stdin). Repeatable.",
            "--file",
            "-f",
            metavar="FILE",
        ),
    ] = None
    template: Annotated[
        Text, _option("Template to start from: NAME or PROJECT/NAME.", "--template", "-t", metavar="TEMPLATE")
    ] = None
    set: Annotated[Texts, _option("Value to set in the document; repeatable.", metavar="KEY=VALUE")] = None
    name: Annotated[Text, _option("Workload name.", "--name", "-n", metavar="NAME")] = None
    project: Annotated[
        Text,
        _option(
            "Project. Defaults to BERTH_PROJECT, the context's project, or your only project.",
            "--project",
            "-p",
            metavar="NAME",
        ),
    ] = None
    array: Annotated[
        Text,
        _option(
            "Tasks of an array: indexes, ranges with steps, and the maximum number of running tasks, for "
            "example 0-999%50 or 1,5,10-90:10.",
            "--array",
            metavar="INDEXES[%MAX]",
        ),
    ] = None
    pool: Annotated[Texts, _option("Node pool; repeat in order of preference.", metavar="POOL")] = None
    kind: Annotated[Text, _option("Kind: training, elastic, interactive or service.", metavar="KIND")] = None
    priority: Annotated[
        Text,
        _option(
            f"0 to 1000, or {', '.join(PRIORITIES)}. Defaults to {DEFAULT} ({SERVICE_DEFAULT} for services).",
            metavar="NUMBER|NAME",
        ),
    ] = None
    preemptible: Annotated[
        bool | None, _option("Allow evictions. By default, workloads below priority 100 are preemptible.")
    ] = None
    shell: Annotated[
        Text, _option("Shell command line for /bin/sh instead of a command.", metavar="LINE")
    ] = None
    role: Annotated[Text, _option("Role name. Defaults to worker.", metavar="NAME")] = None
    replicas: Annotated[int | None, _option("Number of replicas, started together.", "--replicas", "-r")] = (
        None
    )
    min: Annotated[int | None, _option("Minimum number of replicas of an elastic workload.")] = None
    max: Annotated[int | None, _option("Maximum number of replicas of an elastic workload.")] = None
    gpu: Annotated[
        Text,
        _option(
            "GPUs per replica, for example 2, or 0.5 for half a device.", "--gpu", "-g", metavar="NUMBER"
        ),
    ] = None
    gpu_devices: Annotated[int | None, _option("Number of devices for a fractional --gpu.")] = None
    gpu_memory: Annotated[
        Text,
        _option(
            "GPU memory per device instead of a fraction, in MiB or with a unit, for example 8Gi.",
            metavar="AMOUNT",
        ),
    ] = None
    gpu_model: Annotated[Texts, _option("Allowed GPU model; repeatable.", metavar="MODEL")] = None
    cpu: Annotated[Text, _option("CPU cores per replica, for example 2, 0.5 or 800m.", metavar="CORES")] = (
        None
    )
    memory: Annotated[
        Text, _option("Memory per replica, in MiB or with a unit, for example 4Gi.", metavar="AMOUNT")
    ] = None
    cpu_limit: Annotated[Text, _option("CPU limit per replica in cores.", metavar="CORES")] = None
    memory_limit: Annotated[
        Text, _option("Memory limit per replica, in MiB or with a unit.", metavar="AMOUNT")
    ] = None
    node_selector: Annotated[Texts, _option("Required node label; repeatable.", metavar="KEY=VALUE")] = None
    toleration: Annotated[Texts, _option("Tolerated taint; repeatable.", metavar="KEY[=VALUE][:EFFECT]")] = (
        None
    )
    spread_per_node: Annotated[int | None, _option("Maximum replicas per node.")] = None
    topology: Annotated[Text, _option("Node label whose value all replicas must share.", metavar="LABEL")] = (
        None
    )
    topology_preferred: Annotated[
        Text, _option("Node label whose value all replicas should share.", metavar="LABEL")
    ] = None
    env: Annotated[
        Texts, _option("Environment variable; repeatable.", "--env", "-e", metavar="KEY=VALUE")
    ] = None
    secret: Annotated[
        Texts, _option("Secret as an environment variable; repeatable.", metavar="NAME=VARIABLE")
    ] = None
    secret_file: Annotated[
        Texts,
        _option("Secret as a file in $BERTH_SECRETS_DIR; repeatable.", metavar="NAME=FILE"),
    ] = None
    volume: Annotated[
        Texts,
        _option(
            "Volume of the pool at an absolute path; :ro mounts it read-only. Repeatable.",
            metavar="NAME:PATH[:ro]",
        ),
    ] = None
    label: Annotated[Texts, _option("Label; repeatable.", "--label", "-l", metavar="KEY=VALUE")] = None
    image: Annotated[
        Text,
        _option("Container image, for example docker.io/library/python:3.12.", metavar="REGISTRY/NAME:TAG"),
    ] = None
    image_pull_policy: Annotated[
        Text, _option("Image pulls: if_not_present (default), always or never.", metavar="POLICY")
    ] = None
    code: Annotated[
        Text,
        _option("Directory to send. Each pod starts in a copy of this directory.", metavar="DIR"),
    ] = None
    git: Annotated[
        Text,
        _option(
            "Git repository whose files each pod starts with, for example https://git.example.org/train.git.",
            metavar="URL",
        ),
    ] = None
    git_ref: Annotated[
        Text,
        _option("Branch, tag or commit for --git. Defaults to the default branch.", metavar="REF"),
    ] = None
    git_directory: Annotated[
        Text, _option("Directory to use instead of the whole repository.", metavar="DIR")
    ] = None
    git_secret: Annotated[
        Text,
        _option(
            "Secret with the private key or token for --git; personal/NAME is one of your own.",
            metavar="NAME",
        ),
    ] = None
    git_host_key: Annotated[
        Text,
        _option("Public key of the SSH server of --git, as TYPE KEY.", metavar="KEY"),
    ] = None
    no_code: Annotated[bool, _option("Send no code, even if a document names a directory.", "--no-code")] = (
        False
    )
    outputs: Annotated[
        Texts,
        _option("File or directory to store after each pod has ended; repeatable.", metavar="PATH"),
    ] = None
    keep_failed_pod: Annotated[
        Text,
        _option("How long the files of a failed pod are kept, for example 30m.", metavar="TIME"),
    ] = None
    workdir: Annotated[Text, _option("Working directory.", "--workdir", "-w", metavar="DIR")] = None
    max_runtime: Annotated[
        Text, _option("Maximum runtime, for example 90 (seconds), 30m or 2h.", metavar="TIME")
    ] = None
    burst_after: Annotated[
        Text,
        _option("Pending time after which the last --pool may be used, for example 30m.", metavar="TIME"),
    ] = None
    deadline: Annotated[Text, _option("Timestamp at which to stop the workload.", metavar="MOMENT")] = None
    idle_timeout: Annotated[
        Text,
        _option(
            "Time without log output or requests to ports after which the workload ends.", metavar="TIME"
        ),
    ] = None
    grace: Annotated[Text, _option("Grace period between SIGTERM and SIGKILL.", metavar="TIME")] = None
    preemption_signal: Annotated[
        Text,
        _option(
            "Signal before SIGTERM on evictions and suspensions, with its lead, for example USR1@5m.",
            metavar="SIGNAL@TIME",
        ),
    ] = None
    preemption_delay: Annotated[
        Text, _option("Minimum pending time before the workload may preempt others.", metavar="TIME")
    ] = None
    stale_gang_grace: Annotated[
        Text,
        _option(
            "Time for which a gang may run below its minimum, or never for an unlimited time.", metavar="TIME"
        ),
    ] = None
    after: Annotated[
        Texts,
        _option(
            "Workload or array that must end first, as completed (default), failed or any; repeatable.",
            metavar="WORKLOAD[:STATE]",
        ),
    ] = None
    after_tasks: Annotated[
        Texts,
        _option("Array whose task with the same index must end first; repeatable.", metavar="ARRAY[:STATE]"),
    ] = None
    restart: Annotated[
        Text,
        _option(
            "Restart policy: never, always, on_failure, or on_failure:3 for at most three restarts.",
            metavar="POLICY",
        ),
    ] = None
    retry: Annotated[
        Texts,
        _option(
            "Retry rule: failures, then settings, for example '75,SIGKILL max=5 backoff=30s other_node'; "
            "repeatable.",
            metavar="RULE",
        ),
    ] = None
    notify: Annotated[Texts, _option("Email address or URL to notify; repeatable.", metavar="ADDRESS")] = None
    notify_on: Annotated[
        Texts,
        _option(
            "Event: started, completed, failed, preempted, cancelled or unschedulable; repeatable.",
            metavar="EVENT",
        ),
    ] = None
    dry_run: Annotated[bool, _option("Predict the decision without submitting.", "--dry-run")] = False
    atomic: Annotated[bool, _option("Submit all documents or, if one is rejected, none.", "--atomic")] = False
    show: Annotated[bool, _option("Print the document instead of submitting it.", "--print")] = False
    watch: Annotated[bool, _option("Print each phase change until the workload ends.", "--watch")] = False
    follow: Annotated[bool, _option("Print the output until the workload ends.", "--follow")] = False
    output: OutputOption = Output.TABLE

    def document(self) -> dict[str, Any]:
        """Return the workload document for these options. Raises InvalidInput if options conflict."""
        if self.shell and self.command:
            raise InvalidInput("--shell cannot be combined with a command. Use only one of them.")
        top_level = {
            "name": self.name,
            "project": self.project,
            "array": parse_array_option(self.array),
            "pools": self.pool,
            "kind": self.kind,
            "priority": parse_priority(self.priority),
            "preemptible": self.preemptible,
            "max_runtime": parse_seconds("--max-runtime", self.max_runtime),
            "burst_after": parse_seconds("--burst-after", self.burst_after),
            "deadline": self.deadline,
            "idle_timeout": parse_seconds("--idle-timeout", self.idle_timeout),
            "preemption_delay": parse_seconds("--preemption-delay", self.preemption_delay),
            "stale_gang_grace": -1
            if self.stale_gang_grace == "never"
            else parse_seconds("--stale-gang-grace", self.stale_gang_grace),
            "preemption": parse_notice(self.preemption_signal),
            "grace_period_seconds": parse_seconds("--grace", self.grace),
            "after": [
                *(parse_dependency(entry) for entry in self.after or ()),
                *({**parse_dependency(entry), "tasks": "same"} for entry in self.after_tasks or ()),
            ],
            "roles": [self._role_section()],
            "command": self.shell or self.command,
            "env": parse_key_values("--env", self.env or ()),
            "secrets": [
                *(parse_secret("--secret", "env", entry) for entry in self.secret or ()),
                *(parse_secret("--secret-file", "file", entry) for entry in self.secret_file or ()),
            ],
            "volumes": [parse_volume_mount(entry) for entry in self.volume or ()],
            "code": self._git_section(),
            "outputs": self.outputs,
            "keep_failed_pod": parse_seconds("--keep-failed-pod", self.keep_failed_pod),
            "image": self.image,
            "image_pull_policy": self.image_pull_policy,
            "working_dir": self.workdir,
            "restart_policy": parse_restart_policy(self.restart),
            "retry": [parse_retry(entry) for entry in self.retry or ()],
            "labels": parse_key_values("--label", self.label or ()),
            "notifications": [build_notification(to, self.notify_on) for to in self.notify or ()],
        }
        return without_empty_values(top_level)

    def _git_section(self) -> dict[str, Any] | None:
        options = {
            "ref": self.git_ref, "directory": self.git_directory, "secret": self.git_secret,
            "host_key": self.git_host_key,
        }  # fmt: skip
        section = without_empty_values(options)
        if self.git is None:
            if section:
                raise InvalidInput(f"--git-{min(section).replace('_', '-')} requires --git")
            return None
        if self.code is not None or self.no_code:
            other = "--no-code" if self.no_code else "--code"
            raise InvalidInput(f"--git cannot be combined with {other}. Use only one of them.")
        secret = (
            {} if self.git_secret is None else parse_secret_name("--git-secret", "secret", self.git_secret)
        )
        return {"git": {"url": self.git, **section, **secret}}

    def _role_section(self) -> dict[str, Any]:
        role = {
            "name": self.role,
            "replicas": self.replicas,
            "min": self.min,
            "max": self.max,
            "gpu": None if self.gpu is None else parse_number("--gpu", self.gpu),
            "gpu_devices": self.gpu_devices,
            "gpu_memory_mib": parse_amount(self.gpu_memory),
            "gpu_models": self.gpu_model,
            "cpu": parse_amount(self.cpu),
            "memory_mib": parse_amount(self.memory),
            "limit": without_empty_values(
                {"cpu": parse_amount(self.cpu_limit), "memory_mib": parse_amount(self.memory_limit)}
            ),
            "node_selector": parse_key_values("--node-selector", self.node_selector or ()),
            "tolerations": [parse_toleration(entry) for entry in self.toleration or ()],
            "spread_per_node": self.spread_per_node,
            "topology": without_empty_values(
                {"required": self.topology, "preferred": self.topology_preferred}
            ),
        }
        return without_empty_values(role)


FLAGS_BY_PATH = {
    "name": "--name", "project": "--project", "pools": "--pool", "kind": "--kind", "priority": "--priority",
    "max_runtime": "--max-runtime", "burst_after": "--burst-after",
    "deadline": "--deadline", "idle_timeout": "--idle-timeout",
    "preemption_delay": "--preemption-delay", "stale_gang_grace": "--stale-gang-grace",
    "grace_period_seconds": "--grace", "preemption": "--preemption-signal",
    "after": "--after", "env": "--env", "secrets": "--secret", "volumes": "--volume",
    "image": "--image", "image_pull_policy": "--image-pull-policy",
    "code": "--code", "code.git": "--git", "code.git.ref": "--git-ref",
    "code.git.directory": "--git-directory", "code.git.secret": "--git-secret",
    "code.git.host_key": "--git-host-key", "outputs": "--outputs", "keep_failed_pod": "--keep-failed-pod",
    "working_dir": "--workdir", "restart_policy": "--restart",
    "retry": "--retry", "labels": "--label",
    "notifications": "--notify", "array": "--array", "command": "COMMAND",
    "roles[0].name": "--role", "roles[0].replicas": "--replicas", "roles[0].min": "--min",
    "roles[0].max": "--max", "roles[0].gpu": "--gpu", "roles[0].gpu_devices": "--gpu-devices",
    "roles[0].gpu_memory_mib": "--gpu-memory", "roles[0].gpu_models": "--gpu-model", "roles[0].cpu": "--cpu",
    "roles[0].memory_mib": "--memory", "roles[0].limit.cpu": "--cpu-limit",
    "roles[0].limit.memory_mib": "--memory-limit", "roles[0].node_selector": "--node-selector",
    "roles[0].tolerations": "--toleration", "roles[0].spread_per_node": "--spread-per-node",
    "roles[0].topology.required": "--topology", "roles[0].topology.preferred": "--topology-preferred",
}  # fmt: skip


def flag_for_path(path: str) -> str:
    """Return the option that sets `path` in the document, such as `--gpu`."""
    matches = (part for part in FLAGS_BY_PATH if path == part or path.startswith((f"{part}.", f"{part}[")))
    flag = FLAGS_BY_PATH.get(max(matches, key=len, default=""), path)
    key = path.rpartition("].")[2] if flag == "--retry" and "]." in path else ""
    return flag if key.startswith("on") else f"{flag} {key}".rstrip()
