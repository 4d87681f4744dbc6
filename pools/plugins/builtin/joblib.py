"""joblib plugin, which runs `Parallel(n_jobs=-1)` on the session's workers or on its Ray cluster."""

import functools
import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from pools.plugins.base import Plugin
from pools.plugins.facts import ClientPool, Cluster
from pools.plugins.image import Image

# Without these options, Ray may run all batches on one node and reserve a CPU that tasks need.
SPREAD_OPTIONS = {"scheduling_strategy": "SPREAD", "memory": 1 << 20}
_cache = threading.local()


def joblib() -> Plugin:
    """joblib, with the client's parallel jobs (`n_jobs=-1`) on the session's workers.

    On Ray pools, joblib uses Ray's own backend, both in the client's process and inside functions.
    """

    def transform(image: Image, cluster: Cluster) -> Image:
        return image.with_pip("joblib")

    plugin = Plugin.create("joblib").with_transform(transform)
    return plugin.with_decorate(use_ray_backend).with_around_client(run_parallel_on_session)


def run_parallel_on_session(pool: ClientPool, cluster: Cluster) -> AbstractContextManager[object]:
    """Run the client's parallel jobs on the session's workers. Do nothing if the client lacks joblib."""
    return pool.parallel() if importlib.util.find_spec("joblib") else nullcontext()


def use_ray_backend(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that `Parallel(n_jobs=-1)` inside it uses Ray's backend, if the session runs Ray."""

    @functools.wraps(function)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        with _ray_backend():
            return function(*args, **kwargs)

    return decorated


def run_batch(batch: Any) -> list[Any]:
    """Run a batch of the client's jobs. If the session runs Ray, use Ray's backend."""
    with _ray_backend() as is_ray:
        if not is_ray:
            return list(batch())
        try:
            return list(_parallel_on_all_nodes()(batch.items))
        except BaseException:
            _cache.parallel = None  # the cached instance's processes may have ended
            raise


@contextmanager
def _ray_backend() -> Iterator[bool]:
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        yield False
        return
    from joblib import parallel_config
    from ray.util.joblib import register_ray

    register_ray()
    with parallel_config("ray", ray_remote_args=SPREAD_OPTIONS):
        yield True


def _parallel_on_all_nodes() -> Any:
    """Return a joblib Parallel that uses all nodes. It is reused until the nodes change."""
    from joblib import Parallel, effective_n_jobs

    count, parallel = effective_n_jobs(-1), getattr(_cache, "parallel", None)
    if parallel is not None and _cache.count != count:
        parallel.__exit__(None, None, None)
        parallel = None
    if parallel is None:
        parallel, _cache.count = Parallel(n_jobs=-1), count
        _cache.parallel = parallel.__enter__()
    return _cache.parallel
