"""Read the arguments and options of commands, and the answers to prompts."""
