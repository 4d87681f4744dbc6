"""Describe pods and how they ended, for messages and pages."""


def format_pod(role: str, index: int) -> str:
    """Return the pod's name as the subject of a sentence, such as `Pod worker-0`."""
    return f"Pod {role}-{index}"


def describe_pod_exit(role: str, index: int, exit_code: int | None, signal: int | None) -> str:
    """Return how a pod ended, without a full stop, such as `Pod worker-0 ended with exit code 3`."""
    if signal is not None:
        return f"{format_pod(role, index)} ended by signal {signal}"
    if exit_code is None:
        return f"{format_pod(role, index)} could not be started"
    return f"{format_pod(role, index)} ended with exit code {exit_code}"


def sentence_to_clause(sentence: str) -> str:
    """Return the sentence without its initial capital and full stop, for use as a clause."""
    return sentence[:1].lower() + sentence[1:].removesuffix(".")
