"""Errors of plugin hooks, serializable from worker to client."""


class PluginError(Exception):
    """A plugin is broken or used incorrectly."""


class HookFailed(PluginError):
    """A hook returned a wrong value, or raised the error stored as `__cause__`."""

    def __init__(self, plugin: str, hook: str, problem: str) -> None:
        super().__init__(plugin, hook, problem)
        self.plugin, self.hook, self.problem = plugin, hook, problem

    def __str__(self) -> str:
        return f"the plugin {self.plugin} failed in {self.hook}: {self.problem}"


def error_text(error: BaseException) -> str:
    """Return the error's type and message in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
