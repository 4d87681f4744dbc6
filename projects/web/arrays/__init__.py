"""Pages of arrays: tasks, progress and actions."""
