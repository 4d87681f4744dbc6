"""Keras plugin, which selects the backend and spreads data over all devices."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

from pools.plugins.base import Plugin
from pools.plugins.facts import Cluster, InstanceInfo
from pools.plugins.image import Image
from pools.plugins.parameters import Parameter

log = logging.getLogger(__name__)


def keras(
    *,
    backend: Literal["jax", "torch", "tensorflow"] = "jax",
    data_parallel: Annotated[bool, Parameter("Spread each batch over all devices of all workers")] = True,
) -> Plugin:
    """Keras 3 with KERAS_BACKEND set, and DataParallel as the distribution in each worker process.

    List jax or torch before keras. Keras distributes only on JAX.
    """

    def transform(image: Image, cluster: Cluster) -> Image:
        package = "tensorflow[and-cuda]" if backend == "tensorflow" and cluster.cuda else backend
        return image.with_pip("keras>=3", package).with_env(KERAS_BACKEND=backend)

    @contextmanager
    def around_process(info: InstanceInfo) -> Iterator[None]:
        if not data_parallel or backend != "jax":
            log.info("keras on %s: no distribution is set", backend)
            yield
            return
        from keras import distribution

        distribution.set_distribution(distribution.DataParallel())
        try:
            yield
        finally:
            distribution.set_distribution(None)

    return Plugin.create("keras").with_transform(transform).with_around_process(around_process)
