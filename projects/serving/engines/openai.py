"""Client for inference engines with an OpenAI-compatible API."""

from http import HTTPStatus

from projects.serving.base import ErrorKind, Identity, ServingError
from projects.serving.http_client import HttpClient
from projects.serving.metrics import parse_metrics

HEALTH_SECONDS = 10.0


class OpenAIEngines:
    """Adapter for engines with an OpenAI-compatible API, such as vLLM.

    They cannot copy weights to each other.
    """

    kind = "openai"
    syncs_weights = False

    def __init__(self, http_client: HttpClient) -> None:
        self.http_client = http_client

    def check_health(self, engine: str) -> None:
        """Check the health endpoint, or the list of models if the server has no health endpoint."""
        response = self.http_client.get(engine, "/health", seconds=HEALTH_SECONDS)
        if response.status == HTTPStatus.NOT_FOUND:
            response = self.http_client.get(engine, "/v1/models", seconds=HEALTH_SECONDS)
        response.raise_for_status()

    def identity(self, engine: str) -> Identity:
        model_list = self.http_client.get(engine, "/v1/models").raise_for_status().json().get("data")
        first_model = model_list[0] if isinstance(model_list, list) and model_list else None
        model = first_model.get("id") if isinstance(first_model, dict) else None
        if not isinstance(model, str) or not model:
            raise ServingError(ErrorKind.UNREADABLE, engine, "the engine reports no model")
        max_length = first_model.get("max_model_len") if isinstance(first_model, dict) else None
        parameters = (("context_length", str(max_length)),) if isinstance(max_length, int) else ()
        return Identity(model, parameters=parameters)

    def metrics(self, engine: str) -> str:
        return self.http_client.get(engine, "/metrics").raise_for_status().text()

    def weight_version(self, engine: str) -> str | None:
        return None

    def copy_weights(self, seed: str, to: str, *, group: str, seconds: float) -> None:
        raise _unsupported_error(to, "copy weights")

    def set_weight_version(self, engine: str, version: str) -> None:
        raise _unsupported_error(engine, "set a weight version")

    def pause(self, engine: str) -> None:
        raise _unsupported_error(engine, "pause")

    def resume(self, engine: str) -> None:
        raise _unsupported_error(engine, "resume")

    def flush(self, engine: str) -> None:
        raise _unsupported_error(engine, "clear its cache")

    def unfinished_requests(self, engine: str) -> int | None:
        """Read the number of requests from the engine's metrics. Return None if the metric is missing."""
        try:
            metrics = parse_metrics(engine, self.metrics(engine))
        except ServingError as error:
            if error.kind is ErrorKind.REJECTED:
                return None
            raise
        return None if metrics.running is None else round(metrics.running + (metrics.queued or 0))

    def abort(self, engine: str) -> None:
        raise _unsupported_error(engine, "abort requests")


def _unsupported_error(engine: str, operation: str) -> ServingError:
    return ServingError(ErrorKind.UNSUPPORTED, engine, f"engines of this kind cannot {operation}")
