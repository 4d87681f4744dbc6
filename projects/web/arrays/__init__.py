"""Array pages: tasks, progress and actions."""
