"""NVIDIA Multi-Instance GPU: partition each GPU of a node."""

from typing import Annotated

from pools.plugins.base import Operation, Plugin
from pools.plugins.facts import Cluster
from pools.plugins.parameters import Says

# A GPU that has instances is left as it is: others may run there. Switching the mode on may need a reset.
CUT = """for gpu in $(nvidia-smi --query-gpu=index --format=csv,noheader); do
  mode=$(nvidia-smi -i "$gpu" --query-gpu=mig.mode.current --format=csv,noheader)
  case "$mode" in
    Enabled) ;;
    Disabled) nvidia-smi -i "$gpu" -mig 1 ;;
    *) echo "GPU $gpu cannot be cut: $mode" >&2; exit 1 ;;
  esac
  if ! nvidia-smi mig -i "$gpu" -lgi >/dev/null 2>&1; then
    nvidia-smi mig -i "$gpu" -cgi {profiles} -C
  fi
done"""


def mig(
    *,
    profiles: Annotated[
        str,
        Says(
            "The parts of each GPU, as nvidia-smi names them", r"[0-9a-z.+]+(,[0-9a-z.+]+)*",
            "profiles as 3g.20gb,3g.20gb, or their numbers",
        ),
    ],
) -> Plugin:  # fmt: skip
    """Each GPU cut into MIG instances when a node boots. Only where there are NVIDIA GPUs that can be cut."""

    def bootstrap(cluster: Cluster) -> tuple[Operation, ...]:
        return (Operation(CUT.replace("{profiles}", profiles), "mig instances"),) if cluster.cuda else ()

    return Plugin.create("mig").with_bootstrap(bootstrap)
