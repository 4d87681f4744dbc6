"""Classify errors of the SDK and of EC2."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pools.providers.base import ProviderError, ProviderErrorKind

Kind = ProviderErrorKind

CODES: dict[Kind, frozenset[str]] = {
    Kind.CAPACITY: frozenset({
        "InsufficientCapacity", "InsufficientCapacityOnHost", "InsufficientFreeAddressesInSubnet",
        "InsufficientHostCapacity", "InsufficientInstanceCapacity", "InsufficientReservedInstanceCapacity",
        "SpotMaxPriceTooLow", "UnfulfillableCapacity", "Unsupported",
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
OF_THE_REQUEST = ("Invalid", "Malformed", "Missing")
# What to say of several refusals at once: what a person has to mend first.
LEADING = (Kind.CREDENTIALS, Kind.SETTINGS, Kind.QUOTA, Kind.THROTTLED, Kind.CAPACITY, Kind.BROKEN)


def kind_of(code: str) -> Kind:
    for kind, codes in CODES.items():
        if code in codes:
            return kind
    return Kind.SETTINGS if code.startswith(OF_THE_REQUEST) else Kind.BROKEN


@contextmanager
def told_apart() -> Iterator[None]:
    """Everything that the SDK raises inside becomes a ProviderError."""
    from botocore import exceptions as sdk

    try:
        yield
    except sdk.ClientError as error:
        told = error.response.get("Error", {})
        code = str(told.get("Code", ""))
        raise ProviderError(kind_of(code), f"{code}: {told.get('Message', '')}") from error
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


def first_of(codes: Iterable[tuple[str, str]]) -> tuple[Kind, str]:
    """Of (code, message) pairs, the kind that leads and every different one in words."""
    told = sorted(set(codes))
    kinds = {kind_of(code) for code, _ in told}
    kind = next((kind for kind in LEADING if kind in kinds), Kind.CAPACITY)
    return kind, "; ".join(f"{code}: {message}" for code, message in told)
