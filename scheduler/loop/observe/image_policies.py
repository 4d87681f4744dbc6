"""Find pools that no longer accept a pending workload's image, because their settings changed."""

from collections.abc import Iterable, Mapping

from pools.image_support import image_rejection_reason
from pools.models import NodePool
from pools.runtimes.capabilities import runtime_capabilities

Rejections = Mapping[str, str]  # reasons for rejections, by pool
NONE: Rejections = {}


class ImagePolicies:
    """Image policies of all pools. Each image is checked against each pool only once."""

    def __init__(self, pools: Iterable[NodePool]) -> None:
        self._pools = list(pools)
        self.settings = [  # all values that rejections depend on
            (pool.name, pool.runtime, pool.image_policy, pool.built_environment_id) for pool in self._pools
        ]
        self._restricts = any(
            pool.image_policy or runtime_capabilities(pool.runtime).requires_images for pool in self._pools
        )
        self._rejections: dict[str | None, Rejections] = {}

    def image_rejections(self, image: str | None) -> Rejections:
        """Return the rejection reason of each pool that does not accept workloads with the image."""
        if image is None and not self._restricts:
            return NONE
        if image not in self._rejections:
            reasons = {pool.name: image_rejection_reason(pool, image) for pool in self._pools}
            self._rejections[image] = {name: reason for name, reason in reasons.items() if reason}
        return self._rejections[image]
