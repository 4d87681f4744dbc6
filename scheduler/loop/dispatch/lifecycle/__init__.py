"""Change the phases of workloads: verdicts on gangs, retries, time limits, dependencies and arrays."""
