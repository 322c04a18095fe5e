"""What of this machine the process may use: memory and processors, containers' limits included."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")


@dataclass(frozen=True)
class Memory:
    """Bytes; None where the system does not tell."""

    total: int | None
    free: int | None


def memory(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> Memory:
    """Memory in all and to be had, the smaller of the machine's and the container's."""
    total, free = _machine_memory(meminfo)
    for limit_name, used_name in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        limit, used = _number(cgroup / limit_name), _number(cgroup / used_name)
        if limit is not None and (total is None or limit < total):
            total = limit
            left = limit - (used or 0)
            free = left if free is None else min(free, left)
    return Memory(total, free)


def processors() -> int:
    """How many processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _machine_memory(meminfo: Path) -> tuple[int | None, int | None]:
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return _system_memory(), None
    fields = (line.partition(":") for line in lines)
    kilobytes = {name: value.split()[0] for name, _, value in fields if value.strip()}
    found = (kilobytes.get("MemTotal"), kilobytes.get("MemAvailable"))
    total, free = (int(value) * 1024 if value is not None else None for value in found)
    return total, free


def _system_memory() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # absent, or "max"
        return None
