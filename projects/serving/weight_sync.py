"""Transfer weights between engines while both serve.

The caller sees to it that nobody changes the seed's weights meanwhile. If somebody did, or anything
fails, the engine goes on serving and keeps saying the version that it said before.
"""

import logging
from contextlib import suppress

from projects.serving.base import EngineAdapter, ServingError, Trouble

log = logging.getLogger(__name__)


def take_over(adapter: EngineAdapter, seed: str, to: str, *, group: str, seconds: float) -> str:
    """Returns the version that the engine at `to` has now. Raises ServingError; then it has been let go on.

    It is paused, so that no answer is made with some of the old and some of the new; its requests wait. What
    it cached belongs to the old weights, and is dropped.
    """
    version = adapter.weight_version(seed)
    if not version:
        raise ServingError(Trouble.REFUSED, to, f"the seed engine {seed} names no weight version")
    adapter.pause(to)
    try:
        adapter.copy_weights(seed, to, group=group, seconds=seconds)
        if (now := adapter.weight_version(seed)) != version:
            said = f"the seed engine went from version {version} to {now} during the copy"
            raise ServingError(Trouble.REFUSED, to, said)
        adapter.flush(to)
        adapter.set_weight_version(to, version)
    except BaseException:
        with suppress(ServingError):  # what went wrong first is what is told
            _go_on(adapter, to)
        raise
    _go_on(adapter, to)
    return version


def _go_on(adapter: EngineAdapter, to: str) -> None:
    """An engine that stays paused serves nobody, so one lost answer is not the end."""
    try:
        adapter.resume(to)
    except ServingError as error:
        log.warning("%s did not go on, and is asked again: %s", to, error)
        adapter.resume(to)
