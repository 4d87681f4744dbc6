"""PyTorch plugin, which installs PyTorch for the pool's GPUs and sets up a process group."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

from pools.plugins.base import Plugin
from pools.plugins.builtin.processes import rank_variables, set_variables
from pools.plugins.facts import Cluster, InstanceInfo
from pools.plugins.image import Image
from pools.plugins.parameters import Parameter

WHEELS = "https://download.pytorch.org/whl"
INDEX = r"|default|(https?|file)://[^\s@]+"
PACKAGES = ("torch", "torchvision", "torchaudio")
# PyTorch publishes a separate package index for each CUDA release.
Cuda = Annotated[
    str,
    Parameter(
        "CUDA release, which selects the package index",
        r"1[1-9]\.[0-9]",
        "a release in quotes, such as '13.2'",
    ),
]
Version = Annotated[
    str,
    Parameter(
        "Version, for example 2.9.1; empty for the latest",
        r"|[0-9][0-9A-Za-z.+*]*",
        "a version such as 2.9.1, or empty",
    ),
]


def torch(
    *,
    backend: Literal["", "nccl", "gloo", "mpi"] = "",
    version: Version = "",
    cuda: Cuda = "13.2",
    index: Annotated[
        str, Parameter("Package index of torch", INDEX, "a URL, 'default' for pip's default index, or empty")
    ] = "",
    extras: Annotated[
        tuple[Literal["torchvision", "torchaudio"], ...], Parameter("Additional packages")
    ] = (),
) -> Plugin:
    """PyTorch for GPUs or CPUs, with torch.distributed set up in each worker process.

    An empty `backend` means nccl for processes with a GPU and gloo for others.
    """

    def transform(image: Image, cluster: Cluster) -> Image:
        image = image.with_pip(f"torch=={version}" if version else "torch", *extras)
        if index == "default":
            return image
        build = f"cu{cuda.replace('.', '')}" if cluster.cuda else "cpu"
        return image.with_index(index or f"{WHEELS}/{build}", *PACKAGES)

    @contextmanager
    def around_process(info: InstanceInfo) -> Iterator[None]:
        from torch import cuda as gpus
        from torch import distributed

        process_backend = backend or ("nccl" if info.gpus and gpus.is_available() else "gloo")
        with set_variables(rank_variables(info)):
            is_owner = not distributed.is_initialized()
            if is_owner:
                if process_backend == "nccl":
                    gpus.set_device(info.worker_index % max(gpus.device_count(), 1))
                distributed.init_process_group(process_backend, rank=info.rank, world_size=info.world_size)
            try:
                yield
            finally:
                if is_owner and distributed.is_initialized():
                    distributed.destroy_process_group()

    return Plugin.create("torch").with_transform(transform).with_around_process(around_process)
