"""Methods for workloads, arrays, code, outputs, schedules and templates, and channels to pods."""
