"""Predictions that store nothing: dry runs and quota previews."""
