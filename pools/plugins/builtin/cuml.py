"""cuML: scikit-learn on the GPU without code changes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

from pools.plugins.base import Plugin
from pools.plugins.facts import Cluster, InstanceInfo
from pools.plugins.image import Image
from pools.plugins.parameters import Says


def cuml(
    *, cuda: Annotated[Literal["12", "13"], Says("Release of CUDA, for the name of the package")] = "13"
) -> Plugin:
    """RAPIDS cuML, whose accelerator is installed in each worker process before anything uses scikit-learn.

    In a pool without NVIDIA GPUs only scikit-learn itself is there, and nothing is accelerated.
    """

    def transform(image: Image, cluster: Cluster) -> Image:
        return image.with_pip(*((f"cuml-cu{cuda}",) if cluster.cuda else ()), "scikit-learn")

    @contextmanager
    def around_process(info: InstanceInfo) -> Iterator[None]:
        if info.gpus:
            from cuml import accel

            accel.install()  # for the life of the process: it cannot be taken back
        yield

    return Plugin.create("cuml").with_transform(transform).with_around_process(around_process)
