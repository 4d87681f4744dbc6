"""Methods for workloads and what belongs to them: arrays, code, outputs, schedules and templates."""
