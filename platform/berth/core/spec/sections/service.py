"""The inference service section of a workload document."""

from typing import Annotated, Any, Literal

from pydantic import Field

from berth.core.spec.roles import Document
from berth.core.spec.values.texts import Name, Text

TimeoutSeconds = Annotated[float, Field(gt=0, le=7 * 86_400)]


class RouterSpec(Document):
    """Router that distributes requests to the inference engines.

    For a `static` router, Berth writes the engine addresses to a file.
    """

    kind: Literal["sglang", "static"]
    url: Annotated[Text, Field(min_length=1)] | None = None


class ServiceSpec(Document):
    """Inference service in a workload. The replicas of `role` are its engines."""

    model_name: Annotated[Text, Field(min_length=1, max_length=200)] = "default"
    engine: Literal["sglang", "openai"] = "sglang"
    role: Name | None = None
    router: RouterSpec | None = None
    weight_sync: bool = False
    weight_consistency: Literal["eventual", "strict"] = "eventual"
    scale_out_timeout: TimeoutSeconds = 1800.0
    scale_out_partial_success_policy: Literal["rollback_all", "keep_partial"] = "rollback_all"
    scale_in_drain_timeout: Annotated[float, Field(ge=0, le=86_400)] = 30.0
    scale_in_shutdown_timeout: Annotated[float, Field(ge=0, le=86_400)] = 20.0
    autoscaler: Annotated[dict[str, Any], Field(max_length=64)] | None = None
