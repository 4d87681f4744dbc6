"""URL routes of the pools API."""

from django.urls import URLPattern, URLResolver, path

from pools.api import environments, joining, machines, measures, nodes, pools, scaling, secrets
from pools.api.ssh import hosts

urlpatterns: list[URLPattern | URLResolver] = [
    path("node-pools", pools.Pools.as_view()),
    path("node-pools/<str:name>", pools.PoolDetail.as_view()),
    path("node-pools/<str:name>/pause", pools.PausePool.as_view()),
    path("node-pools/<str:name>/resume", pools.ResumePool.as_view()),
    path("node-pools/<str:name>/retry", pools.RetryPool.as_view()),
    path("node-pools/<str:name>/scale", scaling.ScalePool.as_view()),
    path("node-pools/<str:name>/drain", pools.DrainPool.as_view()),
    path("node-pools/<str:name>/capacity", measures.PoolCapacity.as_view()),
    path("node-pools/<str:name>/cost", measures.PoolCost.as_view()),
    path("node-pools/<str:name>/environment", environments.PoolEnvironment.as_view()),
    path("node-pools/<str:name>/history", pools.PoolHistory.as_view()),
    path("node-pools/<str:name>/join-tokens", machines.JoinTokens.as_view()),
    path("node-pools/<str:name>/join-tokens/<int:token_id>", machines.JoinTokenDetail.as_view()),
    path("node-pools/<str:name>/machines", machines.Machines.as_view()),
    path("node-pools/<str:name>/machines/<str:machine>", machines.MachineDetail.as_view()),
    path("node-pools/<str:name>/machines/<str:machine>/remove", machines.RemoveMachine.as_view()),
    path("node-pools/<str:name>/ssh-hosts", hosts.SshHosts.as_view()),
    path("node-pools/<str:name>/ssh-hosts/accept-keys", hosts.AcceptHostKeys.as_view()),
    path("node-pools/<str:name>/ssh-hosts/<str:host>", hosts.SshHostDetail.as_view()),
    path("node-pools/<str:name>/secrets", secrets.PoolSecrets.as_view()),
    path("node-pools/<str:name>/secrets/<str:secret>", secrets.PoolSecretDetail.as_view()),
    path("node-pools/<str:name>/join", joining.JoinPool.as_view()),
    path("machines/call", joining.ReportMachine.as_view()),
    path("machines/leave", joining.LeavePool.as_view()),
    path("machines/agent", joining.download_agent),
    path("machines/worker.tar", joining.download_worker_code),
    path("machines/node.tar.gz", joining.download_node_code),
    path("plugins", environments.Plugins.as_view()),
    path("nodes", nodes.Nodes.as_view()),
    path("nodes/<str:name>", nodes.NodeDetail.as_view()),
    path("nodes/<str:name>/cordon", nodes.CordonNode.as_view()),
    path("nodes/<str:name>/uncordon", nodes.UncordonNode.as_view()),
    path("nodes/<str:name>/drain", nodes.DrainNode.as_view()),
    path("nodes/<str:name>/upgrade", nodes.UpgradeNode.as_view()),
    path("nodes/<str:name>/terminate", nodes.TerminateNode.as_view()),
]
