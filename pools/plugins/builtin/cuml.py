"""Plugin for cuML, which runs scikit-learn on GPUs without code changes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

from pools.plugins.base import Plugin
from pools.plugins.facts import Cluster, InstanceInfo
from pools.plugins.image import Image
from pools.plugins.parameters import Parameter


def cuml(
    *, cuda: Annotated[Literal["12", "13"], Parameter("CUDA release, which selects the package")] = "13"
) -> Plugin:
    """RAPIDS cuML, activated in each worker process before scikit-learn is used.

    Without NVIDIA GPUs, only scikit-learn is installed.
    """

    def transform(image: Image, cluster: Cluster) -> Image:
        return image.with_pip(*((f"cuml-cu{cuda}",) if cluster.cuda else ()), "scikit-learn")

    @contextmanager
    def around_process(info: InstanceInfo) -> Iterator[None]:
        if info.gpus:
            from cuml import accel

            accel.install()  # this cannot be undone within the process
        yield

    return Plugin.create("cuml").with_transform(transform).with_around_process(around_process)
