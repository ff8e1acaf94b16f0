"""The options of a task: written from the table in crates/cli/src/plan/options.rs,
not to be edited."""

from typing import Any, List, Mapping, NamedTuple


class TaskOption(NamedTuple):
    """An option, and how it is given."""

    field: str
    """Its name: the field of a task, the option of a call."""
    flag: str
    """The option of ``falkon submit``, with underscores."""
    kind: str
    """What reads its values."""
    default: Any
    """What a task has without it, as the protocol has it."""
    is_for_calls: bool


OPTIONS = (
    TaskOption("cpus", "cpus", "task_cpus", 1000, True),
    TaskOption("gpus", "gpus", "count", 0, True),
    TaskOption("memory", "memory", "task_memory", 0, True),
    TaskOption("memory_limit", "memory_limit", "memory_limit", 0, False),
    TaskOption("disk", "disk", "disk", [], False),
    TaskOption("resources", "resource", "resources", [], True),
    TaskOption("alternatives", "or_", "alternatives", [], True),
    TaskOption("nodes_per_task", "nodes_per_task", "nodes", 1, False),
    TaskOption("ranks_per_node", "ranks_per_node", "ranks", 0, False),
    TaskOption("timeout", "timeout", "time", 0, True),
    TaskOption("runtime_estimate", "estimate", "task_time", 0, True),
    TaskOption("retries", "retries", "count", 0, True),
    TaskOption("speculate", "speculate", "flag", False, True),
    TaskOption("replicas", "replicas", "copies", 1, False),
    TaskOption("lenders", "lenders", "count", 0, False),
    TaskOption("priority", "priority", "priority", 0, True),
)


def class_of(kind: int, found: Mapping[str, Any]) -> List[Any]:
    """A task's class, as the protocol has it."""
    fields = [
        [kind],
        [
            found["cpus"],
            found["gpus"],
            found["memory"],
            sorted(found["disk"] + found["resources"]),
        ],
        found["priority"],
        found["retries"],
        found["timeout"],
        found["runtime_estimate"],
        found["replicas"],
        found["lenders"],
        0,
        0,
        found["memory_limit"],
        found["nodes_per_task"],
        found["ranks_per_node"],
        found["speculate"],
    ]
    later = [
        found["alternatives"],
        0,
    ]
    # Versions that do not know these have no tasks that say something there.
    return fields + later if any(later) else fields
