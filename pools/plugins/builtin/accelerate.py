"""Plugin for Hugging Face Accelerate: FSDP, DeepSpeed and mixed precision."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Annotated, Any, Literal

from pools.plugins.base import Plugin
from pools.plugins.builtin.processes import rank_variables, set_variables
from pools.plugins.facts import Cluster, InstanceInfo
from pools.plugins.image import Image
from pools.plugins.parameters import Parameter

Scalar = str | int | float | bool
Settings = Annotated[dict[str, Scalar], Parameter("Settings, named as in Accelerate's config file")]
# Settings whose environment variable has a different name.
FSDP = {"TRANSFORMER_LAYER_CLS_TO_WRAP": "TRANSFORMER_CLS_TO_WRAP"}
DEEPSPEED = {
    "GRADIENT_ACCUMULATION_STEPS": "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
    "GRADIENT_CLIPPING": "ACCELERATE_GRADIENT_CLIPPING",
    "ZERO3_INIT_FLAG": "ACCELERATE_DEEPSPEED_ZERO3_INIT",
}


def accelerate(
    *,
    mixed_precision: Literal["no", "fp16", "bf16", "fp8"] = "no",
    fsdp: Annotated[bool | dict[str, Scalar], Parameter("true to use FSDP, or its settings")] = False,
    fsdp_config: Settings = {},  # noqa: B006 - never modified
    deepspeed: Annotated[bool | dict[str, Scalar], Parameter("true to use DeepSpeed, or settings")] = False,
    deepspeed_config: Settings = {},  # noqa: B006 - never modified
) -> Plugin:
    """Accelerate, set up in each worker process for `Accelerator()`.

    If listed after the torch plugin, Accelerate uses torch's process group.
    """
    fsdp_settings = _merge_settings(fsdp, fsdp_config)
    deepspeed_settings = _merge_settings(deepspeed, deepspeed_config)
    if fsdp_settings is not None and deepspeed_settings is not None:
        raise ValueError("deepspeed and fsdp are mutually exclusive. Use only one of them")

    def transform(image: Image, cluster: Cluster) -> Image:
        return image.with_pip("accelerate", *(("deepspeed",) if deepspeed_settings is not None else ()))

    def around_process(info: InstanceInfo) -> AbstractContextManager[None]:
        values: dict[str, str] = {"ACCELERATE_MIXED_PRECISION": mixed_precision}
        if info.world_size > 1 or fsdp_settings is not None or deepspeed_settings is not None:
            values |= rank_variables(info)
        if fsdp_settings is not None:
            values |= {"ACCELERATE_USE_FSDP": "true"} | _fsdp_variables(fsdp_settings)
        if deepspeed_settings is not None:
            values |= {"ACCELERATE_USE_DEEPSPEED": "true"} | _deepspeed_variables(deepspeed_settings)
        return set_variables(values)

    return Plugin.create("accelerate").with_transform(transform).with_around_process(around_process)


def _merge_settings(switch: bool | Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Merge `config` into the settings of `switch`, or return None if neither is set."""
    if switch is False and not config:
        return None
    return {**(switch if isinstance(switch, Mapping) else {}), **config}


def _fsdp_variables(settings: Mapping[str, Scalar]) -> dict[str, str]:
    names = {name: name.upper().removeprefix("FSDP_") for name in settings}
    return {
        f"FSDP_{FSDP.get(names[name], names[name])}": _format_scalar(value)
        for name, value in settings.items()
    }


def _deepspeed_variables(settings: Mapping[str, Scalar]) -> dict[str, str]:
    values = {}
    for name, value in settings.items():
        key = name.upper().removeprefix("DEEPSPEED_")
        values[DEEPSPEED.get(key, f"ACCELERATE_DEEPSPEED_{key}")] = _format_scalar(value)
    return values


def _format_scalar(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
