"""Engines with an OpenAI-compatible API."""

from http import HTTPStatus

from projects.serving.base import ErrorKind, Identity, ServingError
from projects.serving.metrics import reading
from projects.serving.wire import Wire

HEALTH_SECONDS = 10.0


class OpenAIEngines:
    """vLLM and other engines with this API. None of them copies weights between serving engines."""

    kind = "openai"
    syncs_weights = False

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    def health(self, engine: str) -> None:
        """Check health, with the list of models for servers without a health endpoint."""
        answer = self.wire.get(engine, "/health", seconds=HEALTH_SECONDS)
        if answer.status == HTTPStatus.NOT_FOUND:
            answer = self.wire.get(engine, "/v1/models", seconds=HEALTH_SECONDS)
        answer.or_refused()

    def identity(self, engine: str) -> Identity:
        listed = self.wire.get(engine, "/v1/models").or_refused().json().get("data")
        first = listed[0] if isinstance(listed, list) and listed else None
        model = first.get("id") if isinstance(first, dict) else None
        if not isinstance(model, str) or not model:
            raise ServingError(ErrorKind.UNREADABLE, engine, "it reports no model")
        length = first.get("max_model_len") if isinstance(first, dict) else None
        parameters = (("context_length", str(length)),) if isinstance(length, int) else ()
        return Identity(model, parameters=parameters)

    def metrics(self, engine: str) -> str:
        return self.wire.get(engine, "/metrics").or_refused().text()

    def weight_version(self, engine: str) -> str | None:
        return None

    def copy_weights(self, seed: str, to: str, *, group: str, seconds: float) -> None:
        raise _unsupported(to, "copy weights")

    def set_weight_version(self, engine: str, version: str) -> None:
        raise _unsupported(engine, "set a weight version")

    def pause(self, engine: str) -> None:
        raise _unsupported(engine, "pause")

    def resume(self, engine: str) -> None:
        raise _unsupported(engine, "pause")

    def flush(self, engine: str) -> None:
        raise _unsupported(engine, "flush its cache")

    def running_requests(self, engine: str) -> int | None:
        """Read the number from the metrics, if available."""
        try:
            metrics = reading(engine, self.metrics(engine))
        except ServingError as error:
            if error.kind is ErrorKind.REFUSED:
                return None
            raise
        return None if metrics.running is None else round(metrics.running + (metrics.queued or 0))

    def abort(self, engine: str) -> None:
        raise _unsupported(engine, "abort requests")


def _unsupported(engine: str, what: str) -> ServingError:
    return ServingError(ErrorKind.UNSUPPORTED, engine, f"engines of this kind cannot {what}")
