"""Base class for the initial migrations, which create about 80 tables."""

from itertools import groupby

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations import Migration
from django.db.migrations.operations import CreateModel
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState


def creates_model(operation: Operation) -> bool:
    return isinstance(operation, CreateModel)


class InitialMigration(Migration):
    """Migration that renders all new models at once.

    Django would render them again after each operation, which takes seconds.
    """

    def apply(
        self, project_state: ProjectState, schema_editor: BaseDatabaseSchemaEditor, collect_sql: bool = False
    ) -> ProjectState:
        for are_new_models, operations in groupby(self.operations, creates_model):
            part = Migration(self.name, self.app_label)
            # Django also assigns a list here, despite its type annotations.
            part.operations = [*operations]  # type: ignore[misc]
            if collect_sql or not are_new_models:
                project_state = part.apply(project_state, schema_editor, collect_sql)
                continue
            vars(project_state).pop("apps", None)  # Django renders the apps again on the next access
            before = project_state.clone()
            project_state = part.mutate_state(project_state, preserve=False)
            for operation in part.operations:
                operation.database_forwards(self.app_label, schema_editor, before, project_state)
        return project_state
