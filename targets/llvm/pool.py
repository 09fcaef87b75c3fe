"""The thread pool's machine code: a parallel loop whose chunks are claimed, not assigned.

``planish_parallel`` offers the chunks of one loop to all threads and claims some itself. At the
end it waits only for chunks that a worker has begun, so a worker that sleeps, or that the system
has moved aside, never delays a call: the caller does that worker's share. The state of the pool is
one `Block`, which ``planish.runtime.pool`` allocates, and whose workers it starts.

**A job.** Under the lock ``busy`` the caller writes ``fn``, ``ctx``, ``chunks`` and ``tickets``,
then *opens* the job by storing ``word = generation << 32 | left``. A thread claims a chunk by
compare-exchange of ``word`` with ``word - 1``; its index is ``chunks - left``. Chunk 0 is the
caller's and never offered. ``left == 0`` means closed: nothing can be claimed.

**Each chunk runs once, and only for its own job.** Only the holder of the lock raises ``left``, and
only from 0. It writes the next job's fields while ``left`` is 0, and opens that job with another
generation. So if a claim succeeds, its job was still open after the fields were read, and they
are that job's: fields are stored with release and loaded with acquire, so whoever has read one of
a later job finds in ``word`` no value from before its own job was closed, and its exchange fails.
A generation comes back after 2^32 jobs, an hour or more; a thread that stood still between two
instructions for exactly that long is the one case not excluded.

**The end.** A worker counts the chunks it ran and adds them to ``finished`` when it finds none
left: after that it doesn't touch the job. The caller waits for ``finished`` to reach the number of
chunks it didn't run itself. Nobody holds a chunk of this job then, so ``ctx`` may go, ``finished``
may be set back, and the lock released. A wait that gets long sleeps in the kernel, which leaves
the core to a worker that was moved aside in the middle of a chunk; bit 31 of ``finished`` asks
for the wake-up.

**Tickets** limit who takes part: ``tickets = generation << 32 | how many more may``, taken before
the first claim.

**Sleep.** A worker that finds nothing for ``idle_spin_ns`` adds itself to ``sleepers`` and sleeps
in the kernel (futex) for as long as the generation is the one it has seen. The caller opens the
job, then reads ``sleepers``, all sequentially consistent: either it sees the worker there, or the
kernel sees the new generation. It wakes no more than the job lacks beyond the workers that are
awake, and two at most; each that wakes up wakes two more. Who wakes takes the woken off
``sleepers``, so those still on their way are not woken again. A lost wake-up could only make a job
slower. Where there is no futex, workers that are out of budget look again every 0.1 ms.

**Alone.** A call runs its chunks in order on its own thread if there is no pool, no worker, one
chunk or one thread, 2^31 chunks or more, or a block of another version (made by another release),
and if the lock is taken: by another request, or by the very loop whose chunk calls.

A forked child has none of the workers, and fields may stand as another thread of the parent left
them: `Block.clear` makes the block usable there. ``fn`` must return, and must not fork.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from typing import Any

# Part of a block: code of one version leaves a block of another alone.
VERSION = 1

# Twice a line of most caches: neighbouring lines are fetched in pairs, and some machines have 128.
LINE_BYTES = 128

# The block's fields, those of one line together: who writes them, and when.
_LINES: tuple[tuple[tuple[str, type], ...], ...] = (
    (  # settings: written before a worker starts, and when all are told to stop
        ("version", ctypes.c_uint32),
        ("clock", ctypes.c_int32),  # of clock_gettime
        ("futex", ctypes.c_int64),  # the number of the system call; 0: there is none
        ("idle_spin_ns", ctypes.c_int64),  # how long a worker looks for a job before it sleeps
        ("wait_spin_ns", ctypes.c_int64),  # how long a caller waits for chunks before it sleeps
        ("stop", ctypes.c_uint32),  # workers are to return
        ("workers", ctypes.c_uint32),  # in their loop now
    ),
    (  # the job: written by the caller, claimed from by all
        ("word", ctypes.c_uint64),  # generation << 32 | chunks left
        ("tickets", ctypes.c_uint64),  # generation << 32 | workers that may still join
        ("fn", ctypes.c_void_p),
        ("ctx", ctypes.c_void_p),
        ("chunks", ctypes.c_int64),
    ),
    (("finished", ctypes.c_uint32),),  # chunks that workers ran; bit 31: the caller sleeps
    (  # the caller's
        ("busy", ctypes.c_uint32),  # the lock
        ("jobs", ctypes.c_uint64),  # opened so far
        ("shared", ctypes.c_uint64),  # chunks that workers ran so far
    ),
    (  # sleep
        ("sleepers", ctypes.c_int32),  # workers asleep that nobody has woken
        ("wanted", ctypes.c_int32),  # workers still to be woken for this job
        ("sleeps", ctypes.c_uint64),  # so far
        ("wakes", ctypes.c_uint64),  # so far
    ),
    (("refused", ctypes.c_uint64),),  # calls that found the pool busy so far
)


def _fields() -> Iterator[tuple[str, type]]:
    for number, line in enumerate(_LINES):
        used = ctypes.sizeof(type("Line", (ctypes.Structure,), {"_fields_": line}))
        yield from line
        yield f"_{number}", ctypes.c_char * (LINE_BYTES - used)


class Block(ctypes.Structure):
    """The pool's state, as machine code and Python share it; to be aligned to `LINE_BYTES`."""

    _fields_ = tuple(_fields())

    version: int
    clock: int
    futex: int
    idle_spin_ns: int
    wait_spin_ns: int
    stop: int
    workers: int
    word: int
    jobs: int
    shared: int
    sleepers: int
    sleeps: int
    wakes: int
    refused: int

    def clear(self) -> None:
        """Make a block without workers, jobs or counts of it, whatever it held; keep the settings.

        The generation goes on, so that what was claimed before cannot be claimed again.
        """
        generation = self.word >> 32
        settings = {name: getattr(self, name) for name, _ in _LINES[0][:-2]}
        ctypes.memset(ctypes.addressof(self), 0, ctypes.sizeof(self))
        for name, value in settings.items():
            setattr(self, name, value)
        self.word = (generation + 1) % 2**32 << 32


def offset(field: str) -> int:
    """Where a field of `Block` lies, in bytes."""
    descriptor: Any = getattr(Block, field)
    return int(descriptor.offset)


# `field x` stands for the address of the block's field x, `hint` for the machine's spin hint.
_IR = """
declare i64 @syscall(i64, ...)
declare i32 @usleep(i32)
declare i32 @clock_gettime(i32, ptr)
declare i64 @llvm.smin.i64(i64, i64)
declare i32 @llvm.smin.i32(i32, i32)

define linkonce_odr void @planish_parallel(
    ptr %pool, ptr %fn, ptr %ctx, i64 %chunks, i64 %threads) nounwind {
entry:
  %none = icmp eq ptr %pool, null
  br i1 %none, label %alone, label %size

size:
  %most = call i64 @llvm.smin.i64(i64 %chunks, i64 %threads)
  %small = icmp slt i64 %most, 2
  %large = icmp sgt i64 %chunks, 2147483647
  %unfit = or i1 %small, %large
  br i1 %unfit, label %alone, label %ours

ours:
  %version = field version
  %v = load i32, ptr %version
  %other = icmp ne i32 %v, VERSION
  br i1 %other, label %alone, label %staffed

staffed:
  %workers = field workers
  %staff = load atomic i32, ptr %workers monotonic, align 4
  %empty = icmp eq i32 %staff, 0
  br i1 %empty, label %alone, label %lock

lock:
  %busy = field busy
  %held = load atomic i32, ptr %busy monotonic, align 4
  %taken = icmp ne i32 %held, 0
  br i1 %taken, label %refused, label %try

try:
  %exchange = cmpxchg ptr %busy, i32 0, i32 1 acquire monotonic
  %locked = extractvalue { i32, i1 } %exchange, 1
  br i1 %locked, label %open, label %refused

open:
  %word = field word
  %tickets = field tickets
  %job.fn = field fn
  %job.ctx = field ctx
  %job.chunks = field chunks
  %finished = field finished
  %last = load atomic i64, ptr %word monotonic, align 8
  %last.generation = lshr i64 %last, 32
  %next.generation = add i64 %last.generation, 1
  %high = shl i64 %next.generation, 32
  %generation = lshr i64 %high, 32
  store atomic i32 0, ptr %finished monotonic, align 4
  store atomic ptr %fn, ptr %job.fn release, align 8
  store atomic ptr %ctx, ptr %job.ctx release, align 8
  store atomic i64 %chunks, ptr %job.chunks release, align 8
  %others = sub i64 %most, 1
  %ticket = or i64 %high, %others
  store atomic i64 %ticket, ptr %tickets release, align 8
  %offered = sub i64 %chunks, 1
  %opened = or i64 %high, %offered
  store atomic i64 %opened, ptr %word seq_cst, align 8
  %sleepers = field sleepers
  %asleep = load atomic i32, ptr %sleepers seq_cst, align 4
  %someone = icmp sgt i32 %asleep, 0
  br i1 %someone, label %lacking, label %run

lacking:
  %awake = sub i32 %staff, %asleep
  %useful = trunc i64 %others to i32
  %lack = sub i32 %useful, %awake
  %more = call i32 @llvm.smin.i32(i32 %lack, i32 %asleep)
  %wake = icmp sgt i32 %more, 0
  br i1 %wake, label %rouse, label %run

rouse:
  %wanted = field wanted
  store atomic i32 %more, ptr %wanted monotonic, align 4
  call void @planish_pool_wake(ptr %pool)
  br label %run

run:
  call void %fn(ptr %ctx, i64 0)
  %claimed = call i32 @planish_pool_claim(ptr %pool, i64 %generation)
  %offered.32 = trunc i64 %offered to i32
  %given = sub i32 %offered.32, %claimed
  %helped = icmp ne i32 %given, 0
  br i1 %helped, label %wait, label %close

wait:
  call void @planish_pool_wait(ptr %pool, i32 %given)
  %shared = field shared
  %shared.before = load atomic i64, ptr %shared monotonic, align 8
  %given.64 = zext i32 %given to i64
  %shared.after = add i64 %shared.before, %given.64
  store atomic i64 %shared.after, ptr %shared monotonic, align 8
  br label %close

close:
  %jobs = field jobs
  %jobs.before = load atomic i64, ptr %jobs monotonic, align 8
  %jobs.after = add i64 %jobs.before, 1
  store atomic i64 %jobs.after, ptr %jobs monotonic, align 8
  store atomic i32 0, ptr %busy release, align 4
  ret void

refused:
  %refusals = field refused
  %refusal = atomicrmw add ptr %refusals, i64 1 monotonic
  br label %alone

alone:
  %any = icmp sgt i64 %chunks, 0
  br i1 %any, label %chunk, label %done

chunk:
  %i = phi i64 [ 0, %alone ], [ %i.next, %chunk ]
  call void %fn(ptr %ctx, i64 %i)
  %i.next = add i64 %i, 1
  %again = icmp slt i64 %i.next, %chunks
  br i1 %again, label %chunk, label %done

done:
  ret void
}

; Run chunks of a generation until none is left; how many this thread ran.
define linkonce_odr i32 @planish_pool_claim(ptr %pool, i64 %generation) nounwind noinline {
entry:
  %word = field word
  %job.fn = field fn
  %job.ctx = field ctx
  %job.chunks = field chunks
  %fn = load atomic ptr, ptr %job.fn acquire, align 8
  %ctx = load atomic ptr, ptr %job.ctx acquire, align 8
  %chunks = load atomic i64, ptr %job.chunks acquire, align 8
  br label %look

look:
  %ran = phi i32 [ 0, %entry ], [ %ran.next, %run ]
  %first = load atomic i64, ptr %word acquire, align 8
  br label %test

test:
  %w = phi i64 [ %first, %look ], [ %found, %claim ]
  %w.generation = lshr i64 %w, 32
  %same = icmp eq i64 %w.generation, %generation
  %left = and i64 %w, 4294967295
  %some = icmp ne i64 %left, 0
  %claimable = and i1 %same, %some
  br i1 %claimable, label %claim, label %out

claim:
  %w.less = sub i64 %w, 1
  %exchange = cmpxchg ptr %word, i64 %w, i64 %w.less acq_rel acquire
  %found = extractvalue { i64, i1 } %exchange, 0
  %claimed = extractvalue { i64, i1 } %exchange, 1
  br i1 %claimed, label %run, label %test

run:
  %index = sub i64 %chunks, %left
  call void %fn(ptr %ctx, i64 %index)
  %ran.next = add i32 %ran, 1
  br label %look

out:
  ret i32 %ran
}

; Wait until workers have finished so many chunks.
define linkonce_odr void @planish_pool_wait(ptr %pool, i32 %target) nounwind noinline {
entry:
  %finished = field finished
  %futex = field futex
  %wait_spin_ns = field wait_spin_ns
  %number = load i64, ptr %futex
  %patience = load i64, ptr %wait_spin_ns
  br label %start

start:
  %since = call i64 @planish_pool_clock(ptr %pool)
  br label %look

look:
  %polls = phi i32 [ 0, %start ], [ %polls.next, %spin ], [ %polls.next, %timed ], [ 0, %mark ]
  %f = load atomic i32, ptr %finished acquire, align 4
  %count = and i32 %f, 2147483647
  %all = icmp eq i32 %count, %target
  br i1 %all, label %done, label %spin

spin:
  hint
  %polls.next = add i32 %polls, 1
  %phase = and i32 %polls.next, 31
  %round = icmp eq i32 %phase, 0
  br i1 %round, label %timed, label %look

timed:
  %now = call i64 @planish_pool_clock(ptr %pool)
  %spent = sub i64 %now, %since
  %patient = icmp slt i64 %spent, %patience
  %sleepless = icmp eq i64 %number, 0
  %stay = or i1 %patient, %sleepless
  br i1 %stay, label %look, label %mark

mark:
  %marked = or i32 %f, -2147483648
  %exchange = cmpxchg ptr %finished, i32 %f, i32 %marked acq_rel acquire
  %set = extractvalue { i32, i1 } %exchange, 1
  br i1 %set, label %sleep, label %look

sleep:
  %marked.64 = zext i32 %marked to i64
  %r = call i64 (i64, ...) @syscall(
      i64 %number, ptr %finished, i64 FUTEX_WAIT, i64 %marked.64, ptr null)
  br label %start

done:
  ret void
}

; Wake two workers, or as many as are wanted still.
define linkonce_odr void @planish_pool_wake(ptr %pool) nounwind noinline {
entry:
  %word = field word
  %futex = field futex
  %wanted = field wanted
  %lack = load atomic i32, ptr %wanted monotonic, align 4
  %number = load i64, ptr %futex
  %some = icmp sgt i32 %lack, 0
  br i1 %some, label %wake, label %done

wake:
  %n = call i32 @llvm.smin.i32(i32 %lack, i32 2)
  %before = atomicrmw sub ptr %wanted, i32 %n monotonic
  %generation = getelementptr inbounds i8, ptr %word, i64 4
  %n.64 = zext i32 %n to i64
  %r = call i64 (i64, ...) @syscall(i64 %number, ptr %generation, i64 FUTEX_WAKE, i64 %n.64)
  %woken = icmp sgt i64 %r, 0
  br i1 %woken, label %account, label %done

account:
  %r.32 = trunc i64 %r to i32
  %sleepers = field sleepers
  %wakes = field wakes
  %was = atomicrmw sub ptr %sleepers, i32 %r.32 seq_cst
  %counted = atomicrmw add ptr %wakes, i64 %r monotonic
  br label %done

done:
  ret void
}

define linkonce_odr i64 @planish_pool_clock(ptr %pool) nounwind noinline {
  %clock = field clock
  %id = load i32, ptr %clock
  %time = alloca [2 x i64], align 8
  %r = call i32 @clock_gettime(i32 %id, ptr %time)
  %rest = getelementptr inbounds i8, ptr %time, i64 8
  %s = load i64, ptr %time
  %ns = load i64, ptr %rest
  %s.ns = mul i64 %s, 1000000000
  %sum = add i64 %s.ns, %ns
  ret i64 %sum
}

; Take a ticket of the generation, and run what chunks there are; whether there was a ticket.
define linkonce_odr i1 @planish_pool_join(ptr %pool, i64 %w) nounwind noinline {
entry:
  %tickets = field tickets
  %generation = lshr i64 %w, 32
  %left = and i64 %w, 4294967295
  %late = icmp eq i64 %left, 0
  %first = load atomic i64, ptr %tickets monotonic, align 8
  br label %test

test:
  %t = phi i64 [ %first, %entry ], [ %found, %take ]
  %t.generation = lshr i64 %t, 32
  %same = icmp eq i64 %t.generation, %generation
  %remaining = and i64 %t, 4294967295
  %some = icmp ne i64 %remaining, 0
  %granted = and i1 %same, %some
  %takeable = xor i1 %late, true
  %take.it = and i1 %granted, %takeable
  br i1 %take.it, label %take, label %out

take:
  %t.less = sub i64 %t, 1
  %exchange = cmpxchg ptr %tickets, i64 %t, i64 %t.less monotonic monotonic
  %found = extractvalue { i64, i1 } %exchange, 0
  %taken = extractvalue { i64, i1 } %exchange, 1
  br i1 %taken, label %run, label %test

run:
  %ran = call i32 @planish_pool_claim(ptr %pool, i64 %generation)
  %idle = icmp eq i32 %ran, 0
  br i1 %idle, label %out, label %finish

finish:
  %finished = field finished
  %before = atomicrmw add ptr %finished, i32 %ran acq_rel
  %asleep = icmp slt i32 %before, 0
  br i1 %asleep, label %wake, label %out

wake:
  %futex = field futex
  %number = load i64, ptr %futex
  %woken = call i64 (i64, ...) @syscall(i64 %number, ptr %finished, i64 FUTEX_WAKE, i64 1)
  br label %out

out:
  %part = phi i1 [ %granted, %test ], [ true, %run ], [ true, %finish ], [ true, %wake ]
  ret i1 %part
}

; Sleep while the generation is the one seen; whether that was ended by something new.
define linkonce_odr i1 @planish_pool_sleep(ptr %pool, i64 %seen) nounwind noinline {
entry:
  %futex = field futex
  %number = load i64, ptr %futex
  %none = icmp eq i64 %number, 0
  br i1 %none, label %nap, label %sleep

nap:
  %napped = call i32 @usleep(i32 100)
  ret i1 false

sleep:
  %word = field word
  %sleepers = field sleepers
  %sleeps = field sleeps
  %address = getelementptr inbounds i8, ptr %word, i64 4
  %counted = atomicrmw add ptr %sleeps, i64 1 monotonic
  %before = atomicrmw add ptr %sleepers, i32 1 seq_cst
  %r = call i64 (i64, ...) @syscall(
      i64 %number, ptr %address, i64 FUTEX_WAIT, i64 %seen, ptr null)
  %woken = icmp eq i64 %r, 0
  br i1 %woken, label %pass, label %undo

undo:
  %was = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  ret i1 true

pass:
  %w = load atomic i64, ptr %word monotonic, align 8
  %left = and i64 %w, 4294967295
  %open = icmp ne i64 %left, 0
  br i1 %open, label %others, label %out

others:
  call void @planish_pool_wake(ptr %pool)
  br label %out

out:
  ret i1 true
}

; A worker's life. Weak, not linkonce: nothing in its module calls it.
define weak_odr void @planish_pool_worker(ptr %pool) nounwind {
entry:
  %version = field version
  %v = load i32, ptr %version
  %ours = icmp eq i32 %v, VERSION
  br i1 %ours, label %come, label %done

come:
  %stop = field stop
  %workers = field workers
  %word = field word
  %idle_spin_ns = field idle_spin_ns
  %patience = load i64, ptr %idle_spin_ns
  %came = atomicrmw add ptr %workers, i32 1 seq_cst
  br label %fresh

fresh:
  %fresh.seen = phi i64 [ 0, %come ], [ %generation, %join ], [ %seen, %sleep ]
  %since = call i64 @planish_pool_clock(ptr %pool)
  br label %look

look:
  %seen = phi i64 [ %fresh.seen, %fresh ], [ %generation, %join ],
                  [ %seen, %spin ], [ %seen, %timed ], [ %seen, %sleep ]
  %polls = phi i32 [ 0, %fresh ], [ %polls, %join ],
                   [ %polls.next, %spin ], [ %polls.next, %timed ], [ %polls.next, %sleep ]
  %stopping = load atomic i32, ptr %stop monotonic, align 4
  %leave = icmp ne i32 %stopping, 0
  br i1 %leave, label %go, label %poll

poll:
  %w = load atomic i64, ptr %word acquire, align 8
  %generation = lshr i64 %w, 32
  %old = icmp eq i64 %generation, %seen
  br i1 %old, label %spin, label %join

join:
  %part = call i1 @planish_pool_join(ptr %pool, i64 %w)
  br i1 %part, label %fresh, label %look

spin:
  hint
  %polls.next = add i32 %polls, 1
  %phase = and i32 %polls.next, 31
  %round = icmp eq i32 %phase, 0
  br i1 %round, label %timed, label %look

timed:
  %now = call i64 @planish_pool_clock(ptr %pool)
  %spent = sub i64 %now, %since
  %patient = icmp slt i64 %spent, %patience
  br i1 %patient, label %look, label %sleep

sleep:
  %new = call i1 @planish_pool_sleep(ptr %pool, i64 %seen)
  br i1 %new, label %fresh, label %look

go:
  %went = atomicrmw sub ptr %workers, i32 1 seq_cst
  br label %done

done:
  ret void
}
"""

# FUTEX_PRIVATE_FLAG is in both.
_CONSTANTS = {"VERSION": VERSION, "FUTEX_WAIT": 128, "FUTEX_WAKE": 129}

# By the architecture that a triple begins with: what a thread says while it spins.
_HINTS = {
    "x86_64": ("void @llvm.x86.sse2.pause()", "void @llvm.x86.sse2.pause()"),
    "aarch64": ("void @llvm.aarch64.isb(i32)", "void @llvm.aarch64.isb(i32 15)"),
    "arm64": ("void @llvm.aarch64.isb(i32)", "void @llvm.aarch64.isb(i32 15)"),
}


def pool_ir(triple: str = "") -> str:
    """The pool's functions as a module of LLVM IR, for any 64-bit little-endian machine.

    With a ``triple`` they tell that machine when they spin (and are for it alone). They call
    syscall, usleep and clock_gettime of the C library, which the module declares.
    """

    def address(match: re.Match[str]) -> str:
        return f"getelementptr inbounds i8, ptr %pool, i64 {offset(match[1])}"

    declared, called = _HINTS.get(triple.split("-")[0], ("", ""))
    text = re.sub(r"\bfield (\w+)", address, _IR)
    text = re.sub(r"\b[A-Z_]{7,}\b", lambda match: str(_CONSTANTS[match[0]]), text)
    text = re.sub(r"^  hint\n", f"  call {called}\n" if called else "", text, flags=re.M)
    return f"{text}\ndeclare {declared}\n" if declared else text
