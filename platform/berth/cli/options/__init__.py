"""Read the arguments, options and typed answers of commands."""
