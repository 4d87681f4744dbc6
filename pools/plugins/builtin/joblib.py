"""joblib: `Parallel(n_jobs=-1)` on the session's workers or its Ray cluster."""

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from pools.plugins.base import Plugin
from pools.plugins.facts import ClientPool, Cluster
from pools.plugins.image import Image

# Who asks Ray for nothing is put anywhere, all on one node perhaps; and a processor would be kept from tasks.
SPREAD = {"scheduling_strategy": "SPREAD", "memory": 1 << 20}
_kept = threading.local()


def joblib() -> Plugin:
    """joblib, with the session as the backend of `Parallel(n_jobs=-1)` in the client's process.

    On pools that run Ray it is Ray's own backend, in the client and inside functions.
    """

    def transform(image: Image, cluster: Cluster) -> Image:
        return image.with_pip("joblib")

    plugin = Plugin.create("joblib").with_transform(transform)
    return plugin.with_decorate(on_ray).with_around_client(parallel)


def parallel(pool: ClientPool, cluster: Cluster) -> AbstractContextManager[object]:
    return pool.parallel()


def on_ray(function: Callable[..., Any]) -> Callable[..., Any]:
    """While it runs, joblib's `Parallel(n_jobs=-1)` uses Ray's backend, where the session has a Ray."""

    @functools.wraps(function)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        with _rays_backend():
            return function(*args, **kwargs)

    return decorated


def spread(batch: Any) -> list[Any]:
    """Runs a batch of the client's jobs: by Ray's backend where the session has a Ray, otherwise here."""
    with _rays_backend() as there:
        if not there:
            return list(batch())
        try:
            return list(_on_all_nodes()(batch.items))
        except BaseException:
            _kept.parallel = None  # its processes may be gone
            raise


@contextmanager
def _rays_backend() -> Iterator[bool]:
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        yield False
        return
    from joblib import parallel_config
    from ray.util.joblib import register_ray

    register_ray()
    with parallel_config("ray", ray_remote_args=SPREAD):
        yield True


def _on_all_nodes() -> Any:
    """Kept from batch to batch, while the nodes are the same: its processes take a second to start."""
    from joblib import Parallel, effective_n_jobs

    many, kept = effective_n_jobs(-1), getattr(_kept, "parallel", None)
    if kept is not None and _kept.many != many:
        kept.__exit__(None, None, None)
        kept = None
    if kept is None:
        kept, _kept.many = Parallel(n_jobs=-1), many
        _kept.parallel = kept.__enter__()
    return _kept.parallel
