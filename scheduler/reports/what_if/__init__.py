"""Predictions that are not stored: dry runs and quota previews."""
