"""Grant and revoke roles, and create users."""

from typing import Any

from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Q

from berth.core.errors import Conflict, Invalid, NotFound
from berth.core.problems import Problem, format_value
from berth.db.writes.references import check_foreign_keys
from projects.access import Action, require
from projects.actor import Actor
from projects.models import Department, Membership, Project, Role
from projects.models.tenants import Tenant
from projects.services import announce, audit

DEPARTMENT_ROLES = (Role.DEPARTMENT_ADMIN, Role.VIEWER)
PROJECT_ROLES = (Role.PROJECT_ADMIN, Role.MEMBER, Role.VIEWER)


def grant(*, actor: Actor, user: User, role: str, scope: Tenant | None) -> Membership:
    """Grant the user a role in the scope, replacing any other role.

    Raises Forbidden, Invalid if the role does not exist in the scope, and NotFound if the user or scope was
    deleted.
    """
    _check_role(role, scope)
    require(actor, Action.ADMINISTER if scope is None else Action.GRANT, scope)
    place: dict[str, Any] = {
        "department": scope if isinstance(scope, Department) else None,
        "project": scope if isinstance(scope, Project) else None,
    }
    with check_foreign_keys(str(scope or user)):
        if not User.objects.select_for_update().filter(pk=user.pk).exists():
            raise NotFound(f"{user} has been deleted.")
        stored = Membership.objects.filter(user=user, **place).first()
        before = {"role": stored.role} if stored else None
        if stored is not None and stored.role == role:
            return stored
        membership = stored or Membership(user=user, **place)
        membership.role = role
        membership.save()
        audit.write_entry(
            actor, "grant", membership, before=before, after={"user": user.username, "role": role}, **place
        )
        announce.tenants_changed(**_scope_ids(membership))
    return membership


def revoke(*, actor: Actor, membership: Membership) -> None:
    """Revoke a role. Raises Forbidden, or Conflict for the role of the last active platform admin."""
    scope = membership.project or membership.department
    require(actor, Action.ADMINISTER if scope is None else Action.GRANT, scope)
    with transaction.atomic():
        if scope is None and not membership.user.is_superuser:
            check_not_last_admin(membership.user)
        audit.write_entry(
            actor,
            "revoke",
            membership,
            before={"user": membership.user.username, "role": membership.role},
            project=membership.project,
            department=membership.department,
        )
        announce.tenants_changed(**_scope_ids(membership))
        membership.delete()


def check_not_last_admin(user: User) -> None:
    """Raise Conflict if the user is the last active platform admin.

    All platform admins stay locked until the transaction ends.
    """
    is_admin = Q(is_superuser=True) | Q(
        pk__in=Membership.objects.filter(role=Role.PLATFORM_ADMIN).values("user")
    )
    admins = User.objects.filter(is_admin, is_active=True).order_by("pk").values_list("pk", flat=True)
    list(admins.select_for_update())
    # The statement that waited for the locks may have returned outdated rows, so the rows are read again.
    if list(admins) == [user.pk]:
        raise Conflict(f"{user} is the last active platform admin. Make another user a platform admin first.")


def create_user(*, actor: Actor, username: str, email: str = "", password: str | None = None) -> User:
    """Create a user.

    Without a password, the user cannot sign in until one is set. Raises Invalid for invalid values, or
    Conflict if the name is in use.
    """
    require(actor, Action.ADMINISTER)
    user = User(username=username, email=email)
    try:
        user.set_unusable_password()
        user.full_clean()
        if password is not None:
            validate_password(password, user)
            user.set_password(password)
    except ValidationError as error:
        raise Invalid(_user_problems(error, username, email)) from None
    try:
        with transaction.atomic():
            user.save()
            audit.write_entry(actor, "create", user, after={"username": username, "email": email})
    except IntegrityError:
        raise Conflict(
            f"A user named {format_value(username)} already exists. Choose another name."
        ) from None
    return user


def _check_role(role: str, scope: Tenant | None) -> None:
    if scope is None:
        allowed: tuple[str, ...] = (Role.PLATFORM_ADMIN,)
    else:
        allowed = DEPARTMENT_ROLES if isinstance(scope, Department) else PROJECT_ROLES
    if role not in allowed:
        where = "the platform" if scope is None else f"a {scope._meta.verbose_name}"
        raise Invalid(
            [Problem("role", f"is not a valid role in {where}", format_value(role), ", ".join(allowed))]
        )


def _scope_ids(membership: Membership) -> dict[str, int | None]:
    if membership.project is not None:
        return {"department_id": membership.project.department_id, "project_id": membership.project_id}
    return {"department_id": membership.department_id}


def _user_problems(error: ValidationError, username: str, email: str) -> list[Problem]:
    values = {"username": username, "email": email}
    if not hasattr(error, "error_dict"):
        return [Problem("password", message) for message in error.messages]
    return [
        Problem("" if field == "__all__" else field, message, format_value(values.get(field, "")))
        for field, messages in sorted(error.message_dict.items())
        for message in messages
    ]
