"""Connect Slurm pools to slurmrestd with the tokens stored in pool rows."""

from typing import Any

from berth.core.errors import Invalid
from berth.core.problems import Problem
from pools.joining.sealed import UnsealError, seal, unseal
from pools.models import NodePool
from pools.providers.base import ProviderError, ProviderErrorKind
from pools.providers.slurm.rest.connection import Server
from pools.providers.slurm.rest.token import ALLOWED, parse_token
from pools.providers.slurm.settings import slurm_settings

SLURM = NodePool.Provider.SLURM.value
PATH = "slurm_token"


def set_slurm_token(pool: NodePool, text: str | None) -> None:
    """Set the pool's token without saving the pool. Raises Invalid if the token cannot be used."""
    token = parse_token(text) if text else ""
    if token is None:
        raise Invalid([Problem(PATH, "is not a valid Slurm token", "", ALLOWED)])
    if token and pool.provider != SLURM:
        raise Invalid(
            [Problem(PATH, f"is not used by the provider {pool.provider}", "", "the provider slurm")]
        )
    pool.slurm_token_sealed = seal(token) if token else ""


def token_endpoint(pool: NodePool) -> tuple[Any, Any]:
    """Return the URL that the pool's token is sent to, and the token's user."""
    return pool.provider_settings.get("rest_url"), pool.provider_settings.get("rest_user")


def drop_token_if_endpoint_changed(pool: NodePool, endpoint: tuple[Any, Any]) -> None:
    """Remove the token from the edited pool if its URL or user has changed.

    The pool is not saved. If the token stayed, anyone who may edit the pool could send the token to their own
    server.
    """
    if pool.provider != SLURM or not endpoint[0] or token_endpoint(pool) != endpoint:
        pool.slurm_token_sealed = ""


def check_slurm_token(pool: NodePool) -> None:
    """Raise Invalid if a pool uses slurmrestd without a token, or has a token but does not use slurmrestd."""
    if pool.provider != SLURM:
        return
    uses_rest = slurm_settings(pool.provider_settings).rest_url is not None
    if uses_rest and not pool.slurm_token_sealed:
        message = "is required with provider_settings.rest_url, and again when the address or user changes"
        raise Invalid([Problem(PATH, message, "", ALLOWED)])
    if pool.slurm_token_sealed and not uses_rest:
        message = "has no effect without provider_settings.rest_url"
        raise Invalid([Problem(PATH, message, "", "nothing")])


def read_slurm_token(pool: NodePool) -> str:
    """Return the pool's token. Raises ProviderError if it cannot be decrypted."""
    try:
        return unseal(pool.slurm_token_sealed)
    except UnsealError as error:
        message = f"the Slurm token cannot be used: {error}"
        raise ProviderError(ProviderErrorKind.CREDENTIALS, message) from None


def slurm_server(pool: NodePool) -> Server:
    """Return the URL and credentials of the pool's slurmrestd. Raises ProviderError."""
    values = slurm_settings(pool.provider_settings)
    return Server(values.rest_url or "", values.rest_user or "", read_slurm_token(pool), values.rest_ca or "")
