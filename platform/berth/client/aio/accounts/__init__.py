"""Methods for departments, projects, people and their subscriptions."""
