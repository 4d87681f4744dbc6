"""JAX plugin, which installs JAX and starts jax.distributed if there are several workers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

from pools.plugins.base import Plugin
from pools.plugins.facts import Cluster, InstanceInfo
from pools.plugins.image import Image
from pools.plugins.parameters import Parameter


def jax(
    *,
    cuda: Annotated[Literal["12", "13"], Parameter("CUDA release, which selects the extra")] = "13",
    version: Annotated[
        str, Parameter("Version, for example 0.10.2; empty for the latest", r"|[0-9][0-9A-Za-z.]*")
    ] = "",
) -> Plugin:
    """JAX for the pool's GPUs or for the CPU, with jax.distributed started if there are several workers."""

    def transform(image: Image, cluster: Cluster) -> Image:
        extra = f"[cuda{cuda}]" if cluster.cuda else ""
        return image.with_pip(f"jax{extra}" + (f"=={version}" if version else ""))

    @contextmanager
    def around_process(info: InstanceInfo) -> Iterator[None]:
        if info.world_size == 1:
            yield
            return
        from jax import distributed

        # Use the next port, because torch may run in the same pool and uses head_port.
        distributed.initialize(
            coordinator_address=f"{info.head_address}:{info.head_port + 1}",
            num_processes=info.world_size,
            process_id=info.rank,
        )
        try:
            yield
        finally:
            distributed.shutdown()

    return Plugin.create("jax").with_transform(transform).with_around_process(around_process)
