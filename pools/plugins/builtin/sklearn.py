"""Plugin for scikit-learn, with parallel jobs on the session's workers."""

from pools.plugins.base import Plugin
from pools.plugins.builtin.joblib import run_parallel_on_session, use_ray_backend
from pools.plugins.facts import Cluster
from pools.plugins.image import Image


def sklearn() -> Plugin:
    """scikit-learn and joblib, with parallel jobs (`n_jobs=-1`) on the session's workers."""

    def transform(image: Image, cluster: Cluster) -> Image:
        return image.with_pip("scikit-learn", "joblib")

    plugin = Plugin.create("sklearn").with_transform(transform)
    return plugin.with_decorate(use_ray_backend).with_around_client(run_parallel_on_session)
