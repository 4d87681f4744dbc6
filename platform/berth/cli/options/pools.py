"""Read the options of `berth pool create` and `berth pool edit`."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from berth.cli.documents.files import read_single_document
from berth.cli.exits import InvalidInput, invalid_value_error
from berth.cli.options.arguments import IdleRuleOption
from berth.cli.options.pool_entries import parse_budgets, parse_index, parse_plugins, parse_volume
from berth.cli.options.quantities import (
    parse_idle_rule,
    parse_key_values,
    parse_number,
    parse_number_or_text,
)
from berth.cli.options.ssh_hosts import read_ssh_values
from berth.cli.printing.output import Output, OutputOption

NODES_ALLOWED = "4, 2:16, or min=2,desired=4,max=16 (min with desired, max or both)"
SETTINGS = "provider_settings"
Text = str | None


@dataclass(frozen=True)
class PoolValues:
    """Options for `berth pool create` and `berth pool edit`. The server validates their values."""

    name: Annotated[Text, typer.Argument(metavar="[POOL]", help="Pool name.")] = None
    file: Annotated[
        Text,
        typer.Option("--file", "-f", metavar="FILE", help="Pool document, YAML or JSON (`-` for stdin)."),
    ] = None
    nodes: Annotated[
        Text,
        typer.Option(
            metavar="NODES", help="Number of nodes: 4 (fixed), 2:16 (elastic) or min=2,desired=4,max=16."
        ),
    ] = None
    provider: Annotated[
        Text, typer.Option(help="Node provider: local, static, ssh, aws, kubernetes or slurm.")
    ] = None
    runtime: Annotated[Text, typer.Option(help="Pod runtime: local, ray or kubernetes.")] = None
    context: Annotated[
        Text, typer.Option(metavar="NAME", help="Kubeconfig context, for a Kubernetes pool.")
    ] = None
    kubeconfig: Annotated[
        Text,
        typer.Option(metavar="FILE", help="Kubeconfig that the server stores. Defaults to $KUBECONFIG."),
    ] = None
    node_selector: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="Label that selects the cluster's nodes for the pool; repeatable."
        ),
    ] = None
    hosts: Annotated[
        Text, typer.Option(metavar="FILE", help="YAML file of SSH hosts. Replaces all hosts of the pool.")
    ] = None
    key: Annotated[
        Text,
        typer.Option(
            metavar="KEY",
            help="Private key for SSH hosts or Slurm's login node: a file, which is stored as a pool secret, "
            "or secret:NAME for an existing pool secret.",
        ),
    ] = None
    slurm_token: Annotated[
        Text,
        typer.Option(
            metavar="FILE", help="File with the output of `scontrol token`, for slurmrestd (`-` for stdin)."
        ),
    ] = None
    gpus_per_node: Annotated[int | None, typer.Option(help="GPUs per node.")] = None
    gpu_model: Annotated[Text, typer.Option(help="GPU model, for example H100.")] = None
    cpu: Annotated[
        Text, typer.Option(metavar="CORES", help="CPU cores per node, for example 64 or 500m.")
    ] = None
    memory: Annotated[
        Text,
        typer.Option(metavar="AMOUNT", help="Memory per node, in MiB or with a unit, for example 512Gi."),
    ] = None
    price: Annotated[Text, typer.Option(metavar="NUMBER", help="Price per GPU-hour.")] = None
    label: Annotated[
        list[str] | None,
        typer.Option("--label", "-l", metavar="KEY=VALUE", help="Label for the pool's nodes; repeatable."),
    ] = None
    plugin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:KEY=VALUE]",
            help="Plugin, for example torch or mps:thread_percentage=50. Repeatable. Plugins are applied in "
            "the given order. Use @FILE to read a value, such as a token, from a file.",
        ),
    ] = None
    python: Annotated[
        Text, typer.Option(metavar="VERSION", help="Python version of the environment, for example 3.12.")
    ] = None
    pip: Annotated[
        list[str] | None,
        typer.Option(metavar="REQUIREMENT", help="Python package, for example 'numpy>=2'; repeatable."),
    ] = None
    index: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL[=PKG,..]", help="Package index, optionally limited to specific packages; repeatable."
        ),
    ] = None
    apt: Annotated[list[str] | None, typer.Option(metavar="PACKAGE", help="Debian package; repeatable.")] = (
        None
    )
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Environment variable for all pods; repeatable."),
    ] = None
    node_consolidation: Annotated[
        Text,
        typer.Option(metavar="WHEN", help="Node consolidation: never, when_empty or when_underutilized."),
    ] = None
    budget: Annotated[
        list[str] | None,
        typer.Option(
            metavar="nodes=N[,KEY=VALUE..]",
            help="Disruption budget: nodes=10%,reasons=empty,schedule=0 9 * * mon-fri,duration=8h,"
            "zone=Europe/Berlin. Repeatable. Replaces all budgets of the pool. '' removes all budgets.",
        ),
    ] = None
    image_policy: Annotated[
        Text,
        typer.Option(
            metavar="MODE", help="Policy for container images in workloads: allow, require or forbid."
        ),
    ] = None
    image_pattern: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Allowed images, for example 'ghcr.io/org/*'. Repeatable. Replaces the pool's image policy. "
            "Without --image-policy, the mode is allow.",
        ),
    ] = None
    idle_rule: IdleRuleOption = None
    volume: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SOURCE[,OPTION..]",
            help="Volume that workloads may mount: a node directory, for example "
            "scratch=/mnt/scratch,read_write,projects=vision+speech,nodes=disk=nvme, or objects in S3, for "
            "example datasets=s3://bucket/prefix,secret=s3-reader,region=eu-west-1,max_gib=50. Repeatable. "
            "Replaces all volumes of the pool. '' removes all volumes.",
        ),
    ] = None
    default_limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Default limit for roles without limits of their own: memory_from_request=false, "
            "memory_mib=4096, cpu_from_request=true or cpu=2. Repeatable. Replaces all default limits of the "
            "pool. '' resets the limits.",
        ),
    ] = None
    workspace_limit: Annotated[
        Text,
        typer.Option(
            metavar="AMOUNT",
            help="Maximum disk space of a workspace and its pods' directories, for example 100Gi.",
        ),
    ] = None
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Any other REST field or provider setting, with its value in YAML, for example "
            "provider_settings.partition=gpu; repeatable.",
        ),
    ] = None
    output: OutputOption = Output.TABLE

    def document(self) -> dict[str, Any]:
        values: dict[str, Any] = {} if self.file is None else read_single_document(self.file, "one pool")
        options = {
            "nodes": None if self.nodes is None else parse_nodes(self.nodes), "provider": self.provider,
            "runtime": self.runtime, "gpus_per_node": self.gpus_per_node, "gpu_model": self.gpu_model,
            "cpu": None if self.cpu is None else parse_number_or_text(self.cpu),
            "memory_mib": None if self.memory is None else _parse_memory(self.memory),
            "price_per_gpu_hour": None if self.price is None else parse_number("--price", self.price),
            "labels": parse_key_values("--label", self.label or ()) or None,
            "plugins": parse_plugins(self.plugin or ()) or None,
            "node_consolidation": self.node_consolidation,
            "image_policy": self._image_policy(),
            "volumes": None if self.volume is None else [parse_volume(each) for each in self.volume if each],
            "idle_rule": None if self.idle_rule is None else parse_idle_rule(self.idle_rule),
            "workspace_limit_mib": None if self.workspace_limit is None
            else _parse_memory(self.workspace_limit, "--workspace-limit"),
            "default_limits": None if self.default_limit is None else _parse_limits(self.default_limit),
            "disruption_budgets": None if self.budget is None else parse_budgets(self.budget),
        }  # fmt: skip
        options = {key: value for key, value in options.items() if value is not None}
        installed = self._environment()
        if installed:
            options["environment"] = {**values.get("environment", {}), **installed}
        values = _merge_settings({**values, **options, **_parse_settings(self.sets or ())})
        if self.slurm_token is not None:
            values["slurm_token"] = _read_token(self.slurm_token)
        values |= self._kubernetes_fields(values)
        return {**values, **read_ssh_values(self.hosts, self.key, values.get(SETTINGS) or {})}

    @property
    def has_individual_settings(self) -> bool:
        """Whether provider settings are set one by one, rather than as an entire mapping."""
        keys = [entry.partition("=")[0] for entry in self.sets or ()]
        return SETTINGS not in keys and any(key.startswith(f"{SETTINGS}.") for key in keys)

    def _kubernetes_fields(self, values: dict[str, Any]) -> dict[str, Any]:
        settings = dict(values.get("provider_settings") or {})
        if self.node_selector:
            settings["node_selector"] = parse_key_values("--node-selector", self.node_selector)
        is_new = values.get("provider") == "kubernetes" and not settings.get("in_cluster")
        fields: dict[str, Any] = {"provider_settings": settings} if self.node_selector else {}
        if self.kubeconfig or self.context or (is_new and "kubeconfig" not in values):
            fields["kubeconfig"] = _read_kubeconfig(self.kubeconfig, self.context)
        return fields

    def _image_policy(self) -> dict[str, Any] | None:
        if self.image_policy is None and self.image_pattern is None:
            return None
        mode = {} if self.image_policy is None else {"mode": self.image_policy}
        return {**mode, "patterns": self.image_pattern or []}

    def _environment(self) -> dict[str, Any]:
        options = {
            "python": self.python, "pip": self.pip, "apt": self.apt,
            "indexes": [parse_index(text) for text in self.index or ()],
            "env": parse_key_values("--env", self.env or ()),
        }  # fmt: skip
        return {name: value for name, value in options.items() if value}

    def resolve_name(self, name_in_file: object) -> str:
        name = self.name or name_in_file
        if not isinstance(name, str) or not name:
            raise InvalidInput(
                "the pool has no name. Pass a name as the first argument, or set `name` in the file."
            )
        if self.name and name_in_file not in (None, self.name):
            raise InvalidInput(
                f"the pool is named {self.name!r} on the command line, but {name_in_file!r} in the file. "
                "Remove one of the names."
            )
        return name

    def require_changes(self, changes: dict[str, Any]) -> None:
        if not changes:
            raise InvalidInput(
                "pool edit: specify at least one change, for example --nodes 4, --set KEY=VALUE or -f FILE"
            )


@dataclass(frozen=True)
class NewPool(PoolValues):
    """Options for `berth pool create`, including the options for previews and confirmations."""

    yes: Annotated[
        bool,
        typer.Option("--yes", "-y", help="Create the pool without a prompt, even if the preview has errors."),
    ] = False
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show the nodes that the pool would use, without creating it."),
    ] = False
    accept_host_keys: Annotated[
        bool,
        typer.Option(
            "--accept-host-keys", help="Pin the keys presented by SSH hosts that have no pinned key."
        ),
    ] = False


@dataclass(frozen=True)
class PoolChanges(PoolValues):
    """Options for `berth pool edit`, including the options that preview or confirm drains."""

    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt.")] = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the nodes that would be drained, without draining them.")
    ] = False


def _merge_settings(values: dict[str, Any]) -> dict[str, Any]:
    """Move settings such as `provider_settings.partition` into `provider_settings`."""
    parts = {key: value for key, value in values.items() if key.startswith(f"{SETTINGS}.")}
    if not parts:
        return values
    merged = {**(values.get(SETTINGS) or {}), **{key.partition(".")[2]: parts[key] for key in parts}}
    return {**{key: value for key, value in values.items() if key not in parts}, SETTINGS: merged}


def parse_nodes(text: str) -> int | list[int] | dict[str, int]:
    """Parse the value of `--nodes`. The server checks that the numbers are consistent."""
    try:
        if "=" in text:
            entries = [entry.partition("=") for entry in text.split(",")]
            if len({key for key, _, _ in entries}) == len(entries):
                return {key.strip(): int(value) for key, _, value in entries}
        elif ":" in text:
            minimum, maximum = text.split(":")
            return [int(minimum), int(maximum)]
        else:
            return int(text)
    except ValueError:
        pass
    raise invalid_value_error("--nodes", "is not a valid number of nodes", text, NODES_ALLOWED)


def _parse_limits(entries: Iterable[str]) -> dict[str, Any]:
    return _parse_settings([entry for entry in entries if entry], "--default-limit")


def _parse_settings(entries: Iterable[str], option: str = "--set") -> dict[str, Any]:
    import yaml

    settings = {}
    for key, text in parse_key_values(option, entries).items():
        try:
            settings[key] = yaml.safe_load(text)
        except yaml.YAMLError:
            raise invalid_value_error(f"{option} {key}", "is not valid YAML", text, "a YAML value") from None
    return settings


def _parse_memory(text: str, option: str = "--memory") -> int:
    from pydantic_core import PydanticCustomError

    from berth.core.spec.values.quantities import MEMORY_ALLOWED, parse_memory

    try:
        return parse_memory(parse_number_or_text(text))
    except PydanticCustomError:
        raise invalid_value_error(option, "is not a valid amount of memory", text, MEMORY_ALLOWED) from None


def _read_kubeconfig(file: str | None, context: str | None) -> str:
    from berth.client.kubeconfig import read_kubeconfig

    try:
        return read_kubeconfig(file, context)
    except ValueError as error:
        raise InvalidInput(str(error)) from None


def _read_token(file: str) -> str:
    """Read the token from a file, because a token on the command line would be visible in `ps`."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise InvalidInput(f"--slurm-token: the file cannot be read: {reason}") from None
    if not text.strip():
        raise InvalidInput("--slurm-token: the file is empty. Write the output of `scontrol token` to it.")
    return text
