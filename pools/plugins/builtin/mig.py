"""Plugin for NVIDIA Multi-Instance GPU, which partitions each GPU on a node."""

from typing import Annotated

from pools.plugins.base import Operation, Plugin
from pools.plugins.facts import Cluster
from pools.plugins.parameters import Parameter

# Do not change GPUs that have instances, because they may be in use. Enabling MIG may require a reset.
PARTITION_SCRIPT = """for gpu in $(nvidia-smi --query-gpu=index --format=csv,noheader); do
  mode=$(nvidia-smi -i "$gpu" --query-gpu=mig.mode.current --format=csv,noheader)
  case "$mode" in
    Enabled) ;;
    Disabled) nvidia-smi -i "$gpu" -mig 1 ;;
    *) echo "GPU $gpu cannot be partitioned: MIG mode is $mode" >&2; exit 1 ;;
  esac
  if ! nvidia-smi mig -i "$gpu" -lgi >/dev/null 2>&1; then
    nvidia-smi mig -i "$gpu" -cgi {profiles} -C
  fi
done"""


def mig(
    *,
    profiles: Annotated[
        str,
        Parameter(
            "Profiles of each GPU's instances, as nvidia-smi names them", r"[0-9a-z.+]+(,[0-9a-z.+]+)*",
            "profiles as 3g.20gb,3g.20gb, or their numbers",
        ),
    ],
) -> Plugin:  # fmt: skip
    """MIG instances on each GPU, created when a node boots. Requires NVIDIA GPUs that support MIG."""

    def bootstrap(cluster: Cluster) -> tuple[Operation, ...]:
        return (
            (Operation(PARTITION_SCRIPT.replace("{profiles}", profiles), "mig instances"),)
            if cluster.cuda
            else ()
        )

    return Plugin.create("mig").with_bootstrap(bootstrap)
