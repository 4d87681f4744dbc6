"""URL routes of the pool pages."""

from django.urls import path, re_path

from pools.web import machines, node_batches, nodes, pools, ssh_hosts

urlpatterns = [
    path("node-pools/new", pools.create, name="pool-new"),
    path("node-pools/<slug:name>/settings", pools.settings, name="pool-settings"),
    path("node-pools/<slug:name>/scale", pools.scale, {}, name="pool-scale"),
    path("node-pools/<slug:name>/machines", machines.index, name="pool-machines"),
    path("node-pools/<slug:name>/machines/token", machines.issue, name="join-token-new"),
    path("node-pools/<slug:name>/machines/token/<int:token_id>", machines.revoke, name="join-token-revoke"),
    path("node-pools/<slug:name>/machines/<slug:machine>/remove", machines.remove, name="machine-remove"),
    path("node-pools/<slug:name>/hosts", ssh_hosts.index, name="pool-ssh-hosts"),
    path(
        "node-pools/<slug:name>/hosts/<slug:host>/accept",
        ssh_hosts.accept_host_key,
        name="pool-ssh-host-accept",
    ),
    re_path(
        r"^node-pools/(?P<name>[a-z0-9_-]+)/(?P<action_name>pause|resume|retry)$",
        pools.apply_action,
        name="pool-action",
    ),
    re_path(
        r"^node-pools/(?P<name>[a-z0-9_-]+)/nodes/(?P<action_name>cordon|uncordon|drain)$",
        node_batches.apply_to_nodes,
        name="pool-nodes-action",
    ),
    re_path(r"^nodes/(?P<name>[A-Za-z0-9._-]+)$", nodes.show, name="node"),
    re_path(
        r"^nodes/(?P<name>[A-Za-z0-9._-]+)/(?P<action_name>cordon|uncordon|drain|upgrade|terminate)$",
        nodes.apply_action,
        name="node-action",
    ),
]
