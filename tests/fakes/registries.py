"""A fake resolver for the tags of container images."""

from collections.abc import Collection, Mapping

from berth.core.values.images import ImageReference
from scheduler.registries.base import RegistryError, Resolution, RunKey


class FakeResolver:
    """Looks up image tags in `digests`. A lookup of any other tag stays unanswered."""

    def __init__(self) -> None:
        self.digests: dict[str, str | RegistryError] = {}
        self.requests: list[tuple[str, str]] = []
        self._pending: dict[RunKey, str] = {}

    def request(self, key: RunKey, image: ImageReference, auth: str) -> None:
        if key not in self._pending:
            self._pending[key] = str(image)
            self.requests.append((str(image), auth))

    def take_results(self, keys: Collection[RunKey]) -> Mapping[RunKey, Resolution]:
        answered = {key: self.digests[image] for key, image in self._pending.items() if image in self.digests}
        for key in answered:
            del self._pending[key]
        return {
            key: Resolution(error=answer) if isinstance(answer, RegistryError) else Resolution(answer)
            for key, answer in answered.items()
            if key in keys
        }

    def wake_fds(self) -> tuple[int, ...]:
        return ()

    def clear_wakeups(self) -> None:
        pass
