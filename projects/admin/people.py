"""Admin pages for users, roles and tokens."""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin import ModelAdmin as DjangoModelAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from unfold.contrib.filters.admin import ChoicesDropdownFilter, RelatedDropdownFilter
from unfold.decorators import display
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from berth.core.wording.words import token_to_words
from berth.server.web.admin_site.base import PlatformModelAdmin, ReadOnlyModelAdmin, actor, bulk_action
from berth.server.web.admin_site.columns import format_age
from berth.server.web.admin_site.time_filter import TimeRangeFilter
from berth.server.web.numbers import NO_VALUE
from projects.actor import Actor
from projects.models import (
    ApiToken,
    Membership,
    Role,
)
from projects.services import audit
from projects.services.people import accounts, members, passwords, tokens


@admin.register(Membership)
class MembershipAdmin(PlatformModelAdmin):
    list_display = ("user", "role", "department", "project", "created_at")
    columns = ("user", "role", "department", "project", "created_at")
    list_filter = (("role", ChoicesDropdownFilter), ("department", RelatedDropdownFilter))
    list_select_related = ("user", "department", "project")
    search_fields = ("user__username", "project__name", "department__name")
    search_help_text = "User, project or department"
    page_in_berth = "access"

    def get_readonly_fields(self, request: HttpRequest, obj: Membership | None = None) -> tuple[str, ...]:
        return ("user", "department", "project") if obj else ()

    def save_model(
        self, request: HttpRequest, obj: Membership, form: "forms.ModelForm[Membership]", change: bool
    ) -> None:
        scope = obj.project or obj.department
        obj.pk = members.grant(actor=actor(request), user=obj.user, role=obj.role, scope=scope).pk

    def delete_model(self, request: HttpRequest, obj: Membership) -> None:
        members.revoke(actor=actor(request), membership=obj)


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnlyModelAdmin):
    list_display = (
        "user",
        "name",
        "prefix",
        "granted_scopes",
        "created_at",
        "expires_at",
        "last_used_at",
        "revoked_at",
    )
    list_filter = (("created_at", TimeRangeFilter),)
    list_select_related = ("user",)
    search_fields = ("user__username", "name", "prefix")
    search_help_text = "User, name or prefix"
    page_in_berth = "access"
    fields = (
        "user", "name", "prefix", "granted_scopes", "created_at", "expires_at", "last_used_at", "revoked_at",
    )  # fmt: skip
    readonly_fields = ("granted_scopes",)
    actions = ("revoke", "download")
    columns = ("id", "name", "prefix", "created_at", "expires_at", "last_used_at", "revoked_at")

    @display(description="Scopes")
    def granted_scopes(self, row: ApiToken) -> str:
        return ", ".join(row.scopes)

    revoke = bulk_action("Revoke", "revoked", lambda actor, row: tokens.revoke(actor=actor, token=row))


admin.site.unregister(User)
admin.site.unregister(Group)  # Berth stores roles as memberships, not as Django groups


@admin.register(User)
class AuditedUserAdmin(DjangoUserAdmin, PlatformModelAdmin):  # type: ignore[misc, type-arg]
    """Django's user admin, extended with an audit entry for each change."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = ("username", "email", "roles", "is_active", "is_staff", "is_superuser", "last_sign_in")
    columns = (
        "username", "email", "first_name", "last_name", "is_active", "is_staff", "is_superuser", "last_login",
        "date_joined",
    )  # fmt: skip
    search_help_text = "Username, name or email"
    page_in_berth = "access"
    list_filter = ("is_active", "is_staff", "is_superuser")
    fieldsets = (
        ("Account", {"fields": ("username", "password_link")}),
        ("Person", {"fields": ("first_name", "last_name", "email")}),
        ("Permissions", {"fields": ("is_active", "is_staff", "is_superuser")}),
        ("Times", {"fields": ("last_login", "date_joined")}),
    )
    filter_horizontal = ()
    readonly_fields = ("password_link", "last_login", "date_joined")

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        users: QuerySet[User] = super().get_queryset(request)
        return users.prefetch_related("memberships__department", "memberships__project")

    def view_on_site(self, user: User) -> str:
        return reverse("user", args=[user.pk])

    @display(description="Roles")
    def roles(self, user: User) -> str:
        return ", ".join(_role_title(row) for row in user.memberships.all()) or NO_VALUE

    @display(description="Last sign-in", ordering="last_login")
    def last_sign_in(self, user: User) -> str:
        return (
            format_age(user.last_login)
            if user.last_login
            else format_html('<span class="faint">{}</span>', "never")
        )

    @display(description="Password")
    def password_link(self, user: User) -> str:
        address = reverse("admin:auth_user_password_change", args=[user.pk])
        return format_html('<a href="{}">Change password</a>', address)

    def save_model(
        self, request: HttpRequest, obj: User, form: "forms.ModelForm[User]", change: bool
    ) -> None:
        before: dict[str, Any] = {**(User.objects.filter(pk=obj.pk).values().first() or {})}
        is_active = obj.is_active
        if change:
            _reject_admin_lockout(actor(request), before, obj)
            obj.is_active = before["is_active"]
        super().save_model(request, obj, form, change)
        audited_fields = [name for name in form.changed_data if "password" not in name]
        if change and "is_active" in audited_fields:
            audited_fields.remove("is_active")
            set_active = accounts.activate if is_active else accounts.deactivate
            set_active(actor=actor(request), user=obj)
            obj.is_active = is_active
        if audited_fields or not change:
            audit.write_entry(
                actor(request),
                "edit" if change else "create",
                obj,
                before={name: before.get(name) for name in audited_fields} if change else None,
                after={name: form.cleaned_data.get(name) for name in audited_fields},
            )

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """List related objects as well, because Django itself deletes users instead of calling a service."""
        return DjangoModelAdmin.get_deleted_objects(self, objs, request)

    def delete_model(self, request: HttpRequest, obj: User) -> None:
        accounts.check_removable(actor=actor(request), user=obj, action="delete")
        audit.write_entry(
            actor(request), "delete", obj, before={"username": obj.username, "email": obj.email}
        )
        super().delete_model(request, obj)

    def log_change(self, request: HttpRequest, obj: User, message: Any) -> Any:
        if "password" in str(message).lower():
            passwords.record_admin_password_change(actor=actor(request), user=obj)
        return super().log_change(request, obj, message)


def _role_title(membership: Membership) -> str:
    """Return the role with its department or project, such as "member of vision"."""
    scope = membership.project or membership.department
    role = token_to_words(membership.role).lower()
    return f"{role} of {scope}" if scope else role


def _reject_admin_lockout(acting: Actor, before: Mapping[str, Any], user: User) -> None:
    """Raise Conflict if the change would lock out the acting user or the last platform admin."""
    if before["is_active"] and not user.is_active:
        accounts.check_removable(actor=acting, user=user, action="deactivate")
    has_role = Membership.objects.filter(user=user, role=Role.PLATFORM_ADMIN).exists()
    if before["is_superuser"] and not user.is_superuser and not has_role:
        members.check_not_last_admin(user)
