"""Plugin for NVIDIA Multi-Process Service, which lets several processes share a GPU."""

from typing import Annotated

from pools.plugins.base import Operation, Plugin
from pools.plugins.facts import Cluster
from pools.plugins.image import Image
from pools.plugins.parameters import Parameter

PIPES, LOGS = "/tmp/nvidia-mps", "/tmp/nvidia-mps-log"  # noqa: S108 - NVIDIA's default paths
# Do not restart a running daemon, because that would disturb running processes.
START_DAEMON = """if ! command -v nvidia-cuda-mps-control >/dev/null; then
  echo "nvidia-cuda-mps-control is not on this machine. Install NVIDIA's driver, which includes it." >&2
  exit 1
fi
mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
echo get_server_list | nvidia-cuda-mps-control >/dev/null 2>&1 || nvidia-cuda-mps-control -d"""


def mps(
    *,
    thread_percentage: Annotated[
        int, Parameter("Share of a GPU's threads per process, in percent", minimum=1, maximum=100)
    ] = 100,
    memory_limit: Annotated[
        str,
        Parameter(
            "GPU memory limit per process, by device", r"|[0-9]+=[0-9]+[MG](,[0-9]+=[0-9]+[MG])*",
            "as 0=8G or 0=8G,1=8G, or empty",
        ),
    ] = "",
) -> Plugin:  # fmt: skip
    """Run the MPS daemon on each node, and set the variables that processes need. Requires NVIDIA GPUs."""

    def transform(image: Image, cluster: Cluster) -> Image:
        if not cluster.cuda:
            return image
        image = image.with_env(
            CUDA_MPS_PIPE_DIRECTORY=PIPES,
            CUDA_MPS_LOG_DIRECTORY=LOGS,
            CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=str(thread_percentage),
        )
        return image.with_env(CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=memory_limit) if memory_limit else image

    def bootstrap(cluster: Cluster) -> tuple[Operation, ...]:
        return (Operation(START_DAEMON, "mps daemon"),) if cluster.cuda else ()

    return Plugin.create("mps").with_transform(transform).with_bootstrap(bootstrap)
