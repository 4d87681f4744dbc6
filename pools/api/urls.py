"""URL routes of the pools API."""

from django.urls import URLPattern, URLResolver, path

from pools.api import environments, joining, machines, measures, nodes, pools, scaling

urlpatterns: list[URLPattern | URLResolver] = [
    path("node-pools", pools.Pools.as_view()),
    path("node-pools/<str:name>", pools.OnePool.as_view()),
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
    path("node-pools/<str:name>/join-tokens/<int:token_id>", machines.OneJoinToken.as_view()),
    path("node-pools/<str:name>/machines", machines.Machines.as_view()),
    path("node-pools/<str:name>/machines/<str:machine>", machines.OneMachine.as_view()),
    path("node-pools/<str:name>/machines/<str:machine>/remove", machines.RemoveMachine.as_view()),
    path("node-pools/<str:name>/join", joining.Join.as_view()),
    path("machines/call", joining.Call.as_view()),
    path("machines/leave", joining.Leave.as_view()),
    path("machines/program", joining.join_program),
    path("machines/worker.tar", joining.join_worker_code),
    path("machines/node.tar.gz", joining.join_node_code),
    path("plugins", environments.Plugins.as_view()),
    path("nodes", nodes.Nodes.as_view()),
    path("nodes/<str:name>", nodes.OneNode.as_view()),
    path("nodes/<str:name>/cordon", nodes.CordonNode.as_view()),
    path("nodes/<str:name>/uncordon", nodes.UncordonNode.as_view()),
    path("nodes/<str:name>/drain", nodes.DrainNode.as_view()),
    path("nodes/<str:name>/terminate", nodes.TerminateNode.as_view()),
]
