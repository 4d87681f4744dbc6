"""Enter the context managers of plugins, each of them once, and exit them in reverse order."""

import logging
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from berth.core.backports import StrEnum
from pools.plugins.base import HookContext, Plugin
from pools.plugins.errors import HookFailed, error_text

log = logging.getLogger(__name__)


class Hook(StrEnum):
    AROUND_APP = "around_app"
    AROUND_PROCESS = "around_process"
    AROUND_CLIENT = "around_client"


class HookContexts:
    """Contexts that one plugin hook has opened in one process, keyed by plugin name.

    The hook is called as `hook(*facts)`: with InstanceInfo on workers, and with the session and Cluster in
    the client. Thread-safe.
    """

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        self._open: dict[str, HookContext] = {}
        self._lock = threading.RLock()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the plugins with open contexts, in the order in which they were entered."""
        return tuple(self._open)

    def enter(self, plugins: Iterable[Plugin], *facts: Any) -> None:
        """Enter the plugins' contexts that are not open yet.

        If one fails, the new contexts are exited and HookFailed is raised.
        """
        with self._lock:
            before = len(self._open)
            for plugin in plugins:
                if plugin.name in self._open or getattr(plugin, self.hook) is None:
                    continue
                try:
                    context = getattr(plugin, self.hook)(*facts)
                    context.__enter__()
                except BaseException as error:
                    self._leave(down_to=before)
                    if not isinstance(error, Exception):
                        raise
                    raise HookFailed(plugin.name, self.hook, error_text(error)) from error
                self._open[plugin.name] = context

    def leave(self) -> tuple[HookFailed, ...]:
        """Exit all contexts in reverse order. Log errors and return them."""
        with self._lock:
            return self._leave(down_to=0)

    def _leave(self, down_to: int) -> tuple[HookFailed, ...]:
        failures = []
        while len(self._open) > down_to:
            name, context = self._open.popitem()
            try:
                context.__exit__(*sys.exc_info())
            except Exception as error:
                failure = HookFailed(name, self.hook, f"on exit: {error_text(error)}")
                failure.__cause__ = error
                log.warning("%s", failure, exc_info=error)
                failures.append(failure)
        return tuple(failures)


@contextmanager
def hook_contexts(plugins: Iterable[Plugin], hook: Hook, *facts: Any) -> Iterator[HookContexts]:
    """Open a hook's contexts for a block. Contexts cannot suppress errors in the block."""
    record = HookContexts(hook)
    record.enter(plugins, *facts)
    try:
        yield record
    finally:
        record.leave()
