"""Print responses as tables, text, JSON, YAML or CSV."""
