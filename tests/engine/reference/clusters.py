"""Random small clusters as scenarios."""

from typing import Any, TypeAlias

from hypothesis import strategies as st

Draw: TypeAlias = st.DrawFn
Document = dict[str, Any]

NOW = 1_800_000_000
DEVICE = 1000
MEMORY = 16_000  # MiB of every device


@st.composite
def clusters(draw: Draw, *, time_based: bool = False, quiet: bool = False, grouped: bool = False) -> Document:
    """Draw a cluster with running and pending workloads.

    `quiet` excludes unusual states. With `grouped`, most quotas belong to a group of all pools.
    """
    pools = ["p"] if draw(st.integers(0, 4)) and not grouped else ["p", "q"]
    nodes = [_node(draw, pool, number) for pool in pools for number in range(draw(st.integers(1, 4)))]
    departments = [_queue(draw, f"d{number}", pools, grouped) for number in range(draw(st.integers(1, 3)))]
    projects = [
        {**_queue(draw, f"{department['name']}p{number}", pools, grouped), "department": department["name"]}
        for department in departments
        for number in range(draw(st.integers(1, 2)))
    ]
    free = {node["name"]: _room(node) for node in nodes}
    names = [project["name"] for project in projects]
    for node in nodes:
        node["only_project"] = _pick(draw, *[None] * 14, *names)
    workloads = [
        _workload(draw, number, names, pools, free, quiet=quiet) for number in range(draw(st.integers(1, 9)))
    ]
    return {
        "format": "berth.scenario/1",
        "now": NOW,
        "pools": [_pool(draw, pool, time_based) for pool in pools],
        "nodes": nodes,
        "quota_groups": [{"name": "g", "pools": pools}] if grouped else [],
        "departments": departments,
        "projects": projects,
        "workloads": workloads,
    }


def _pick(draw: Draw, *choices: Any) -> Any:
    return choices[draw(st.integers(0, len(choices) - 1))]


def _pool(draw: Draw, name: str, time_based: bool) -> Document:
    fairshare: Document = {"mode": "point_in_time"}
    if time_based:
        fairshare = {"mode": "time_based", "half_life": 3600, "k": _pick(draw, 1.0, 0.0, 0.5, 3.0)}
    return {
        "name": name,
        "placement": _pick(draw, "binpack", "spread", "fragmentation"),
        "topology": ["zone", "rack"],
        "over_quota_weights": bool(draw(st.integers(0, 4))),
        "reclaim_min_runtime": _pick(draw, 0, 0, 0, 100),
        "preempt_min_runtime": _pick(draw, 0, 0, 0, 100),
        "preemption_delay": _pick(draw, 0, 0, 0, 50),
        "consolidation": {
            "enabled": bool(draw(st.integers(0, 4))),
            "max_moves": _pick(draw, None, None, 1, 3),
        },
        "fairshare": fairshare,
        "stale_gang_grace": _pick(draw, 60, 60, 0, -1),
        "reservation_after": _pick(draw, None, None, 0, 100),
        "nodes": {"max": _pick(draw, None, None, None, 6)},
    }


def _node(draw: Draw, pool: str, number: int) -> Document:
    return {
        "name": f"{pool}{number}",
        "pool": pool,
        "gpus": _pick(draw, 4, 2, 8, 1, 0),
        "gpu_memory_mib": MEMORY,
        "gpu_model": _pick(draw, "A", "A", "B"),
        "cpu": _pick(draw, 16, 8, 4),
        "memory_mib": 64_000,
        "max_pods": _pick(draw, 110, 110, 110, 3),
        "labels": {"zone": _pick(draw, "z1", "z1", "z2"), "rack": f"r{draw(st.integers(1, 2))}"},
        "taints": _pick(draw, [], [], [], [{"key": "special"}]),
        "state": _pick(draw, *["ready"] * 7, "cordoned", "booting", "draining"),
        "lacks": _pick(draw, *[{}] * 7, {"images": "no podman"}, {"isolation": "no bubblewrap"}),
    }


def _queue(draw: Draw, name: str, pools: list[str], grouped: bool) -> Document:
    places = ["g"] if grouped and draw(st.integers(0, 4)) else pools
    return {
        "name": name,
        "rank": _pick(draw, 0, 0, 0, 1),
        "created": NOW - draw(st.integers(0, 3)) * 1000,
        "quotas": {place: _quota(draw) for place in places if draw(st.integers(0, 9))},
        "usage": {pool: {"gpu": draw(st.integers(0, 4)) / 4} for pool in pools},
        "reclaim_min_runtime": _pick(draw, None, None, None, 0, 200),
    }


def _quota(draw: Draw) -> Document:
    quota: Document = {
        "gpu": _pick(draw, 2, 0, 1, 4, 8, None, 0.5),
        "weight": _pick(draw, 1, 1, 2, 3, 0),
        "over_quota": bool(draw(st.integers(0, 9))),
    }
    if not draw(st.integers(0, 5)):
        quota["cpu"] = _pick(draw, 4, 0, None)
        quota["memory_mib"] = None
    if not draw(st.integers(0, 4)):
        quota["limit"] = {"gpu": _pick(draw, 2, 1, 4, 6)}
    return quota


def _workload(
    draw: Draw,
    number: int,
    projects: list[str],
    pools: list[str],
    free: dict[str, Document],
    *,
    quiet: bool,
) -> Document:
    workload: Document = {
        "name": f"w{number}",
        "project": _pick(draw, *projects),
        "pools": pools if draw(st.integers(0, 2)) else pools[-1:],
        "priority": _pick(draw, 50, 50, 25, 90, 125),
        "submitted": NOW - draw(st.integers(1, 20)) * 30,
        **_tree(draw),
    }
    if not draw(st.integers(0, 4)):
        workload["preemptible"] = bool(draw(st.integers(0, 1)))
    if not draw(st.integers(0, 4)):
        workload["image"] = "localhost/image:latest"
    if not draw(st.integers(0, 5)):
        workload["max_runtime"] = draw(st.integers(1, 5)) * 100
    if not quiet:
        _add_odd_properties(draw, workload, number)
    if draw(st.integers(0, 9)) < 6 and not workload.get("suspended"):
        _run(draw, workload, free, quiet)
    return workload


def _add_odd_properties(draw: Draw, workload: Document, number: int) -> None:
    odd = draw(st.integers(0, 30))
    if odd == 1:
        workload["suspended"] = True
    elif odd == 2 and number:
        workload["after"] = [{"workload": "w0"}]
    elif odd == 3:
        workload["backoff_until"] = NOW + 60
    elif odd == 4:
        workload["preemption_delay"] = 300
    elif odd == 5:
        workload["misconfigured"] = "its command is empty"


def _tree(draw: Draw) -> Document:
    if draw(st.integers(0, 7)):
        roles = [_role(draw, f"r{number}") for number in range(_pick(draw, 1, 1, 1, 1, 2))]
        if len(roles) == 2 and not draw(st.integers(0, 2)):
            roles[1]["scale_with"] = {"role": "r0", "ratio": _pick(draw, 1.0, 0.5, 2.0)}
        if not any(role["min"] for role in roles):
            roles[0] |= {"min": 1, "max": max(1, roles[0]["max"])}
        tree: Document = {"roles": roles}
    else:
        groups = [
            {
                "name": f"g{number}",
                "roles": [{**_role(draw, f"r{number}"), "min": 1, "max": _pick(draw, 1, 2)}],
            }
            for number in range(2)
        ]
        tree = {"groups": groups, "need": _pick(draw, 2, 2, 1)}
    if not draw(st.integers(0, 3)):
        tree["topology"] = {_pick(draw, "required", "required", "preferred"): _pick(draw, "rack", "zone")}
    return tree


def _role(draw: Draw, name: str) -> Document:
    least = _pick(draw, 1, 1, 2, 3, 0)
    role: Document = {"name": name, "min": least, "max": max(1, least + _pick(draw, 0, 0, 1, 3))}
    role |= _pick(
        draw,
        {"gpu": 1},
        {"gpu": 1},
        {"gpu": 2},
        {"gpu": 4},
        {"gpu": 0.5},
        {"gpu": 0.25},
        {"gpu": 0.5, "gpu_devices": 2},
        {"gpu_memory_mib": 4000},
        {},
    )
    role["cpu"] = _pick(draw, 1, 0, 2)
    if not draw(st.integers(0, 6)):
        role["limit"] = {"cpu": role["cpu"] + 2}
    if not draw(st.integers(0, 9)):
        role["spread_per_node"] = draw(st.integers(1, 2))
    if not draw(st.integers(0, 9)):
        role["gpu_models"] = ["A"]
    if not draw(st.integers(0, 9)):
        role["tolerations"] = [{"key": "special", "operator": "Exists"}]
    if not draw(st.integers(0, 14)):
        role["node_selector"] = {"rack": "r1"}
    return role


# -- placing workloads on nodes


def _room(node: Document) -> Document:
    return {"devices": [DEVICE] * node["gpus"], "cpu": node["cpu"], "pods": node["max_pods"], "node": node}


def _run(draw: Draw, workload: Document, free: dict[str, Document], quiet: bool) -> None:
    pool = _pick(draw, *workload["pools"])
    here = [room for room in free.values() if room["node"]["pool"] == pool]
    rooms = [room for room in here if room["node"]["state"] != "booting"]
    if not rooms:
        return
    first = draw(st.integers(0, len(rooms) - 1))
    rooms = _rooms_in_domain(rooms[first:] + rooms[:first], workload.get("topology", {}).get("required"))
    groups = workload.get("groups", [{"roles": workload.get("roles", [])}])
    pods: list[Document] = []
    for role in (role for group in groups for role in group["roles"]):
        count = role["min"] if draw(st.integers(0, 2)) else draw(st.integers(role["min"], role["max"]))
        for index in range(count):
            seat = next((room for room in rooms if _fits(room, role, pods)), None)
            if seat is None:
                for pod in pods:
                    _remove_pod(free[pod["node"]], pod)
                return
            pods.append(_place_pod(seat, role, index))
    started = NOW - draw(st.integers(0, 20)) * 15
    for pod in pods:
        pod["started"] = started
    if pods and not quiet:
        _apply_odd_states(draw, workload, pods)
    workload["pods"] = [{k: v for k, v in pod.items() if k not in ("milli", "cpu")} for pod in pods]


def _rooms_in_domain(rooms: list[Document], level: str | None) -> list[Document]:
    keys = {"rack": ("zone", "rack"), "zone": ("zone",), None: ()}[level]
    home = rooms[0]["node"]["labels"]
    return [room for room in rooms if all(room["node"]["labels"][key] == home[key] for key in keys)]


def _apply_odd_states(draw: Draw, workload: Document, pods: list[Document]) -> None:
    odd = draw(st.integers(0, 25))
    if odd == 1:
        for pod in pods:
            pod["state"] = "stopping"
    elif odd == 2:
        pods[-1]["state"] = "stuck"
    elif odd == 3:
        for pod in pods:
            pod["state"] = "starting"
    elif odd == 4 and len(pods) > 1:
        pods[-1]["state"] = "stopping"  # a gang that has just lost a pod
        workload["stale_since"] = NOW - draw(st.integers(0, 2)) * 45
    elif odd == 5:
        pods[0]["state"] = "completed"


def _milli(role: Document) -> tuple[int, int]:
    if "gpu_memory_mib" in role:
        return -(-DEVICE * role["gpu_memory_mib"] // MEMORY), 1
    gpu = role.get("gpu", 0)
    return (DEVICE, gpu) if gpu >= 1 else (round(gpu * DEVICE), role.get("gpu_devices", 1 if gpu else 0))


def _fits(room: Document, role: Document, pods: list[Document]) -> bool:
    milli, count = _milli(role)
    node = room["node"]
    here = sum(pod["node"] == node["name"] and pod["role"] == role["name"] for pod in pods)
    return (
        sum(_holds(left, milli) for left in room["devices"]) >= count
        and room["cpu"] >= role.get("limit", role)["cpu"]
        and room["pods"] > 0
        and here < role.get("spread_per_node", 99)
        and node["gpu_model"] in role.get("gpu_models", [node["gpu_model"]])
        and (not node["taints"] or "tolerations" in role)
        and role.get("node_selector", {}).items() <= node["labels"].items()
    )


def _holds(left: int, milli: int) -> bool:
    return left == DEVICE if milli == DEVICE else left >= milli


def _place_pod(room: Document, role: Document, index: int) -> Document:
    milli, count = _milli(role)
    devices = [number for number, left in enumerate(room["devices"]) if _holds(left, milli)][:count]
    cpu = role.get("limit", role)["cpu"]
    pod = {"role": role["name"], "index": index, "node": room["node"]["name"], "devices": devices}
    pod |= {"milli": milli, "cpu": cpu}
    _change(room, pod, 1)
    return pod


def _remove_pod(room: Document, pod: Document) -> None:
    _change(room, pod, -1)


def _change(room: Document, pod: Document, sign: int) -> None:
    for device in pod["devices"]:
        room["devices"][device] -= sign * pod["milli"]
    room["cpu"] -= sign * pod["cpu"]
    room["pods"] -= sign
