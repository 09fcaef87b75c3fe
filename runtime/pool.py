"""The process's thread pool: how many threads, who starts them, what a fork leaves of them.

The pool itself is machine code (`planish.targets.llvm.pool` says how it works). Here its block
is allocated and its workers are started, at the first call that wants them. Workers are threads of
the C library, not of Python: they never hold the interpreter's lock, so they neither delay its exit
nor are touched by it. They end with the process, asleep. Nothing of them may go before: the block
is never freed, and what the worker's code belongs to is kept for ever.

Workers block all signals, which so reach the threads that wait for them. None is pinned.

A fork copies only the thread that forks. The child begins with a pool without workers, at the same
address, and starts its own when it first needs them, whatever the parent's threads were doing.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from planish.targets.llvm.pool import LINE_BYTES, MOST_WORKERS, VERSION, Block

# Long enough for the serial code between the loops of a request, and for what a worker still has
# to do of a chunk; about what a wake-up costs, and short beside a request.
IDLE_SPIN_NS = 50_000
WAIT_SPIN_NS = 50_000

STACK_BYTES = 1 << 20  # of a worker, whatever the process's limit is: more than any chunk takes
_ATTRIBUTES_BYTES = 256  # more than any system's pthread_attr_t

# Linux's numbers of the system calls that the pool's code makes, by machine.
_COMMON_CALLS = {
    "futex": 98,
    "gettid": 178,
    "getcpu": 168,
    "sched_getaffinity": 123,
    "sched_setaffinity": 122,
    "sched_setscheduler": 119,
}
_CALLS = {
    "x86_64": {
        "futex": 202,
        "gettid": 186,
        "getcpu": 309,
        "sched_getaffinity": 204,
        "sched_setaffinity": 203,
        "sched_setscheduler": 144,
    },
    "aarch64": _COMMON_CALLS,
    "riscv64": _COMMON_CALLS,
    "loongarch64": _COMMON_CALLS,
}
_NO_CALL = -1
_FUTEX_WAKE_PRIVATE = 129

# What a thread brings on itself: blocking these would only hide the report of a crash.
_OWN_SIGNALS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP}


def available_cpus(root: Path = Path("/")) -> int:
    """How many CPUs the process may use: its affinity mask, and at most its cgroup's quota.

    A quota of 1.5 CPUs counts as 2. The files are those below ``root``.
    """
    known = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min([known or 1, *_quotas(root)]))


def _quotas(root: Path) -> Iterator[int]:
    """Each limit on CPU time: of the process's cgroups and all above them, in CPUs rounded up."""
    for mount, own in _cgroups(root):
        for folder in (own, *own.parents):
            if not folder.is_relative_to(mount):
                break
            match _words(folder / "cpu.max"):  # version 2
                case [quota, period] if quota.isdecimal() and int(period):
                    yield -(-int(quota) // int(period))
            match _words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us"):
                case [quota, period] if quota.isdecimal() and int(period):  # version 1; none: -1
                    yield -(-int(quota) // int(period))


def _cgroups(root: Path) -> Iterator[tuple[Path, Path]]:
    """Each hierarchy that can limit CPU time: where it is mounted, and the process's own folder."""
    owns: dict[str, PurePosixPath] = {}
    for line in _lines(root / "proc/self/cgroup"):
        number, controllers, path = line.split(":", 2)
        if number == "0" or "cpu" in controllers.split(","):
            owns["cgroup2" if number == "0" else "cgroup"] = PurePosixPath(path)
    for line in _lines(root / "proc/self/mountinfo"):
        place, _, system = line.partition(" - ")
        top, point = place.split(" ")[3:5]
        kind, _, options = system.split(" ", 2)
        if kind not in owns or (kind == "cgroup" and "cpu" not in options.split(",")):
            continue
        mount, own = root / point.lstrip("/"), owns[kind]
        # In a container the mount may show a part of the tree, and the path be the host's.
        yield mount, mount / own.relative_to(top) if own.is_relative_to(top) else mount


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []


def _words(file: Path) -> list[str]:
    return " ".join(_lines(file)).split()


@dataclass(frozen=True)
class PoolStats:
    """What a pool did so far, in this process."""

    workers: int
    """Threads in their loop now."""
    sleeping: int
    """Of these, asleep."""
    jobs: int
    """Loops run on several threads."""
    shared: int
    """Chunks of these that workers ran."""
    refused: int
    """Loops run on their caller's thread because the pool was busy."""
    sleeps: int
    wakes: int


class Pool:
    """A pool of threads; `address` is what machine code takes.

    ``maximum`` is how many threads can take part in a loop, its caller included; None: as many as
    there are `available_cpus`.
    """

    def __init__(self, maximum: int | None = None) -> None:
        wanted = available_cpus() if maximum is None else maximum
        self.maximum = min(max(1, wanted), 1 + MOST_WORKERS)
        self._libc = _libc()
        self.address: int = self._libc.aligned_alloc(LINE_BYTES, ctypes.sizeof(Block))
        ctypes.memset(self.address, 0, ctypes.sizeof(Block))
        self.block = Block.from_address(self.address)
        self.block.version = VERSION
        self.block.clock = time.CLOCK_MONOTONIC
        if sys.platform == "linux":
            for call, number in _CALLS.get(platform.machine(), {}).items():
                setattr(self.block, call, number)
        self.block.idle_spin_ns, self.block.wait_spin_ns = IDLE_SPIN_NS, WAIT_SPIN_NS
        self._lock = threading.Lock()
        self._code: tuple[int, object] | None = None
        self._threads: list[int] = []
        self._wanted = 1
        _pools.add(self)

    def ensure(self, threads: int, worker_address: int, owner: object = None) -> int:
        """Start workers so that so many threads can take part; gives how many can at most.

        ``worker_address`` is that of a module's ``planish_pool_worker``, whose code lives as long
        as ``owner``: the first one's are used. If the system refuses a thread there are fewer.
        """
        threads = min(threads, self.maximum)
        if threads > self._wanted:
            with self._lock:
                if threads > self._wanted:
                    self._start(threads - 1 - len(self._threads), worker_address, owner)
                    self._wanted = threads
        return threads

    def _start(self, count: int, worker_address: int, owner: object) -> None:
        if self._code is None:
            self._code = worker_address, owner
            # One reference that even the interpreter's end doesn't take away.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))
        if sys.platform == "linux" and os.sched_getscheduler(0) != os.SCHED_OTHER:
            self.block.sched_setscheduler = _NO_CALL  # workers stay in the class asked for
        # A new thread has the mask of the one that makes it.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _OWN_SIGNALS)
        attributes = ctypes.create_string_buffer(_ATTRIBUTES_BYTES)
        self._libc.pthread_attr_init(attributes)
        self._libc.pthread_attr_setstacksize(attributes, STACK_BYTES)
        try:
            for _ in range(count):
                thread = ctypes.c_ulong()
                failure = self._libc.pthread_create(
                    ctypes.byref(thread), attributes, self._code[0], self.address
                )
                if failure:
                    break
                self._threads.append(thread.value)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            self._libc.pthread_attr_destroy(attributes)

    def stop(self) -> None:
        """End all workers and wait for that, while no loop runs; `ensure` may start new ones."""
        with self._lock:
            self.block.stop = 1
            while self.block.workers:
                # Again and again: one may look at `stop` just before and sleep just after.
                if self.block.futex:
                    for slot in self.block.slots[: self.block.started]:
                        state = ctypes.addressof(slot)
                        self._libc.syscall(self.block.futex, state, _FUTEX_WAKE_PRIVATE, 1)
                time.sleep(1e-4)
            for thread in self._threads:
                self._libc.pthread_join(thread, None)
            self._forget()
            if self._code is not None:
                ctypes.pythonapi.Py_DecRef(ctypes.py_object(self._code[1]))
                self._code = None

    def _forget(self) -> None:
        """Be a pool without workers."""
        self._threads.clear()
        self._wanted = 1
        self.block.clear()

    def _forked(self) -> None:
        self._lock = threading.Lock()
        self._forget()

    def stats(self) -> PoolStats:
        block = self.block
        return PoolStats(
            workers=block.workers,
            sleeping=max(0, block.sleepers),
            jobs=block.jobs,
            shared=block.shared,
            refused=block.refused,
            sleeps=block.sleeps,
            wakes=block.wakes,
        )


def pool(maximum: int | None = None) -> Pool:
    """The process's pool; its ``maximum`` is that of the first call."""
    global _pool
    if _pool is None:
        with _making:
            if _pool is None:
                _pool = Pool(maximum)
    return _pool


_pool: Pool | None = None
_making = threading.Lock()
_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _forked() -> None:
    global _making
    _making = threading.Lock()
    for each in list(_pools):
        each._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None)
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    libc.aligned_alloc.argtypes, libc.aligned_alloc.restype = [size, size], pointer
    libc.pthread_attr_init.argtypes = libc.pthread_attr_destroy.argtypes = [pointer]
    libc.pthread_attr_setstacksize.argtypes = [pointer, size]
    libc.pthread_create.argtypes = [pointer] * 4
    libc.pthread_join.argtypes = [ctypes.c_ulong, pointer]
    libc.syscall.argtypes = [ctypes.c_long, pointer, ctypes.c_long, ctypes.c_long]
    return libc
