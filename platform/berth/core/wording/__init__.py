"""Wording that the web pages, the scheduler and the terminal share."""
