"""Errors of plugin hooks, serializable from worker to client."""


class PluginError(Exception):
    """Something is wrong with a plugin or with how it is used."""


class HookFailed(PluginError):
    """A hook raised, or gave back what it may not. The error itself, if there is one, is the `__cause__`."""

    def __init__(self, plugin: str, hook: str, problem: str) -> None:
        super().__init__(plugin, hook, problem)
        self.plugin, self.hook, self.problem = plugin, hook, problem

    def __str__(self) -> str:
        return f"the plugin {self.plugin} failed in {self.hook}: {self.problem}"


def error_text(error: BaseException) -> str:
    """An error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
