"""scikit-learn with its parallel work on the session's workers."""

from pools.plugins.base import Plugin
from pools.plugins.builtin.joblib import on_ray, parallel
from pools.plugins.facts import Cluster
from pools.plugins.image import Image


def sklearn() -> Plugin:
    """scikit-learn and joblib, with the session as the backend of everything that accepts `n_jobs=-1`."""

    def transform(image: Image, cluster: Cluster) -> Image:
        return image.with_pip("scikit-learn", "joblib")

    plugin = Plugin.create("sklearn").with_transform(transform)
    return plugin.with_decorate(on_ray).with_around_client(parallel)
