"""Text formats in provider settings: patterns, and words that describe them to users."""

from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, ValidationError, ValidatorFunctionWrapHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema


@dataclass(frozen=True, slots=True)
class TextFormat:
    """Text format, used as metadata of an annotated type.

    `noun` names the format, and `allowed` describes valid values.
    """

    pattern: str
    noun: str
    allowed: str
    max_length: int | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = core_schema.str_schema(pattern=self.pattern, max_length=self.max_length)
        return core_schema.no_info_wrap_validator_function(self._validate, schema)

    def _validate(self, value: Any, validate: ValidatorFunctionWrapHandler) -> str:
        """Replace the error about a mismatched pattern with one that says what to enter."""
        try:
            return str(validate(value))
        except ValidationError as error:
            if any(details["type"] == "string_pattern_mismatch" for details in error.errors()):
                context = {"noun": self.noun, "allowed": self.allowed}
                raise PydanticCustomError("format", "is not a valid {noun}", context) from None
            raise


AWS_REGION = TextFormat(r"^[a-z]{2}(-[a-z]+)+-[0-9]$", "region", "a region such as eu-central-1")
INSTANCE_TYPE = TextFormat(
    r"^[a-z][a-z0-9-]*\.[a-z0-9-]+$", "instance type", "an instance type such as p4d.24xlarge"
)
SUBNET = TextFormat(r"^subnet-[0-9a-f]+$", "subnet ID", "a subnet ID such as subnet-0a1b2c3d")
SECURITY_GROUP = TextFormat(r"^sg-[0-9a-f]+$", "security group ID", "a security group ID such as sg-0a1b2c3d")
IMAGE = TextFormat(r"^ami-[0-9a-f]+$", "image ID", "an image ID such as ami-0a1b2c3d")
SSM_PARAMETER = TextFormat(
    r"^/[A-Za-z0-9_./-]+$", "parameter name", "a parameter name such as /berth/node-image", 1011
)
INSTANCE_PROFILE = TextFormat(
    r"^[A-Za-z0-9+=,.@_-]+$", "profile name", "a profile name such as berth-node, not an ARN", 128
)
DEVICE = TextFormat(r"^/dev/[a-z0-9]+$", "device", "a device such as /dev/xvda")
MOUNT_PATH = TextFormat(
    r"^/[A-Za-z0-9_./-]+$", "absolute path", "an absolute path such as /srv/berth, without spaces", 512
)
NFS_SERVER = TextFormat(
    r"^[A-Za-z0-9.:-]+$", "server", "a host name or IP address such as files.example.org", 253
)
KUBERNETES_NAME = TextFormat(
    r"^([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$",
    "Kubernetes name",
    "a Kubernetes name such as gpu or nvidia.com/gpu",
    317,
)
KUBERNETES_VALUE = TextFormat(
    r"^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$",
    "label value",
    "a label value such as a100, of letters, digits, dots, hyphens and underscores",
    63,
)
ADDRESS = TextFormat(
    r"^[A-Za-z0-9:]([A-Za-z0-9._:-]*[A-Za-z0-9])?$",
    "address",
    "a host name or IP address such as gpu-1.example.org, without a port",
    253,
)
USER = TextFormat(r"^[A-Za-z_][A-Za-z0-9_.-]*$", "user name", "a user name such as berth", 64)
SLURM_NAME = TextFormat(r"^[A-Za-z0-9_][A-Za-z0-9_.,@-]*$", "name in Slurm", "a name such as gpu_long", 200)
SLURM_CONSTRAINT = TextFormat(
    r"^[A-Za-z0-9_.,:&|*!()\[\]-]+$", "constraint", "a constraint such as a100&ib, without spaces", 300
)
GRES = TextFormat(
    r"^[a-z][a-z0-9_]*(:[0-9_.-]*[A-Za-z][A-Za-z0-9_.-]*)?$",
    "GPU resource",
    "a resource such as gpu or gpu:a100, without a count",
    100,
)
SHARED_DIRECTORY = TextFormat(
    r"^(~|/[A-Za-z0-9_.@+-]+)(/[A-Za-z0-9_.@+-]+)*$",
    "directory",
    "a directory such as /shared/berth or ~/.berth, without spaces",
)
PROGRAM_DIRECTORY = TextFormat(
    r"^/[A-Za-z0-9_./@+-]*$", "absolute path", "an absolute path such as /opt/slurm/bin, without spaces", 500
)
SBATCH_OPTION = TextFormat(
    r"^--[a-z][a-z-]+(=[^\x00-\x1f\x7f]*)?$", "option", "an option such as --reservation=gpu-week", 300
)
SHELL_LINE = TextFormat(
    r"^[^\x00-\x08\x0a-\x1f\x7f]+$", "command", "a command on one line, without control characters", 1000
)
