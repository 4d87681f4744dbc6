"""Values with their units and formats: amounts, durations, priorities and references."""
