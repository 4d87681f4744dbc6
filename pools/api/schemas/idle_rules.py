"""REST models for idle-GPU rules of pools and projects."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from berth.core.idle_rule import ACTIONS, read_rule
from berth.server.api.responses import ResponseModel

_DURATION = {"anyOf": [{"type": "integer"}, {"type": "string"}]}
# `normalize_rule` validates this value and names the invalid field, such as idle_rule.grace.
IdleRuleValues = Annotated[
    Any,
    Field(
        description="A workload is idle while the measured utilization of all of its GPUs is below `below` "
        "(percent, default 5). It is warned after `after` (1h) and, with the action `suspend`, suspended "
        "`grace` (30m) after the warning. The first `warmup` (10m) of each pod do not count. Durations are "
        "in seconds, or text such as 1h30m. Null for no rule. A project's rule replaces the pool's; its "
        "action `none` exempts the project. Only platform admins can set it for a project."
    ),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "null"},
                {
                    "type": "object",
                    "properties": {
                        "below": {
                            "anyOf": [{"type": "integer", "minimum": 1, "maximum": 100}, {"type": "string"}]
                        },
                        "after": _DURATION,
                        "action": {"enum": list(ACTIONS)},
                        "grace": _DURATION,
                        "warmup": _DURATION,
                    },
                    "additionalProperties": False,
                },
            ]
        }
    ),
]


class IdleRuleResponse(ResponseModel):
    """Rule for workloads with idle GPUs. Durations are in seconds."""

    below: int = Field(description="Utilization in percent below which a GPU is idle.")
    after: int = Field(description="Idle time before the warning.")
    action: Literal["warn", "suspend", "none"]
    grace: int = Field(description="Time from the warning to the suspension.")
    warmup: int = Field(description="Time after the start of each pod that does not count.")
    text: str = Field(description="The rule in the notation of the command line.")

    @classmethod
    def from_rule(cls, stored: Mapping[str, Any]) -> "IdleRuleResponse | None":
        rule = read_rule(stored)
        return None if rule is None else cls.from_row(rule)
