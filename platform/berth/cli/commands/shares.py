"""`berth share`: fair shares side by side, similar to `sshare`."""

from typing import TYPE_CHECKING, Any

from berth.cli.link import connected
from berth.cli.listing import WatchOption, listing
from berth.cli.names import SomePool
from berth.cli.output import Column, Output, OutputOption
from berth.cli.text import number

if TYPE_CHECKING:
    from berth.client import Client


def share(
    *,
    pool: SomePool = None,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """What is due to each department and project, what it holds, borrows, and used lately (GPUs).

    \b
    berth share
    berth share train -o wide
    berth quota show vision --why     # how one of them comes about
    """
    with connected() as client:
        listing(lambda: _found(client, pool), _columns, output, "No quotas.", watch=watch)


def _found(client: "Client", pool: str | None) -> list[Any]:
    of = {project.name: project.department for project in client.projects.list()}
    return sorted(client.quotas.list(pool=pool), key=lambda quota: _place(quota, of))


def _columns() -> list[Column]:
    return [
        Column(
            "QUEUE", lambda q: q.owner["name"] if q.owner["kind"] == "department" else f"  {q.owner['name']}"
        ),
        Column("POOL", lambda q: q.pool),
        Column("QUOTA", lambda q: number(q.gpu, "unlimited"), right=True),
        Column("SHARE", lambda q: _told(q, "share"), right=True),
        Column("HELD", lambda q: _told(q, "allocated"), right=True),
        Column("BORROWED", lambda q: number(_borrowed(q)), right=True, spare=True),
        Column("ASKED", lambda q: _told(q, "requested"), right=True, spare=True),
        Column("USED LATELY", _used, right=True, spare=True),
        Column("RANK", lambda q: "-" if q.rank is None else str(q.rank), right=True, wide=True),
    ]


def _told(quota: Any, name: str) -> str:
    values = (quota.standing or {}).get(name)
    return number(values.get("gpu")) if isinstance(values, dict) else "-"


def _borrowed(quota: Any) -> float | None:
    held = ((quota.standing or {}).get("allocated") or {}).get("gpu")
    if held is None or quota.gpu is None:
        return None
    return max(0.0, float(held) - float(quota.gpu))


def _used(quota: Any) -> str:
    usage = ((quota.standing or {}).get("usage") or {}).get("gpu")
    return "-" if usage is None else f"{usage:.3f}"


def _place(quota: Any, of: dict[str, str]) -> tuple[str, str, bool, str]:
    name, inner = quota.owner["name"], quota.owner["kind"] == "project"
    return (quota.pool, of.get(name, "") if inner else name, inner, name)
