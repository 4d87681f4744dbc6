"""Install environments on this machine, and prepare them for other machines."""
