"""Plugin errors, which workers pickle and send to clients."""


class PluginError(Exception):
    """Raised if a plugin is faulty or used incorrectly."""


class HookFailed(PluginError):
    """Raised if a hook returned an invalid value or raised an error.

    `__cause__` is the error that the hook raised.
    """

    def __init__(self, plugin: str, hook: str, problem: str) -> None:
        super().__init__(plugin, hook, problem)
        self.plugin, self.hook, self.problem = plugin, hook, problem

    def __str__(self) -> str:
        return f"the plugin {self.plugin} failed in {self.hook}: {self.problem}"


def error_text(error: BaseException) -> str:
    """Return an error's type and message on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
