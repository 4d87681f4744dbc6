"""Commands that submit, list, edit and control workloads, templates and schedules."""
