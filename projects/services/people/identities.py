"""Identify users who sign in through the organization's OpenID Connect provider.

A returning user is identified by the provider's subject, never by a username or email address. On the first
sign-in, an account without a password is linked if the provider has verified its email address.
"""

import re
from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from berth.core.errors import Forbidden
from projects.actor import Actor
from projects.models import Identity
from projects.services import audit

NAME = re.compile(r"[\w.@+-]{1,150}")
INACTIVE = "This account is deactivated. Ask a platform admin."
NO_ACCOUNT = "You do not have an account yet. Ask a platform admin to create one."
NAME_TAKEN = (
    "An account with the username {name} already exists. Berth links it to single sign-on only if it has no "
    "password, no other linked identity, and the email address that the provider has verified. "
    "Ask a platform admin to check the account's email address."
)
AMBIGUOUS = (
    "More than one account has the email address {mail}. "
    "Ask a platform admin to remove it from all of them but yours."
)
NO_USER_NAME = "The identity provider sent no usable username: {claim} is missing or has invalid characters."


def user_for_claims(claims: Mapping[str, Any], *, issuer: str, name_claim: str, may_create: bool) -> User:
    """Return the user for a verified ID token's claims.

    Raises Forbidden with a message that tells the user what to do.
    """
    subject = str(claims["sub"])
    identity = Identity.objects.select_related("user").filter(issuer=issuer, subject=subject).first()
    user = (
        identity.user
        if identity is not None
        else _link_or_create_account(claims, issuer, subject, name_claim, may_create)
    )
    if not user.is_active:
        raise Forbidden(INACTIVE)
    return user


def _link_or_create_account(
    claims: Mapping[str, Any], issuer: str, subject: str, name_claim: str, may_create: bool
) -> User:
    actor = Actor.system("single sign-on")
    try:
        with transaction.atomic():
            user = _linkable_account(_verified_email(claims)) or _create_user(
                actor, claims, name_claim, may_create
            )
            Identity.objects.create(user=user, issuer=issuer, subject=subject)
            audit.write_entry(actor, "identify", user, after={"issuer": issuer})
    except IntegrityError:
        # The user signed in twice at the same time, or another user has just claimed the username.
        stored = Identity.objects.select_related("user").filter(issuer=issuer, subject=subject).first()
        if stored is None:
            raise Forbidden(NAME_TAKEN.format(name=claims.get(name_claim))) from None
        return stored.user
    return user


def _linkable_account(mail: str) -> User | None:
    """Return the account with the email address, if it has neither a password nor an identity."""
    if not mail:
        return None
    rows = User.objects.select_for_update().filter(email__iexact=mail).order_by("pk")
    candidates = [
        user
        for user in rows
        if _is_same_address(user.email, mail) and not user.has_usable_password() and not _has_identity(user)
    ]
    if len(candidates) > 1:
        raise Forbidden(AMBIGUOUS.format(mail=mail))
    return candidates[0] if candidates else None


def _is_same_address(one: str, other: str) -> bool:
    """Return whether the email addresses are equal. Case is ignored only in ASCII addresses."""
    # Non-ASCII letters, such as the dotless i, must not equal ASCII letters.
    return one == other or (one.isascii() and other.isascii() and one.lower() == other.lower())


def _create_user(actor: Actor, claims: Mapping[str, Any], name_claim: str, may_create: bool) -> User:
    name = str(claims.get(name_claim) or "")
    if not NAME.fullmatch(name):
        raise Forbidden(NO_USER_NAME.format(claim=name_claim))
    if User.objects.filter(username__iexact=name).exists():
        raise Forbidden(NAME_TAKEN.format(name=name))
    if not may_create:
        raise Forbidden(NO_ACCOUNT)
    user = User(username=name, email=_verified_email(claims))
    user.set_unusable_password()
    user.save()
    audit.write_entry(actor, "create", user, after={"username": name, "email": user.email})
    return user


def _has_identity(user: User) -> bool:
    return Identity.objects.filter(user=user).exists()


def _verified_email(claims: Mapping[str, Any]) -> str:
    mail = str(claims.get("email") or "")
    return mail if claims.get("email_verified") is True and len(mail) <= 254 and "@" in mail else ""
