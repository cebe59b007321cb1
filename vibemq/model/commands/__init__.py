"""What sessions ask of the engine. Every protocol speaks these words; none of them mentions a wire.

`session` names the connection (given by the server), `token` is the session's own note, returned untouched in the
`Reply`; commands whose token is None are not answered. Consumers are numbered by their session.
"""

from vibemq.model.commands.consumers import (
    Extend,
    SetCapacity,
    SetFlow,
    SetShare,
    Settle,
    SharedCapacity,
    StartAt,
    Subscribe,
    Unsubscribe,
)
from vibemq.model.commands.dead_letters import (
    AdvanceJob,
    ChangeJob,
    ForgetJobs,
    ForgetMade,
    PurgeDead,
    ReplayDead,
    StartJob,
)
from vibemq.model.commands.groups import (
    Begin,
    CommitCursor,
    DeleteGroup,
    EnterBatch,
    FilterGroup,
    JoinCursor,
    PlanBatch,
    Quarantine,
    RejectAt,
    SeekGroup,
)
from vibemq.model.commands.messages import (
    GiveUp,
    Publish,
    Requester,
    Respond,
)
from vibemq.model.commands.queues import (
    ChangeQueue,
    CreateQueue,
    DeleteQueue,
    DescribeQueue,
    ImportMessages,
    ListQueues,
    MoveMessages,
    PurgeQueue,
    QueueName,
    RemoveListed,
    RemoveMessages,
)
from vibemq.model.commands.sessions import (
    ChangeAccounts,
    Classified,
    CloseSession,
    EndConsumers,
    Pressure,
    SetPressure,
)
from vibemq.model.commands.transactions import (
    DecideTransaction,
    DropStages,
    ForgetApplication,
    MoveStage,
    MoveStaged,
    Stage,
)
from vibemq.model.shared.settlement import Settlement

__all__ = [
    "AdvanceJob",
    "Begin",
    "ChangeAccounts",
    "ChangeJob",
    "ChangeQueue",
    "Classified",
    "CloseSession",
    "Command",
    "CommitCursor",
    "CreateQueue",
    "DecideTransaction",
    "DeleteGroup",
    "DeleteQueue",
    "DescribeQueue",
    "DropStages",
    "EndConsumers",
    "EnterBatch",
    "Extend",
    "FilterGroup",
    "ForgetApplication",
    "ForgetJobs",
    "ForgetMade",
    "GiveUp",
    "ImportMessages",
    "JoinCursor",
    "ListQueues",
    "MoveMessages",
    "MoveStage",
    "MoveStaged",
    "PlanBatch",
    "Pressure",
    "Publish",
    "PurgeDead",
    "PurgeQueue",
    "Quarantine",
    "QueueName",
    "RejectAt",
    "RemoveListed",
    "RemoveMessages",
    "ReplayDead",
    "Requester",
    "Respond",
    "SeekGroup",
    "SetCapacity",
    "SetFlow",
    "SetPressure",
    "SetShare",
    "Settle",
    "Settlement",
    "SharedCapacity",
    "Stage",
    "StartAt",
    "StartJob",
    "Subscribe",
    "Unsubscribe",
]

Command = (
    Publish
    | Respond
    | GiveUp
    | Subscribe
    | Unsubscribe
    | SetCapacity
    | SetShare
    | SetFlow
    | Settle
    | Extend
    | CreateQueue
    | ChangeQueue
    | DeleteQueue
    | PurgeQueue
    | RemoveMessages
    | RemoveListed
    | DescribeQueue
    | ListQueues
    | DeleteGroup
    | SeekGroup
    | FilterGroup
    | JoinCursor
    | CommitCursor
    | PlanBatch
    | EnterBatch
    | RejectAt
    | Quarantine
    | Stage
    | DecideTransaction
    | MoveStage
    | MoveStaged
    | DropStages
    | ForgetApplication
    | ChangeAccounts
    | MoveMessages
    | ImportMessages
    | ReplayDead
    | PurgeDead
    | StartJob
    | ChangeJob
    | AdvanceJob
    | ForgetJobs
    | ForgetMade
    | CloseSession
    | Classified
    | EndConsumers
    | SetPressure
)
