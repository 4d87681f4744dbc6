"""Transfer weights between two serving inference engines.

The caller must prevent changes to the seed's weights during the transfer. After an error, the receiving
engine continues to serve its previous version.
"""

import logging
from contextlib import suppress

from projects.serving.base import EngineAdapter, ErrorKind, ServingError

log = logging.getLogger(__name__)


def copy_weights(adapter: EngineAdapter, seed: str, to: str, *, group: str, seconds: float) -> str:
    """Copy weights, and return the new weight version of the inference engine at `to`.

    The engine is paused during the copy, so no response mixes old and new weights. Raises ServingError.
    """
    version = adapter.weight_version(seed)
    if not version:
        raise ServingError(ErrorKind.REJECTED, to, f"the seed engine {seed} reports no weight version")
    adapter.pause(to)
    try:
        adapter.copy_weights(seed, to, group=group, seconds=seconds)
        if (current := adapter.weight_version(seed)) != version:
            message = f"the seed engine changed from version {version} to {current} during the copy"
            raise ServingError(ErrorKind.REJECTED, to, message)
        adapter.flush(to)
        adapter.set_weight_version(to, version)
    except BaseException:
        with suppress(ServingError):  # report the first error instead of this one
            _resume_with_retry(adapter, to)
        raise
    _resume_with_retry(adapter, to)
    return version


def _resume_with_retry(adapter: EngineAdapter, to: str) -> None:
    """Resume the inference engine. Retry once, because a paused engine serves no requests."""
    try:
        adapter.resume(to)
    except ServingError as error:
        log.warning("could not resume %s, trying again: %s", to, error)
        adapter.resume(to)
