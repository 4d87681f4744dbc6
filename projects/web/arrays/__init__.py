"""Pages of arrays: tasks, progress and the actions on them."""
