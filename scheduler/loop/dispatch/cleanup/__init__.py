"""Stop pods without a row, and delete what ended pods and deleted workloads leave behind."""
