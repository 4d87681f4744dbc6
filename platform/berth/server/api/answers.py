"""Base model of REST answers, and amounts in the units people use."""

from pydantic import BaseModel, ConfigDict

from berth.core.amounts import MILLI


class Answer(BaseModel):
    """Checked when it is made, so that what is sent is what the description of the interface promises."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Amounts(Answer):
    """Devices, cores and MiB; null is unlimited."""

    gpu: float | None
    cpu: float | None
    memory_mib: int | None


class ProblemAnswer(BaseModel):
    """What went wrong (RFC 9457), with every value to mend in `errors`."""

    class Fault(BaseModel):
        path: str
        message: str
        given: str
        allowed: str

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str
    errors: list[Fault] | None = None
    retry_after: int | None = None
    allowed: list[str] | None = None


def whole(milli: int | None) -> float | None:
    """Thousandths as people say them: 8, 0.5."""
    if milli is None:
        return None
    return milli // MILLI if milli % MILLI == 0 else milli / MILLI


def amounts(milli_gpu: int | None, milli_cpu: int | None, memory_mib: int | None) -> Amounts:
    return Amounts(gpu=whole(milli_gpu), cpu=whole(milli_cpu), memory_mib=memory_mib)
