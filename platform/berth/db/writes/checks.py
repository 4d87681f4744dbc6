"""Validate all of a row's check constraints with one query. Django sends one query per constraint."""

from collections.abc import Collection

from django.db import router
from django.db.models import CheckConstraint, Model, Q


class CombinedChecks(Model):
    """Base class for models whose constraints are all check constraints. One query checks all of them."""

    class Meta:
        abstract = True

    def validate_constraints(self, exclude: Collection[str] | None = None) -> None:
        if not self._passes_all_checks(frozenset(exclude or ())):
            super().validate_constraints(exclude)

    def _passes_all_checks(self, exclude: frozenset[str]) -> bool:
        conditions, needed = Q(), set()
        for constraint in self._meta.constraints:
            if not isinstance(constraint, CheckConstraint):
                return False
            condition = Q(constraint.condition)
            fields = {path[0] for path in self._get_expr_references(condition)}  # type: ignore[attr-defined]
            if fields.isdisjoint(exclude):  # Django skips conditions on excluded fields
                conditions &= condition
                needed |= fields
        names = {field.name for field in self._meta.local_concrete_fields} | {"pk"}
        values = self._get_field_expression_map(self._meta, exclude=names - needed)  # type: ignore[attr-defined]
        return conditions.check(values, using=router.db_for_write(type(self), instance=self))
