"""Classify errors from the AWS SDK and EC2."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pools.providers.base import ProviderError, ProviderErrorKind

Kind = ProviderErrorKind

CODES: dict[Kind, frozenset[str]] = {
    Kind.CAPACITY: frozenset({
        "InsufficientCapacity", "InsufficientCapacityOnHost", "InsufficientFreeAddressesInSubnet",
        "InsufficientHostCapacity", "InsufficientInstanceCapacity", "InsufficientReservedInstanceCapacity",
        "SpotMaxPriceTooLow", "UnfulfillableCapacity", "ImagesUnsupported",
    }),
    Kind.QUOTA: frozenset({
        "AddressLimitExceeded", "FleetLimitExceeded", "InstanceLimitExceeded", "MaxIOPSLimitExceeded",
        "MaxSpotFleetRequestCountExceeded", "MaxSpotInstanceCountExceeded",
        "NetworkInterfaceLimitExceeded", "SecurityGroupLimitExceeded", "VcpuLimitExceeded",
        "VolumeLimitExceeded",
    }),
    Kind.CREDENTIALS: frozenset({
        "AccessDenied", "AccessDeniedException", "AuthFailure",
        "AuthFailure.ServiceLinkedRoleCreationNotPermitted", "Blocked", "ExpiredToken",
        "ExpiredTokenException", "IncompleteSignature", "InvalidClientTokenId",
        "MissingAuthenticationToken", "OptInRequired", "PendingVerification", "RequestExpired",
        "SignatureDoesNotMatch", "UnauthorizedOperation", "UnrecognizedClientException",
    }),
    Kind.THROTTLED: frozenset({
        "BandwidthLimitExceeded", "EC2ThrottledException", "RequestLimitExceeded", "RequestThrottled",
        "RequestThrottledException", "SlowDown", "Throttling", "ThrottlingException",
        "TooManyRequestsException",
    }),
    Kind.SETTINGS: frozenset({
        "ParameterNotFound", "UnknownParameter", "ValidationError", "ValidationException",
    }),
}  # fmt: skip
REQUEST_ERROR_PREFIXES = ("Invalid", "Malformed", "Missing")
# If several errors occur, the kind listed first is reported, because users must fix it first.
PRECEDENCE = (Kind.CREDENTIALS, Kind.SETTINGS, Kind.QUOTA, Kind.THROTTLED, Kind.CAPACITY, Kind.BROKEN)


def classify_error(code: str) -> Kind:
    for kind, codes in CODES.items():
        if code in codes:
            return kind
    return Kind.SETTINGS if code.startswith(REQUEST_ERROR_PREFIXES) else Kind.BROKEN


@contextmanager
def translate_sdk_errors() -> Iterator[None]:
    """Convert the AWS SDK's errors inside the block to ProviderError."""
    from botocore import exceptions as sdk

    try:
        yield
    except sdk.ClientError as error:
        details = error.response.get("Error", {})
        code = str(details.get("Code", ""))
        raise ProviderError(classify_error(code), f"{code}: {details.get('Message', '')}") from error
    except (
        sdk.NoCredentialsError, sdk.PartialCredentialsError, sdk.CredentialRetrievalError,
        sdk.TokenRetrievalError, sdk.UnauthorizedSSOTokenError, sdk.ProfileNotFound, sdk.NoAuthTokenError,
    ) as error:  # fmt: skip
        raise ProviderError(Kind.CREDENTIALS, str(error)) from error
    except (sdk.ParamValidationError, sdk.InvalidRegionError, sdk.NoRegionError) as error:
        raise ProviderError(Kind.SETTINGS, str(error)) from error
    except (sdk.HTTPClientError, sdk.ConnectionError) as error:
        raise ProviderError(Kind.TIMEOUT, str(error)) from error
    except sdk.BotoCoreError as error:
        raise ProviderError(Kind.BROKEN, str(error)) from error


def summarize_errors(codes: Iterable[tuple[str, str]]) -> tuple[Kind, str]:
    """Return the error kind that takes precedence, and the text of all errors.

    `codes` contains (code, message) tuples.
    """
    distinct = sorted(set(codes))
    kinds = {classify_error(code) for code, _ in distinct}
    kind = next((kind for kind in PRECEDENCE if kind in kinds), Kind.CAPACITY)
    return kind, "; ".join(f"{code}: {message}" for code, message in distinct)
