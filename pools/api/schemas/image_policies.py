"""REST models for pool image policies."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from berth.server.api.responses import ResponseModel
from pools.engine.image_policy import MODES, PATTERN_MAX, PATTERNS_MAX, read_policy

# The policy rules validate this value and name the invalid field, such as image_policy.patterns[0].
ImagePolicyValues = Annotated[
    Any,
    Field(
        description="Container images of workloads in this pool. Mode `allow` (default): workloads with and "
        "without an image; `require`: only workloads with an image; `forbid`: only workloads without. With "
        "patterns, an image must match one of them: `ghcr.io/org/*`, or `ghcr.io/org/train:v*` with a tag."
    ),
    WithJsonSchema(
        {
            "type": "object",
            "properties": {
                "mode": {"enum": list(MODES)},
                "patterns": {
                    "type": "array", "maxItems": PATTERNS_MAX,
                    "items": {"type": "string", "minLength": 1, "maxLength": PATTERN_MAX},
                },
            },
            "additionalProperties": False,
        }
    ),
]  # fmt: skip


class ImagePolicyResponse(ResponseModel):
    mode: Literal["allow", "require", "forbid"]
    patterns: list[str] = Field(description="Patterns of accepted images; empty: all.")

    @classmethod
    def from_policy(cls, stored: Mapping[str, Any]) -> "ImagePolicyResponse":
        policy = read_policy(stored)
        return cls.model_validate({"mode": policy.mode, "patterns": list(policy.patterns)})
