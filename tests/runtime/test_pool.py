from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import pytest

from planish.runtime.pool import Pool, available_cpus
from planish.targets.llvm.pool import Block, offset, pool_ir

KERNELS = """
declare i64 @pthread_self()

define void @count(ptr %ctx, i64 %chunk) {
  %p = getelementptr i32, ptr %ctx, i64 %chunk
  %old = atomicrmw add ptr %p, i32 1 monotonic
  ret void
}

define void @who(ptr %ctx, i64 %chunk) {
  %p = getelementptr i64, ptr %ctx, i64 %chunk
  %id = call i64 @pthread_self()
  store i64 %id, ptr %p
  %r = call i32 @usleep(i32 500)
  ret void
}

; Until ctx[0] isn't 0.
define void @hold(ptr %ctx, i64 %chunk) {
entry:
  br label %look
look:
  %set = load atomic i64, ptr %ctx acquire, align 8
  %r = call i32 @usleep(i32 100)
  %go = icmp ne i64 %set, 0
  br i1 %go, label %done, label %look
done:
  ret void
}

; ctx[1 + ctx[0]++] = chunk
define void @trace(ptr %ctx, i64 %chunk) {
  %n = load i64, ptr %ctx
  %next = add i64 %n, 1
  store i64 %next, ptr %ctx
  %p = getelementptr i64, ptr %ctx, i64 %next
  store i64 %chunk, ptr %p
  ret void
}

; ctx: the pool, then rows of 16 counters
define void @nest(ptr %ctx, i64 %chunk) {
  %pool = load ptr, ptr %ctx
  %rows = getelementptr i8, ptr %ctx, i64 8
  %at = mul i64 %chunk, 64
  %row = getelementptr i8, ptr %rows, i64 %at
  call void @planish_parallel(ptr %pool, ptr @count, ptr %row, i64 16, i64 4)
  ret void
}

; Many jobs of random size, on one of four arrays; how often a chunk didn't run just once.
define i64 @stress(ptr %pool, ptr %arrays, i64 %most, i64 %jobs, i64 %seed, i64 %threads) {
entry:
  br label %job
job:
  %j = phi i64 [ 0, %entry ], [ %j.next, %checked ]
  %random = phi i64 [ %seed, %entry ], [ %random.next, %checked ]
  %errors = phi i64 [ 0, %entry ], [ %errors.next, %checked ]
  %mixed = mul i64 %random, 6364136223846793005
  %random.next = add i64 %mixed, 1442695040888963407
  %bits = lshr i64 %random.next, 33
  %some = urem i64 %bits, %most
  %chunks = add i64 %some, 1
  %which.bits = lshr i64 %random.next, 20
  %which = and i64 %which.bits, 3
  %base = mul i64 %which, %most
  %array = getelementptr i32, ptr %arrays, i64 %base
  call void @planish_parallel(ptr %pool, ptr @count, ptr %array, i64 %chunks, i64 %threads)
  br label %check
check:
  %i = phi i64 [ 0, %job ], [ %i.next, %check ]
  %wrong = phi i64 [ %errors, %job ], [ %errors.next, %check ]
  %p = getelementptr i32, ptr %array, i64 %i
  %n = atomicrmw xchg ptr %p, i32 0 monotonic
  %bad = icmp ne i32 %n, 1
  %bad.64 = zext i1 %bad to i64
  %errors.next = add i64 %wrong, %bad.64
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %chunks
  br i1 %more, label %check, label %checked
checked:
  %j.next = add i64 %j, 1
  %again = icmp slt i64 %j.next, %jobs
  br i1 %again, label %job, label %done
done:
  ret i64 %errors.next
}
"""
MOST = 64


class Code:
    """The pool's functions and the kernels, compiled."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        triple = llvm.get_process_triple()
        module = llvm.parse_assembly(pool_ir(triple) + KERNELS)
        machine = llvm.Target.from_triple(triple).create_target_machine()
        self.engine = llvm.create_mcjit_compiler(module, machine)
        self.engine.finalize_object()
        self.worker = self["planish_pool_worker"]
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        parallel = ctypes.CFUNCTYPE(None, pointer, pointer, pointer, integer, integer)
        self.parallel = parallel(self["planish_parallel"])
        stress = ctypes.CFUNCTYPE(integer, pointer, pointer, integer, integer, integer, integer)
        self.stress_jobs = stress(self["stress"])

    def __getitem__(self, name: str) -> int:
        return int(self.engine.get_function_address(name))

    def run(self, pool: Pool, kernel: str, ctx: Any, chunks: int, threads: int) -> None:
        self.parallel(pool.address, self[kernel], ctypes.addressof(ctx), chunks, threads)

    def stress(self, pool: Pool, jobs: int, seed: int = 1, threads: int = 4) -> None:
        arrays = (ctypes.c_int32 * (4 * MOST))()
        assert self.stress_jobs(pool.address, arrays, MOST, jobs, seed, threads) == 0
        assert not any(arrays), "a chunk of another job ran"


@cache
def code() -> Code:
    return Code()


@pytest.fixture
def pool() -> Iterator[Pool]:
    """Four threads, however few CPUs there are."""
    made = Pool(maximum=4)
    yield made
    made.stop()


def start(pool: Pool, threads: int) -> None:
    """Start workers and wait until they look for jobs."""
    pool.ensure(threads, code().worker, code())
    while pool.stats().workers < threads - 1:
        time.sleep(1e-4)


def until(condition: Callable[[], bool], act: Callable[[], object]) -> None:
    """Act again and again: on a busy machine a worker may be given no time for long."""
    end = time.monotonic() + 60
    while not condition():
        act()
        assert time.monotonic() < end


def script(text: str) -> subprocess.CompletedProcess[str]:
    """Run ``text`` after the names of this file in a process of its own."""
    here = Path(__file__)
    path = os.pathsep.join([str(here.parent), str(here.parents[2] / "src")])
    text = f"from test_pool import *\nfrom planish.runtime.pool import pool\n{text}"
    return subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("threads", [2, 4])
def test_every_chunk_runs_once(pool: Pool, threads: int) -> None:
    start(pool, threads)
    code().stress(pool, 300_000, threads=threads)
    assert pool.stats().jobs > 250_000  # a loop of one chunk isn't for the pool
    assert pool.stats().refused == 0
    until(lambda: pool.stats().shared > 0, lambda: code().stress(pool, 10_000, threads=threads))


def test_every_chunk_runs_once_when_all_sleep_at_once(pool: Pool) -> None:
    pool.block.idle_spin_ns = pool.block.wait_spin_ns = 0
    start(pool, 4)
    code().stress(pool, 20_000)
    until(lambda: pool.stats().wakes > 100, lambda: code().stress(pool, 1000))
    assert pool.stats().sleeps >= pool.stats().wakes


def test_every_chunk_runs_once_without_futex(pool: Pool) -> None:
    pool.block.futex = 0
    start(pool, 4)
    code().stress(pool, 50_000)
    until(lambda: pool.stats().shared > 0, lambda: code().stress(pool, 10_000))
    assert pool.stats().sleeps == 0


@pytest.mark.parametrize("spin_ns", [0, 20_000])
def test_every_chunk_runs_once_for_many_callers(pool: Pool, spin_ns: int) -> None:
    pool.block.idle_spin_ns = spin_ns
    start(pool, 3)
    failed = []

    def call(seed: int) -> None:
        try:
            code().stress(pool, 30_000, seed)
        except AssertionError as error:
            failed.append(error)

    callers = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert failed == []
    assert pool.stats().refused > 0


def test_generation_wraps(pool: Pool) -> None:
    start(pool, 2)
    pool.block.word = (2**32 - 1000) << 32
    code().stress(pool, 2000)
    assert pool.block.word >> 32 < 2000


def test_runs_in_order_alone(pool: Pool) -> None:
    def traced(address: int | None, chunks: int, threads: int) -> list[int]:
        order = (ctypes.c_int64 * 100)()
        code().parallel(address, code()["trace"], ctypes.addressof(order), chunks, threads)
        return order[1 : order[0] + 1]

    assert traced(None, 9, 4) == list(range(9))
    assert traced(pool.address, 9, 4) == list(range(9))  # no worker yet
    start(pool, 4)
    assert traced(pool.address, 9, 1) == list(range(9))
    assert traced(pool.address, 1, 4) == [0]
    assert traced(pool.address, 0, 4) == traced(pool.address, -1, 4) == []
    pool.block.version += 1
    assert traced(pool.address, 9, 4) == list(range(9))
    pool.block.version -= 1
    assert pool.stats().jobs == 0


def test_worker_of_another_version_returns(pool: Pool) -> None:
    pool.block.version += 1
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code().worker)(pool.address)
    assert pool.stats().workers == 0


def test_nested_loops_run_once(pool: Pool) -> None:
    start(pool, 4)
    for _ in range(200):
        rows = (ctypes.c_int32 * (2 + 50 * 16))()
        ctypes.c_void_p.from_buffer(rows).value = pool.address
        code().run(pool, "nest", rows, 50, 4)
        assert all(n == 1 for n in rows[2:])
    assert pool.stats().jobs == 200


@pytest.mark.parametrize("threads", [2, 3, 4])
def test_at_most_so_many_threads(pool: Pool, threads: int) -> None:
    start(pool, 4)
    seen: list[int] = []

    def call() -> None:
        ids = (ctypes.c_int64 * 12)()
        code().run(pool, "who", ids, 12, threads)
        assert threading.get_ident() in ids
        seen.append(len(set(ids)))

    until(lambda: threads in seen and len(seen) > 9, call)
    assert max(seen) == threads


def test_a_missing_worker_is_not_waited_for(pool: Pool) -> None:
    pool.block.workers = 3  # as if there were some, but they never come
    code().stress(pool, 1000)
    assert pool.stats().jobs > 900
    assert pool.stats().shared == 0
    pool.block.workers = 0


def test_a_second_caller_is_not_kept_waiting(pool: Pool) -> None:
    start(pool, 2)
    gate = ctypes.c_int64(0)
    first = threading.Thread(target=lambda: code().run(pool, "hold", gate, 4, 2))
    first.start()
    while not pool.block.busy:
        time.sleep(1e-4)
    ids = (ctypes.c_int64 * 4)()
    code().run(pool, "who", ids, 4, 2)
    assert set(ids) == {threading.get_ident()}
    assert pool.stats().refused == 1
    gate.value = 1
    first.join()


def test_idle_workers_use_no_time(pool: Pool) -> None:
    start(pool, 4)
    code().stress(pool, 1000)
    until(lambda: pool.stats().sleeping == 3, lambda: time.sleep(1e-3))
    before = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - before < 0.005


def test_ensure_starts_what_is_missing_up_to_the_maximum(pool: Pool) -> None:
    assert pool.ensure(1, code().worker, code()) == 1
    assert pool.stats().workers == 0
    start(pool, 2)
    start(pool, 3)
    assert pool.ensure(2, code().worker, code()) == 2
    assert pool.ensure(99, code().worker, code()) == 4
    time.sleep(0.01)
    assert pool.stats().workers == 3


def test_stopped_pool_starts_again(pool: Pool) -> None:
    for _ in range(20):
        start(pool, 4)
        code().stress(pool, 100)
        pool.stop()
        assert pool.stats().workers == 0
        code().stress(pool, 100)
        assert pool.stats().jobs == 0


linux = pytest.mark.skipif(sys.platform != "linux", reason="of Linux alone")


@linux
def test_workers_take_no_signals(pool: Pool) -> None:
    def blocking() -> int:
        masks = [
            int(line.split()[1], 16)
            for status in Path("/proc/self/task").glob("*/status")
            for line in status.read_text().splitlines()
            if line.startswith("SigBlk")
        ]
        return sum(mask >> 1 & 1 for mask in masks)  # SIGINT

    before = blocking()
    start(pool, 4)
    assert blocking() == before + 3


@linux
def test_workers_may_run_everywhere_but_disturb_nobody(pool: Pool) -> None:
    pool.block.idle_spin_ns = 0
    start(pool, 4)
    until(lambda: pool.stats().wakes > 100, lambda: code().stress(pool, 1000))
    until(lambda: pool.stats().sleeping == 3, lambda: time.sleep(1e-3))
    workers = [slot.thread for slot in pool.block.slots[:3]]
    assert len({threading.get_native_id(), *workers}) == 4
    for worker in workers:
        assert os.sched_getaffinity(worker) == os.sched_getaffinity(0)
        assert os.sched_getscheduler(worker) == os.SCHED_BATCH


def test_fields_have_lines_of_their_own() -> None:
    names = ("version", "stop", "word", "finished", "busy", "sleepers", "refused", "slots")
    assert [offset(name) for name in names] == [128 * line for line in range(8)]
    assert ctypes.sizeof(Block) % 128 == 0
    assert offset("word") // 64 == offset("chunks") // 64


@pytest.mark.parametrize("triple", ["aarch64-unknown-linux-gnu", "arm64-apple-darwin", ""])
def test_code_is_valid_for(triple: str) -> None:
    llvm.parse_assembly(pool_ir(triple)).verify()


FORK = """
made = pool(maximum=3)
start(made, 3)
code().stress(made, 1000)
done = threading.Event()

def work():
    while not done.is_set():
        code().stress(made, 10_000, seed=2)

busy = threading.Thread(target=work)
busy.start()
for round in range(20):
    child = os.fork()
    if child == 0:
        assert pool() is made
        assert made.stats().workers == made.stats().jobs == 0
        code().stress(made, 100)
        start(made, 3)
        code().stress(made, 2000)
        os._exit(0 if made.stats().jobs > 1000 else 1)
    assert os.waitpid(child, 0)[1] == 0, round
done.set()
busy.join()
"""


def test_a_forked_child_has_a_pool_of_its_own() -> None:
    done = script(FORK)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "work",
    [
        pytest.param("time.sleep(0.01)", id="asleep"),
        pytest.param("code().stress(made, 1000)", id="spinning"),
        pytest.param(
            "made.block.idle_spin_ns = 0\n"
            "call = lambda: code().stress(made, 100_000_000)\n"
            "threading.Thread(target=call, daemon=True).start()\n"
            "time.sleep(0.05)",
            id="in a loop",
        ),
        pytest.param("code.cache_clear()", id="its module gone"),
    ],
)
def test_exit_does_not_hang(work: str) -> None:
    began = time.monotonic()
    done = script(f"made = pool(maximum=4)\nstart(made, 4)\n{work}")
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - began < 20


def files(root: Path, texts: dict[str, str]) -> Path:
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


UNIFIED = "25 30 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
SPLIT = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 {top} /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
)


@pytest.fixture
def sixteen_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)


@pytest.mark.usefixtures("sixteen_cpus")
@pytest.mark.parametrize(
    ("texts", "cpus"),
    [
        pytest.param({}, 16, id="no cgroups"),
        pytest.param({"cpu.max": "max 100000\n"}, 16, id="no limit"),
        pytest.param({"cpu.max": "300000 100000\n"}, 3, id="three"),
        pytest.param({"cpu.max": "150000 100000\n"}, 2, id="one and a half"),
        pytest.param({"cpu.max": "10000 100000\n"}, 1, id="a tenth"),
        pytest.param({"cpu.max": "9900000 100000\n"}, 16, id="more than there are"),
        pytest.param({"a/b/cpu.max": "400000 100000\n"}, 4, id="own"),
        pytest.param(
            {"a/cpu.max": "200000 100000\n", "a/b/cpu.max": "max 100000\n"}, 2, id="above"
        ),
        pytest.param({"a/c/cpu.max": "100000 100000\n"}, 16, id="another's"),
        pytest.param({"cpu.max": ""}, 16, id="empty"),
    ],
)
def test_quota_of_version_2(tmp_path: Path, texts: dict[str, str], cpus: int) -> None:
    texts = {f"sys/fs/cgroup/{name}": text for name, text in texts.items()}
    proc = {"proc/self/cgroup": "0::/a/b\n", "proc/self/mountinfo": UNIFIED}
    assert available_cpus(files(tmp_path, {**texts, **proc} if texts else {})) == cpus


@pytest.mark.usefixtures("sixteen_cpus")
@pytest.mark.parametrize(
    ("top", "folder", "quota", "cpus"),
    [
        pytest.param("/", "docker/1", "250000", 3, id="host"),
        pytest.param("/", "docker", "200000", 2, id="above"),
        pytest.param("/", "docker/1", "-1", 16, id="no limit"),
        pytest.param("/docker/1", ".", "200000", 2, id="inside a container"),
        pytest.param("/docker", "1", "200000", 2, id="part of the tree"),
        pytest.param("/elsewhere", ".", "200000", 2, id="another part"),
    ],
)
def test_quota_of_version_1(tmp_path: Path, top: str, folder: str, quota: str, cpus: int) -> None:
    own = f"sys/fs/cgroup/cpu,cpuacct/{folder}"
    texts = {
        "proc/self/cgroup": "5:memory:/docker/1\n4:cpu,cpuacct:/docker/1\n0::/\n",
        "proc/self/mountinfo": SPLIT.format(top=top),
        f"{own}/cpu.cfs_quota_us": f"{quota}\n",
        f"{own}/cpu.cfs_period_us": "100000\n",
    }
    assert available_cpus(files(tmp_path, texts)) == cpus


def test_this_machine_has_cpus() -> None:
    assert 1 <= available_cpus() <= (os.cpu_count() or 1)
