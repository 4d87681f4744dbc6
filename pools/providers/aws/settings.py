"""Validate a pool's EC2 settings."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from berth.core.errors import Invalid
from berth.core.problems import Problem
from pools.providers import formats
from pools.providers.validation import parse_settings

OVERRIDES_MAX = 50  # maximum combinations of instance type and subnet per launch

Region = Annotated[str, formats.AWS_REGION]
InstanceType = Annotated[str, formats.INSTANCE_TYPE]
Subnet = Annotated[str, formats.SUBNET]
Group = Annotated[str, formats.SECURITY_GROUP]
Image = Annotated[str, formats.IMAGE]
Parameter = Annotated[str, formats.SSM_PARAMETER]
Purchase = Literal["on-demand", "spot"]
Profile = Annotated[str, formats.INSTANCE_PROFILE]


class AwsSettings(BaseModel):
    """EC2 settings of a pool. `image_parameter` names an SSM parameter that contains the image's ID."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    region: Region = Field(description="AWS region of the nodes.", examples=["eu-central-1"])
    instance_types: Annotated[tuple[InstanceType, ...], Field(min_length=1, max_length=20, strict=False)] = (
        Field(description="Instance types in order of preference.", examples=["p4d.24xlarge"])
    )
    subnets: Annotated[tuple[Subnet, ...], Field(min_length=1, max_length=16, strict=False)] = Field(
        description="Subnets of the nodes. Several zones offer more capacity.", examples=["subnet-0a1b2c3d"]
    )
    image: Image | None = Field(
        None, description="Machine image. Specify an image or an image parameter.", examples=["ami-0a1b2c3d"]
    )
    image_parameter: Parameter | None = Field(
        None,
        description="SSM parameter that names the machine image. It is read at each launch.",
        examples=["/berth/node-image"],
    )
    instance_profile: Profile | None = Field(None, description="IAM instance profile of the nodes.")
    security_groups: Annotated[tuple[Group, ...], Field(max_length=5, strict=False)] = Field(
        (), description="Defaults to a group that admits only the pool's nodes.", examples=["sg-0a1b2c3d"]
    )
    purchase: Literal["on_demand", "spot", "spot_then_on_demand"] = Field(
        "on_demand", description="Spot instances are cheaper, but AWS may reclaim them."
    )
    spot_allocation: Literal["price-capacity-optimized", "capacity-optimized", "lowest-price"] = (
        "price-capacity-optimized"
    )
    on_demand_allocation: Literal["lowest-price", "prioritized"] = Field(
        "lowest-price", description="Prioritized uses the order of the instance types."
    )
    spot_price_max: Annotated[float, Field(gt=0, le=1000)] | None = Field(
        None,
        title="Maximum spot price",
        description="US dollars per instance-hour. Defaults to the on-demand price.",
    )
    volume_gib: Annotated[int, Field(ge=8, le=16384)] | None = Field(
        None, title="Root volume (GiB)", description="Defaults to the size in the machine image."
    )
    root_device: Annotated[str, formats.DEVICE] = "/dev/xvda"

    @property
    def purchases(self) -> tuple[Purchase, ...]:
        """Purchase options in the order they are tried."""
        if self.purchase == "on_demand":
            return ("on-demand",)
        return ("spot",) if self.purchase == "spot" else ("spot", "on-demand")

    @model_validator(mode="after")
    def _check_images(self) -> "AwsSettings":
        if self.image is not None and self.image_parameter is not None:
            context = {"at": "image", "allowed": "one of them"}
            raise PydanticCustomError("one_image", "cannot be combined with image_parameter", context)
        return self

    @model_validator(mode="after")
    def _check_override_count(self) -> "AwsSettings":
        if len(self.instance_types) * len(self.subnets) > OVERRIDES_MAX:
            allowed = f"at most {OVERRIDES_MAX} combinations of instance_types and subnets"
            context = {"at": "subnets", "allowed": allowed}
            raise PydanticCustomError("too_many_choices", "has too many combinations", context)
        return self


def aws_settings(value: Any) -> AwsSettings:
    """Return a pool's validated EC2 settings.

    Raises Invalid with the path of each problem within `provider_settings`.
    """
    problems: list[Problem] = []
    if isinstance(value, Mapping) and all(value.get(name) is None for name in ("image", "image_parameter")):
        message = "is required unless image_parameter is set"
        problems.append(Problem("provider_settings.image", message, "", formats.IMAGE.allowed))
    try:
        settings = parse_settings(AwsSettings, value)
    except Invalid as error:
        raise Invalid([*error.problems, *problems]) from None
    if problems:
        raise Invalid(problems)
    return settings
