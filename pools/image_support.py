"""Check whether a pool accepts workloads with a given container image, or without an image."""

from pools.engine.image_policy import read_policy
from pools.models import NodePool
from pools.runtimes.capabilities import runtime_capabilities


def image_rejection_reason(pool: NodePool, image: str | None) -> str:
    """Return a clause that says why the pool rejects a workload with this image, or "".

    `image` is None for a workload without an image.
    """
    capabilities = runtime_capabilities(pool.runtime)
    if image is None and capabilities.requires_images:
        return f"pool {pool.name} only runs workloads with a container image"
    if image is not None and not capabilities.runs_images:
        return f"pool {pool.name} does not run container images"
    if rejection := read_policy(pool.image_policy).rejection_reason(pool.name, image):
        return rejection
    if image is not None and pool.built_environment_id is not None:
        return f"pool {pool.name} has plugins or packages, which do not work inside a container image"
    return ""
