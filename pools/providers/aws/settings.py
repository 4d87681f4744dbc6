"""Validate a pool's EC2 settings."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from pools.providers.validation import parse_settings

OVERRIDES_MAX = 50  # maximum combinations of instance type and subnet per launch

Region = Annotated[str, StringConstraints(pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9]$")]
InstanceType = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*\.[a-z0-9-]+$")]
Subnet = Annotated[str, StringConstraints(pattern=r"^subnet-[0-9a-f]+$")]
Group = Annotated[str, StringConstraints(pattern=r"^sg-[0-9a-f]+$")]
Image = Annotated[str, StringConstraints(pattern=r"^ami-[0-9a-f]+$")]
Parameter = Annotated[str, StringConstraints(pattern=r"^/[A-Za-z0-9_./-]+$", max_length=1011)]
Purchase = Literal["on-demand", "spot"]
Profile = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9+=,.@_-]+$", max_length=128)]


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
    root_device: Annotated[str, StringConstraints(pattern=r"^/dev/[a-z0-9]+$")] = "/dev/xvda"

    @property
    def purchases(self) -> tuple[Purchase, ...]:
        """Purchase options in the order they are tried."""
        if self.purchase == "on_demand":
            return ("on-demand",)
        return ("spot",) if self.purchase == "spot" else ("spot", "on-demand")

    @model_validator(mode="after")
    def _check_image(self) -> "AwsSettings":
        if (self.image is None) == (self.image_parameter is None):
            raise PydanticCustomError(
                "one_image", "requires exactly one of image and image_parameter", {"allowed": "one of them"}
            )
        return self

    @model_validator(mode="after")
    def _check_override_count(self) -> "AwsSettings":
        if len(self.instance_types) * len(self.subnets) > OVERRIDES_MAX:
            allowed = f"at most {OVERRIDES_MAX} combinations of instance_types and subnets"
            raise PydanticCustomError("too_many_choices", "has too many combinations", {"allowed": allowed})
        return self


def aws_settings(value: Any) -> AwsSettings:
    """Return a pool's validated EC2 settings.

    Raises Invalid with the path of each problem within `provider_settings`.
    """
    return parse_settings(AwsSettings, value)
