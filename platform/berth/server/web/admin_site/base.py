"""Shared parts of the admin site: permissions, read-only models and CSV export."""

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from django.contrib import messages
from django.contrib.admin import AdminSite
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin
from unfold.decorators import action

from berth.core.errors import BerthError
from berth.server.api.transport.streaming import csv_response
from berth.server.web.admin_site.columns import column_name, format_columns
from berth.server.web.admin_site.labels import label_fields
from berth.server.web.numbers import NO_VALUE

if TYPE_CHECKING:
    from berth.server.web.pages import Request


class PlatformModelAdmin(ModelAdmin):
    """Base class of model admins, which only platform admins can use.

    Service errors appear as messages. Lists can be downloaded as CSV.
    """

    list_per_page = 50
    list_filter_submit = True
    compressed_fields = True
    empty_value_display = NO_VALUE
    page_in_berth = ""  # URL name of the application's page for these objects
    columns: Sequence[str] = ()  # exported columns
    empty_hint = ""  # text below the title of an empty list

    def __init__(self, model: type[Any], admin_site: AdminSite) -> None:
        label_fields(model)
        super().__init__(model, admin_site)

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        return format_columns(self.model, super().get_list_display(request))

    def get_list_display_links(self, request: HttpRequest, list_display: Sequence[Any]) -> list[Any]:
        linked = self.list_display_links or (column_name(list_display[0]),)
        return [column for column in list_display if column_name(column) in linked]

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.download_all)
        name = f"{self.opts.app_label}_{self.opts.model_name}_download"
        return [path("download/", view, name=name), *super().get_urls()]

    def row_class(self, row: Any) -> str:
        """Return the CSS class of a row in the list, or ""."""
        return ""

    def download_all(self, request: HttpRequest) -> HttpResponseBase:
        """Download all rows that match the search and filters in the URL."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        try:
            rows = self.get_changelist_instance(request).queryset
        except IncorrectLookupParameters:
            return redirect(reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist"))
        response: HttpResponseBase = self.download(request, rows)
        return response

    @action(description="Download CSV")
    def download(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponseBase:
        return as_csv(request, queryset, self.columns, str(self.opts.verbose_name_plural).replace(" ", "-"))

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], **kwargs: Any
    ) -> HttpResponseBase:
        return super().render_change_form(request, context | {"show_save_and_add_another": False}, **kwargs)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return is_platform_admin(request)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return is_platform_admin(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return is_platform_admin(request)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return is_platform_admin(request)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return is_platform_admin(request)

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        return self._show_errors(
            request, lambda: super(PlatformModelAdmin, self).changeform_view(request, *args, **kwargs)
        )

    def delete_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        return self._show_errors(
            request, lambda: super(PlatformModelAdmin, self).delete_view(request, *args, **kwargs)
        )

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        return self._show_errors(
            request, lambda: super(PlatformModelAdmin, self).changelist_view(request, *args, **kwargs)
        )

    def _show_errors(self, request: HttpRequest, render: Callable[[], HttpResponseBase]) -> HttpResponseBase:
        try:
            return render()
        except BerthError as error:
            messages.error(request, error.detail)
            return redirect(request.get_full_path())

    def get_deleted_objects(
        self, objs: Any, request: HttpRequest
    ) -> tuple[list[Any], dict[str, int], set[str], list[Any]]:
        """Return only the selected objects. The service that deletes them also handles related objects."""
        return [str(each) for each in objs], {}, set(), []

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        with transaction.atomic():
            for row in queryset:
                try:
                    self.delete_model(request, row)
                except BerthError as error:
                    error.detail = f"{row}: {error.detail}"  # name the row, because several may be selected
                    raise


class ReadOnlyModelAdmin(PlatformModelAdmin):
    """Read-only model admin for rows that only Berth writes, with search and export."""

    actions: tuple[str, ...] = ("download",)
    selection_hint = "Select rows to download only these as CSV."

    def __init__(self, model: type[Any], admin_site: AdminSite) -> None:
        super().__init__(model, admin_site)
        if not self.columns:
            self.columns = [field.attname for field in model._meta.concrete_fields]

    def get_fields(self, request: HttpRequest, obj: Model | None = None) -> Sequence[Any]:
        """Return all fields, including those that forms leave out because they cannot be edited."""
        if self.fields:
            return self.fields
        hidden = (*(self.exclude or ()), self.opts.pk.name)
        names = [field.name for field in self.opts.fields if field.name not in hidden]
        return [*names, *(name for name in self.readonly_fields if name not in names)]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


def is_platform_admin(request: HttpRequest) -> bool:
    if not request.user.is_authenticated:
        return False
    try:
        cast("Request", request).require("administer")
    except BerthError:
        return False
    return True


def actor(request: HttpRequest) -> Any:
    return cast("Request", request).actor


def as_csv(
    request: HttpRequest, rows: QuerySet[Any], columns: Sequence[str], name: str
) -> StreamingHttpResponse:
    """Stream rows as a CSV file. Put an apostrophe before cells that a spreadsheet would evaluate."""
    lines = ([getattr(row, column) for column in columns] for row in rows.iterator(chunk_size=1000))
    return csv_response(request, name, columns, lines)


def render_table(
    headings: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Collection[str] = ()
) -> SafeString:
    """Render a table. The columns in `numbers` are right-aligned.

    Each row becomes a card on phones.
    """
    head = format_html_join(
        "", '<th class="{}">{}</th>', (("num" if each in numbers else "", each) for each in headings)
    )
    lines = [
        format_html(
            "<tr>{}</tr>",
            format_html_join(
                "",
                '<td class="{}" data-label="{}">{}</td>',
                (
                    ("num" if heading in numbers else _wrap_class(cell), heading, cell)
                    for heading, cell in zip(headings, row, strict=True)
                ),
            ),
        )
        for row in rows
    ]
    if not lines:
        return format_html("<span>{}</span>", "none")
    body = format_html_join("", "{}", ((line,) for line in lines))
    return format_html(
        '<div class="plain-table"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>',
        head,
        body,
    )


def _wrap_class(cell: object) -> str:
    """Return the CSS class for a cell's text: keep its line breaks, or keep a single word on one line.

    Return "" for a sentence.
    """
    if "\n" in str(cell):
        return "lines"
    return "" if " " in str(cell) else "whitespace-nowrap"


def render_list(items: Iterable[object]) -> SafeString:
    lines = format_html_join("", "<li>{}</li>", ((item,) for item in items))
    return format_html("<ul>{}</ul>", lines) if lines else format_html("<span>{}</span>", "none")


def render_json(value: object) -> SafeString:
    """Render a value as indented JSON."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return format_html('<pre class="whitespace-pre-wrap">{}</pre>', text)


def bulk_action(description: str, outcome: str, change: Callable[[Any, Any], object]) -> Any:
    """Return an admin action that calls `change(actor, row)` for each selected row.

    It shows the number of successes, and an error for each failed row.
    """

    @action(description=description)
    def apply(self: ModelAdmin, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        count = 0
        for row in queryset:
            try:
                change(actor(request), row)
            except BerthError as error:
                messages.error(request, f"{row}: {error.detail}")
            else:
                count += 1
        if count:
            messages.success(request, f"{count} {outcome}.")

    return apply
