"""What calls and tasks may be given, as the protocol and the command line have it.

Values are checked where they are given, by the rules of the command line
(``crates/cli/src/plan/quantity.rs``): what is wrong is an error there, and no call
is made.
"""

import math
import numbers
import operator
import re
from datetime import timedelta
from decimal import Decimal
from typing import Any, Callable, Dict, Iterable, List, Mapping, NoReturn, Optional, Tuple

from ._task_options import OPTIONS, class_of

U32_MAX = (1 << 32) - 1
U64_MAX = (1 << 64) - 1
I32_MAX = (1 << 31) - 1
NAME_BYTES_MAX = 256
"""The longest name of a resource."""
WORKERS_MAX = 65536
"""Workers that an executor on this machine may have."""
CUSTOM_NAMES_MAX = 64
"""Resources that one call names."""
ALTERNATIVES_MAX = 4
"""Requests for resources that one task may be placed with."""
GANG_NODES_MAX = 4096
"""Executors that run one task together."""
NODE_RANKS_MAX = 65535
"""Processes that launchers start on each of them."""

_FUNCTION = 3
"""The kind of task that a call is."""
_MICROS = {"us": 1, "µs": 1, "ms": 10**3, "s": 10**6, "sec": 10**6, "m": 60 * 10**6}
_MICROS.update({"min": _MICROS["m"], "h": 3600 * 10**6, "d": 86400 * 10**6})
_NUMBER = re.compile(r"[0-9.]+")
_PARTS = re.compile(r"([0-9.]+)([a-zµ]+)")
_AMOUNT = re.compile(r"([0-9.]+)\s*([kmgtp]?)(ib|b|)", re.IGNORECASE)
_WHOLE = re.compile(r"[+-]?[0-9]+")

_CPUS = "a number above 0 with at most three decimals, such as 4 or 0.5"
_TASK_CPUS = "%s, or 'auto'" % _CPUS
_MEMORY = (
    "bytes (2e9) or a text with a unit ('512MiB', '2GiB', '1.5G'; kB, MB and GB count in thousands)"
)
_LIMIT = "%s, or None for none" % _MEMORY
_TIME = (
    "seconds (30, 0.5), a timedelta or a text with units ('250ms', '5m', '1h30m', '2d'); 0 or "
    "None for none"
)
_ALTERNATIVES = (
    "a list of mappings of resources to amounts, such as [{'cpus': 16}, {'memory': '8GiB'}]"
)
_RESOURCES = "a mapping of names to whole numbers, such as {'licences': 2}"


def _refuse(option: str, value: Any, accepted: str) -> NoReturn:
    """Raises what says that a value is none that the option takes."""
    known = (str, numbers.Number)
    is_of_kind = isinstance(value, known) and not isinstance(value, bool)
    kind = ValueError if is_of_kind else TypeError
    raise kind("%s=%r is not accepted: %s is %s" % (option, value, option, accepted))


def _real(value: Any) -> Optional[float]:
    """A finite number that is none of a text."""
    if isinstance(value, bool) or not isinstance(value, (numbers.Real, Decimal)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def _written(digits: str) -> Optional[float]:
    try:
        return float(digits)
    except ValueError:
        return None


def _whole(option: str, value: Any, least: int, most: int) -> int:
    accepted = "a whole number from %d to %d" % (least, most)
    found: Optional[int] = None
    if isinstance(value, str):
        if _WHOLE.fullmatch(value.strip()):
            found = int(value)
    elif not isinstance(value, bool):
        try:
            found = operator.index(value)
        except TypeError:
            number = _real(value)
            if number is not None and number.is_integer():
                found = int(number)
    if found is None or not least <= found <= most:
        _refuse(option, value, accepted)
    return found


def cpus_milli(option: str, value: Any) -> int:
    """Thousandths of a CPU."""
    cpus = _written(value.strip()) if isinstance(value, str) else _real(value)
    milli = (cpus or 0) * 1000
    if not 0.5 <= milli < U32_MAX - 0.5 or abs(milli - round(milli)) >= 1e-6 * max(milli, 1):
        _refuse(option, value, _CPUS)
    return round(milli)


def task_cpus(option: str, value: Any) -> int:
    """The CPUs that a task holds, in thousandths."""
    if value == "auto":
        return U32_MAX
    try:
        return cpus_milli(option, value)
    except ValueError:
        _refuse(option, value, _TASK_CPUS)


def memory_bytes(option: str, value: Any) -> int:
    """Bytes of memory."""
    found: Optional[float] = None
    if isinstance(value, str):
        amount = _AMOUNT.fullmatch(value.strip())
        number = _written(amount[1]) if amount else None
        if amount is not None and number is not None:
            prefix, unit = amount[2].lower(), amount[3].lower()
            is_of_words = bool(prefix or unit != "ib")
            factor = 1000 if prefix and unit == "b" else 1024
            found = number * factor ** " kmgtp".index(prefix or " ") if is_of_words else None
    elif isinstance(value, int) and not isinstance(value, bool):
        found = value  # Exact, also beyond what a float can hold.
    else:
        found = _real(value)
    if found is None or not 0 <= found <= U64_MAX:
        _refuse(option, value, _MEMORY)
    return math.ceil(found)


def task_memory(option: str, value: Any) -> int:
    """The memory that a task holds, in bytes."""
    if value == "auto":
        return U64_MAX
    return memory_bytes(option, value)


def disk(option: str, value: Any) -> List[Tuple[str, int]]:
    """The scratch disk space that a task holds, among its resources."""
    found = memory_bytes(option, value)
    return [("disk", found)] if found else []


def memory_limit(option: str, value: Any) -> int:
    """The most memory that a task may have, in bytes."""
    if value is None or value == "none":
        return U64_MAX
    try:
        found = memory_bytes(option, value)
    except ValueError:
        found = 0
    if found == 0:
        _refuse(option, value, _LIMIT)
    return found


def micros(option: str, value: Any) -> int:
    """A time in microseconds, 0 for none."""
    if value is None:
        return 0
    total: Optional[int] = None
    if isinstance(value, timedelta):
        total = value // timedelta(microseconds=1)
    elif isinstance(value, str):
        text = value.strip()
        if _NUMBER.fullmatch(text):
            total = _rounded(_written(text), _MICROS["s"])
        elif _PARTS.sub("", text) == "" and text:
            parts = [
                _rounded(_written(number), _MICROS[unit]) if unit in _MICROS else None
                for number, unit in _PARTS.findall(text)
            ]
            if None not in parts:
                total = sum(part or 0 for part in parts)
    else:
        total = _rounded(_real(value), _MICROS["s"])
    if total is None or not 0 <= total <= U64_MAX:
        _refuse(option, value, _TIME)
    return total


def task_time(option: str, value: Any) -> int:
    """The time that a task is expected to run, in microseconds."""
    if value == "auto":
        return U64_MAX
    return micros(option, value)


def _rounded(value: Optional[float], factor: int) -> Optional[int]:
    """Whole microseconds: what is asked for is never rounded down to nothing."""
    if value is None:
        return None
    found = value * factor
    if 0 < found < 1e12:
        # Decimal fractions are not exact in binary.
        return max(1, math.ceil(round(found * 1000) / 1000))
    return math.ceil(found)


def resources(option: str, value: Any) -> List[Tuple[str, int]]:
    """Resources by their names, sorted."""
    if not isinstance(value, Mapping):
        _refuse(option, value, _RESOURCES)
    if len(value) > CUSTOM_NAMES_MAX:
        raise ValueError(
            "%s: a call names at most %d resources, not %d" % (option, CUSTOM_NAMES_MAX, len(value))
        )
    found = []
    for name, count in value.items():
        if not isinstance(name, str) or not 0 < len(name.encode()) <= NAME_BYTES_MAX:
            raise (ValueError if isinstance(name, str) else TypeError)(
                "%s: %r is no name of a resource: it is a text of at most %d bytes"
                % (option, name, NAME_BYTES_MAX)
            )
        if name == "disk":
            raise ValueError("%s: `disk` is no custom resource: give disk by itself" % option)
        found.append((name, _whole("%s[%r]" % (option, name), count, 0, U64_MAX)))
    return sorted(found)


def alternatives(option: str, value: Any) -> List[List[Any]]:
    """What a task may hold instead, each as the protocol has it."""
    if not isinstance(value, (list, tuple)):
        _refuse(option, value, _ALTERNATIVES)
    if len(value) >= ALTERNATIVES_MAX:
        raise ValueError(
            "%s: a task has at most %d alternatives beside what it holds by preference, not %d"
            % (option, ALTERNATIVES_MAX - 1, len(value))
        )
    found = []
    for place, one in enumerate(value):
        if not isinstance(one, Mapping):
            _refuse("%s[%d]" % (option, place), one, _ALTERNATIVES)
        found.append(_alternative("%s[%d]" % (option, place), one))
    if any(one in found[:place] for place, one in enumerate(found)):
        raise ValueError("%s: two alternatives of a task are the same" % option)
    return found


def _alternative(option: str, value: Mapping[Any, Any]) -> List[Any]:
    named = {name: one for name, one in value.items() if name in _OF_ALTERNATIVES}
    custom = {name: one for name, one in value.items() if name not in _OF_ALTERNATIVES}
    for name in custom:
        near = _SLIPS.get(str(name).lower())
        if near is not None:
            raise ValueError(
                "%s: there is no resource `%s`; did you mean `%s`?" % (option, name, near)
            )
        if name in _OF_TASKS or name in _OF_COMMANDS:
            raise ValueError("%s: `%s` is the same for all alternatives of a task" % (option, name))
    if named.get("cpus") == "auto":
        raise ValueError("%s: an alternative says how many CPUs it has, not auto" % option)
    if named.get("memory") == "auto":
        raise ValueError("%s: an alternative says how much memory it has, not auto" % option)
    read: Dict[str, Any] = {"cpus": 1000, "gpus": 0, "memory": 0, "disk": []}
    for name, one in named.items():
        read[name] = _OF_ALTERNATIVES[name]("%s[%r]" % (option, name), one)
    counts = [one for one in resources(option, custom) if one[1] > 0]
    return [read["cpus"], read["gpus"], read["memory"], sorted(read["disk"] + counts)]


def _alternatives_as_tables(found: List[List[Any]]) -> List[Dict[str, Any]]:
    return [
        {"cpus": cpus / 1000, "gpus": gpus, "memory": memory, **dict(custom)}
        for cpus, gpus, memory, custom in found
    ]


def _count(option: str, value: Any) -> int:
    return _whole(option, value, 0, U32_MAX)


def _copies(option: str, value: Any) -> int:
    return _whole(option, value, 1, U32_MAX)


def _nodes(option: str, value: Any) -> int:
    return _whole(option, value, 1, GANG_NODES_MAX)


def _ranks(option: str, value: Any) -> int:
    return _whole(option, value, 1, NODE_RANKS_MAX)


def _flag(option: str, value: Any) -> bool:
    if not isinstance(value, bool):
        _refuse(option, value, "True or False")
    return value


def _priority(option: str, value: Any) -> int:
    return _whole(option, value, -I32_MAX - 1, I32_MAX)


_OF_ALTERNATIVES: Dict[str, Callable[[str, Any], Any]] = {
    "cpus": cpus_milli,
    "gpus": _count,
    "memory": memory_bytes,
    "disk": disk,
}
_SLIPS = {"cpu": "cpus", "core": "cpus", "cores": "cpus", "gpu": "gpus", "mem": "memory"}
_SLIPS.update({"ram": "memory", "scratch": "disk"})
_SLIPS.update({name: name for name in _OF_ALTERNATIVES})
_READ: Dict[str, Callable[[str, Any], Any]] = {
    "alternatives": alternatives,
    "count": _count,
    "copies": _copies,
    "disk": disk,
    "task_cpus": task_cpus,
    "task_memory": task_memory,
    "task_time": task_time,
    "flag": _flag,
    "memory_limit": memory_limit,
    "nodes": _nodes,
    "priority": _priority,
    "ranks": _ranks,
    "resources": resources,
    "time": micros,
}
"""What reads values of each kind: as the protocol has them."""
_AS_TEXT: Dict[str, Callable[[Any], Any]] = {
    "alternatives": _alternatives_as_tables,
    "task_cpus": lambda milli: "auto" if milli == U32_MAX else milli / 1000,
    "disk": lambda disk: disk[0][1] if disk else 0,
    "memory_limit": lambda limit: "none" if limit == U64_MAX else limit,
    "task_memory": lambda memory: "auto" if memory == U64_MAX else memory,
    "resources": dict,
    "time": lambda found: "%dus" % found,
    "task_time": lambda found: "auto" if found == U64_MAX else "%dus" % found,
}
"""What the program reads in their place, if that is something else."""

_OF_CALLS = {option.field: option for option in OPTIONS if option.is_for_calls}
_OF_TASKS = {option.field: option.kind for option in OPTIONS}
_OF_COMMANDS = {option.flag: option.kind for option in OPTIONS}


def task_class(options: Mapping[str, Any]) -> List[Any]:
    """The class of tasks that calls with these options are, as the protocol has
    it."""
    for name in options:
        if name not in _OF_CALLS:
            if name in _OF_TASKS:
                raise TypeError("`%s` is for tasks that run programs, and not for calls" % name)
            raise TypeError(_unknown(name, [*_OF_CALLS, "inputs", "outputs", "large_result"]))
    found = {option.field: option.default for option in OPTIONS}
    for name, value in options.items():
        if value is not None:
            found[name] = _READ[_OF_CALLS[name].kind](name, value)
    if any(name == "disk" for one in found["alternatives"] for name, _ in one[3]):
        raise TypeError("`disk` is for tasks that run programs, and not for calls")
    return class_of(_FUNCTION, found)


def _unknown(name: str, known: Iterable[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, list(known), 1)
    hint = "did you mean `%s`?" % near[0] if near else "there are %s" % ", ".join(sorted(known))
    return "there is no option `%s`; %s" % (name, hint)


def workers(option: str, value: Any) -> int:
    """How many workers this machine is to have."""
    if isinstance(value, int) and value <= 0:
        raise ValueError("%s must be greater than 0" % option)
    return _whole(option, value, 1, WORKERS_MAX)


def seconds(option: str, value: Any) -> float:
    """A time in seconds, which may be without end."""
    if value == math.inf:
        return math.inf
    return 0.0 if value is None else micros(option, value) / _MICROS["s"]


def listed(option: str, value: Any) -> Any:
    """Files that a call reads or writes."""
    if not isinstance(value, (list, tuple)):
        raise TypeError("%s=%r is not accepted: %s is a list of files" % (option, value, option))
    return value


# Options and fields of tasks that the program reads.

def _checked(kinds: Mapping[str, str], given: Mapping[str, Any]) -> Dict[str, Any]:
    """``given``, with the values of options read; the program checks all others."""
    found = dict(given)
    for name, value in given.items():
        kind = kinds.get(name)
        if kind is not None and value is not None:
            read = _READ[kind](name, value)
            found[name] = _AS_TEXT[kind](read) if kind in _AS_TEXT else read
    return found


def of_command(options: Mapping[str, Any]) -> Dict[str, Any]:
    """Options of ``falkon submit``, of which those that say what a task needs are
    checked."""
    # Resources may also be a list, of what the command line takes.
    kinds = {
        flag: kind
        for flag, kind in _OF_COMMANDS.items()
        if kind != "resources" or isinstance(options.get(flag), Mapping)
    }
    found = _checked(kinds, options)
    if isinstance(found.get("or_"), list):
        found["or_"] = [
            ",".join("%s=%s" % item for item in table.items()) for table in found["or_"]
        ]
    return found


def of_task(place: int, task: Any) -> Dict[str, Any]:
    """A task of a list, with the fields that say what it needs checked."""
    if not isinstance(task, Mapping):
        raise TypeError("task %d is %r: a task is a mapping of fields to values" % (place, task))
    try:
        return _checked(_OF_TASKS, task)
    except (TypeError, ValueError) as error:
        raise type(error)("task %d: %s" % (place, error)) from None


def line(place: int, value: Any) -> str:
    """A value of ``lines``, without the line's end."""
    if isinstance(value, str):
        first = value[:-1] if value.endswith("\n") else value
        if "\n" in first:
            raise ValueError("lines: value %d has several lines: %r" % (place, value))
        return first
    if hasattr(value, "__fspath__"):
        return line(place, str(value))
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return str(value)
    raise TypeError("lines: value %d is %r: a line is a text, a path or a number" % (place, value))
