"""A copy of a state that shares nothing which changes; the values inside (options, attempts) are frozen."""

from dataclasses import replace

from vibemq.model.extras.dedup_table import DedupTable
from vibemq.model.instants import Instants
from vibemq.model.runs import RunSet
from vibemq.model.stored import StoredGroup, StoredQueue, StoredState


def copy_state(state: StoredState) -> StoredState:
    return replace(
        state,
        queues={queue_id: _copy_queue(queue) for queue_id, queue in state.queues.items()},
        transactions={app: replace(kept, stages=list(kept.stages)) for app, kept in state.transactions.items()},
        users=dict(state.users),
        tokens=dict(state.tokens),
        jobs=dict(state.jobs),
    )


def _copy_queue(queue: StoredQueue) -> StoredQueue:
    return replace(
        queue,
        groups={group_id: _copy_group(group) for group_id, group in queue.groups.items()},
        chunks=[replace(chunk) for chunk in queue.chunks],
        dropped=RunSet(queue.dropped.runs()),
        priorities={priority: RunSet(runs.runs()) for priority, runs in queue.priorities.items()},
        expires=Instants(queue.expires),
        delayed=Instants(queue.delayed),
        dead=RunSet(queue.dead.runs()),
        dedup=DedupTable(queue.dedup),
    )


def _copy_group(group: StoredGroup) -> StoredGroup:
    return replace(
        group,
        taken=RunSet(group.taken.runs()),
        pending=RunSet(group.pending.runs()),
        attempts=dict(group.attempts),
        plans=dict(group.plans),
    )
