"""Preview of a Slurm pool: the machines of its partition, and problems that would keep jobs pending."""

from collections.abc import Iterator, Sequence

from berth.core.problems import suggest
from berth.core.values.durations import format_duration
from pools.providers.base import Shape
from pools.providers.preview import Finding, Preview, PreviewedNode, error, warning
from pools.providers.slurm.cluster import Partition, partition_names
from pools.providers.slurm.settings import SlurmSettings


def make_preview(
    settings: SlurmSettings, shape: Shape, partitions: Sequence[Partition], cluster: str, rejection: str
) -> Preview:
    """Return the machines in the pool's partition, and any problems.

    `rejection` is the message of `sbatch --test-only`, or empty.
    """
    partition = choose_partition(settings, partitions)
    if partition is None:
        return Preview(cluster, findings=(_unknown_partition_finding(settings, partitions),))
    source = f"{cluster}, partition {partition.name}{_describe_limits(partition)}"
    findings = [*_partition_findings(settings, partition), *_rejection_findings(rejection)]
    nodes = tuple(_add_size_obstacle(node, shape) for node in partition.nodes)
    if nodes and all(node.obstacle for node in nodes):
        message = f"No machine in partition {partition.name} can run a node of the pool."
        findings.append(error(message, "Lower the resources per node, or choose another partition."))
    return Preview(source, nodes, tuple(findings))


def choose_partition(settings: SlurmSettings, partitions: Sequence[Partition]) -> Partition | None:
    """Return the pool's first partition, or the cluster's default if the pool has none.

    Return None if the partition does not exist.
    """
    name = (settings.partition or "").partition(",")[0]
    chosen = (each for each in partitions if (each.name == name if name else each.is_default))
    return next(chosen, None)


def _unknown_partition_finding(settings: SlurmSettings, partitions: Sequence[Partition]) -> Finding:
    listed = ", ".join(partition_names(partitions)) or "none"
    if settings.partition is None:
        message = "The cluster has no default partition."
        return error(message, f"Set provider_settings.partition to one of: {listed}.")
    nearest = suggest(settings.partition, partition_names(partitions))
    suggestion = f"{nearest} " if nearest.startswith("Did you mean") else ""
    message = f"The cluster has no partition {settings.partition} that this user may see."
    return error(message, f"{suggestion}Allowed: {listed}.")


def _partition_findings(settings: SlurmSettings, partition: Partition) -> Iterator[Finding]:
    if not partition.is_up:
        yield error(
            f"Partition {partition.name} is down.", "Choose another partition, or wait until it is up."
        )
    limit, allowed = settings.limit_seconds, partition.time_limit
    if limit is not None and allowed is not None and limit > allowed:
        yield error(
            f"The time limit of {settings.time_limit} exceeds the partition's {format_duration(allowed)}, so "
            "its jobs would never start.",
            f"Set provider_settings.time_limit to {format_duration(allowed)} or less.",
        )
    effective = limit or partition.default_time or allowed
    if effective is None:
        yield warning(
            "The jobs have no time limit.", "Set provider_settings.time_limit, which also helps backfill."
        )
    elif effective <= settings.notice_seconds:
        yield error(
            f"The allocation of {format_duration(effective)} leaves no time for work: its end is announced "
            f"{settings.notice_lead} in advance.",
            "Raise provider_settings.time_limit, or lower notice_lead.",
        )


def _rejection_findings(rejection: str) -> Iterator[Finding]:
    if rejection:
        yield error(f"Slurm rejects the pool's jobs: {rejection}.", "Change the settings that Slurm names.")


def _describe_limits(partition: Partition) -> str:
    if partition.time_limit is None:
        return ""
    return f" (time limit {format_duration(partition.time_limit)})"


def _add_size_obstacle(node: PreviewedNode, shape: Shape) -> PreviewedNode:
    total = node.total
    lacking = [
        f"{has:g} of {needs:g} {unit}"
        for has, needs, unit in (
            (total.gpus, shape.gpus, "GPUs"),
            (total.cpu_milli / 1000, shape.cpu_milli / 1000, "cores"),
            (total.memory_mib, shape.memory_mib, "MiB"),
        )
        if has < needs
    ]
    if node.obstacle or not lacking:
        return node
    return PreviewedNode(node.name, node.total, node.used, f"too small: {', '.join(lacking)}", node.details)
