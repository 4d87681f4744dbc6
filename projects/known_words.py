"""Fixed values of list filters: reasons, event kinds and object types."""

# Reasons for pending workloads, in the order of scheduler.engine.plan.Reason, followed by all others.
REASONS = (
    "Misconfigured", "Suspended", "DependencyNotMet", "FetchingCode", "NoMatchingNode", "ExceedsNodeShape",
    "ExceedsPoolMax", "ExceedsDomain", "NodesUnavailable", "ProjectLimit", "DepartmentLimit", "ClusterQuota",
    "NonPreemptibleOverQuota", "DepartmentOversold", "WouldExceedFairShare", "WaitingForCapacity",
    "Fragmented", "Topology", "WaitingForGang", "WaitingForVictims", "WaitingForScaleUp",
    "InPreemptionDelay", "Backoff", "BehindReservation", "NoReclaimableResources", "VictimsProtected",
    "PlacementAttemptsExhausted",
    "Cancelled", "CodeFetchFailed", "Consolidated", "DependencyNeverMet", "IdleGpus", "Placed", "PodFailed",
    "Preempted", "Reclaimed", "ReservationDropped", "Restarting", "Resumed", "SecretNotFound", "Shrunk",
    "StaleGang", "StartRejected", "StartTimeout", "StopRule", "Submitted", "Unschedulable",
    "WaitingForEarlierTasks",
)  # fmt: skip
RESERVED = "Reserved"  # replaces the pending reason of a workload that has a reservation
EVENT_KINDS = (
    "cancelled", "cluster", "code_fetched", "completed", "consolidated", "deleted", "edited",
    "engine_failed", "failed", "files_deleted", "idle_warning", "idle_warning_withdrawn", "pending",
    "pod_warning", "preempted", "preemption_signal", "reclaimed", "reserved", "resubmitted", "resumed",
    "running", "shrunk", "stalegang", "starting", "stopping", "submitted", "suspended", "unschedulable",
    "volume_failed", "volume_stored", "worker_ready",
)  # fmt: skip
OBJECT_TYPES = (
    "apitoken", "autoscaler", "budget", "department", "machine", "membership", "node", "nodepool", "project",
    "projectsecret", "quota", "quotagroup", "savedview", "scalerequest", "schedule", "service", "session",
    "subscription", "template", "user", "workload", "workloadarray",
)  # fmt: skip
