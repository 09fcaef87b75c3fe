"""The thread pool's machine code: a parallel loop whose chunks are claimed, not assigned.

``planish_parallel`` offers the chunks of one loop to all threads and claims some itself. At the
end it waits only for chunks that a worker has begun, so a worker that sleeps, or that the system
has moved aside, never delays a call: the caller does that worker's share. The state of the pool is
one `Block`, which ``planish.runtime.pool`` allocates, and whose workers it starts.

**A job.** Under the lock ``busy`` the caller writes ``fn``, ``ctx``, ``chunks`` and ``tickets``,
then *opens* the job by storing ``word = generation << 32 | back << 16 | left`` with ``back`` 0. A
thread claims a chunk by compare-exchange of ``word``: one less is ``left``. The caller claims from
the front, workers from the back, which ``back`` counts. So from loop to loop the same part of an
array tends to be in the same core's cache, without any chunk being assigned. Chunk 0 is the
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

**Sleep.** A worker that finds nothing for ``idle_spin_ns`` sets its slot's ``state``, adds itself
to ``sleepers``, and sleeps in the kernel (futex) unless the generation is a new one by then. The
caller opens the job, then reads ``sleepers``, all sequentially consistent: one of the two sees the
other. Who changes ``state`` from 1 takes the sleeper off ``sleepers``, and no one else may. The
caller wakes no more than the job lacks beyond the workers that are awake, and two at most; each
that wakes up wakes two more. A lost wake-up could only make a job slower. Where there is no futex,
workers that are out of budget look again every 0.1 ms.

**Where a worker wakes up** decides what it is worth. Linux likes to put it on the waker's CPU, in a
virtual machine nearly always: a halted CPU looks taken there. It would push the caller aside, and
the loop would take longer than alone. So the waker takes its own CPU off the sleeper's mask, and
the worker puts it back when it is awake (``excluded`` is theirs in turn, as ``state`` says); and
workers are of the class of batch jobs, whose wake-up doesn't interrupt others.

**Alone.** A call runs its chunks in order on its own thread if there is no pool, no worker, one
chunk or one thread, 2^16 chunks or more, or a block of another version (made by another release),
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
VERSION = 2

# Twice a line of most caches: neighbouring lines are fetched in pairs, and some machines have 128.
LINE_BYTES = 128

# How many workers a pool may have.
MOST_WORKERS = 256


class Slot(ctypes.Structure):
    """What there is of each worker."""

    _fields_ = (
        ("state", ctypes.c_uint32),  # 0: awake, 1: asleep, on this field, 2: being woken
        ("thread", ctypes.c_int32),  # its number in system calls
        ("excluded", ctypes.c_int32),  # 1 + the CPU that is off its mask for its wake-up, or 0
    )


# The block's fields, those of one line together: who writes them, and when.
_LINES: tuple[tuple[tuple[str, type], ...], ...] = (
    (  # settings: written before a worker starts
        ("version", ctypes.c_uint32),
        ("clock", ctypes.c_int32),  # of clock_gettime
        ("idle_spin_ns", ctypes.c_int64),  # how long a worker looks for a job before it sleeps
        ("wait_spin_ns", ctypes.c_int64),  # how long a caller waits for chunks before it sleeps
        # The numbers of Linux's system calls; futex 0: this is not Linux, and none is made.
        ("futex", ctypes.c_int64),
        ("gettid", ctypes.c_int64),
        ("getcpu", ctypes.c_int64),
        ("sched_getaffinity", ctypes.c_int64),
        ("sched_setaffinity", ctypes.c_int64),
        ("sched_setscheduler", ctypes.c_int64),
    ),
    (
        ("stop", ctypes.c_uint32),  # workers are to return
        ("started", ctypes.c_uint32),  # slots in use
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
        ("sleepers", ctypes.c_int32),  # workers whose state is 1
        ("wanted", ctypes.c_int32),  # workers still to be woken for this job
        ("sleeps", ctypes.c_uint64),  # so far
        ("wakes", ctypes.c_uint64),  # so far
    ),
    (("refused", ctypes.c_uint64),),  # calls that found the pool busy so far
    (("slots", Slot * MOST_WORKERS),),
)


def _fields() -> Iterator[tuple[str, type]]:
    for number, line in enumerate(_LINES):
        used = ctypes.sizeof(type("Line", (ctypes.Structure,), {"_fields_": line}))
        yield from line
        yield f"_{number}", ctypes.c_char * (-used % LINE_BYTES)


class Block(ctypes.Structure):
    """The pool's state, as machine code and Python share it; to be aligned to `LINE_BYTES`."""

    _fields_ = tuple(_fields())

    version: int
    clock: int
    idle_spin_ns: int
    wait_spin_ns: int
    futex: int
    sched_setscheduler: int
    stop: int
    started: int
    workers: int
    word: int
    busy: int
    jobs: int
    shared: int
    sleepers: int
    sleeps: int
    wakes: int
    refused: int
    slots: ctypes.Array[Slot]

    def clear(self) -> None:
        """Make a block without workers, jobs or counts of it, whatever it held; keep the settings.

        The generation goes on, so that what was claimed before cannot be claimed again.
        """
        generation = self.word >> 32
        settings = {name: getattr(self, name) for name, _ in _LINES[0]}
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
declare i64 @llvm.vector.reduce.or.vMASK_WORDSi64(<MASK_WORDS x i64>)

define linkonce_odr void @planish_parallel(
    ptr %pool, ptr %fn, ptr %ctx, i64 %chunks, i64 %threads) nounwind {
entry:
  %none = icmp eq ptr %pool, null
  br i1 %none, label %alone, label %size

size:
  %most = call i64 @llvm.smin.i64(i64 %chunks, i64 %threads)
  %small = icmp slt i64 %most, 2
  %large = icmp sgt i64 %chunks, 65535
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
  %claimed = call i32 @planish_pool_claim(ptr %pool, i64 %generation, i1 false)
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

; Run chunks of a generation, from the back or the front, until none is left; how many they were.
define linkonce_odr i32 @planish_pool_claim(ptr %pool, i64 %generation, i1 %end) nounwind noinline {
entry:
  %step = select i1 %end, i64 65535, i64 -1
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
  %left = and i64 %w, 65535
  %back.high = lshr i64 %w, 16
  %back = and i64 %back.high, 65535
  %some = icmp ne i64 %left, 0
  %claimable = and i1 %same, %some
  br i1 %claimable, label %claim, label %out

claim:
  %w.less = add i64 %w, %step
  %exchange = cmpxchg ptr %word, i64 %w, i64 %w.less acq_rel acquire
  %found = extractvalue { i64, i1 } %exchange, 0
  %claimed = extractvalue { i64, i1 } %exchange, 1
  br i1 %claimed, label %run, label %test

run:
  %before.end = sub i64 %chunks, %back
  %front.index = sub i64 %before.end, %left
  %back.index = sub i64 %before.end, 1
  %index = select i1 %end, i64 %back.index, i64 %front.index
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
  %started = field started
  %slots = field slots
  %getcpu = field getcpu
  %wanted = field wanted
  %cpu.at = alloca i32, align 4
  store i32 -1, ptr %cpu.at
  %lack = load atomic i32, ptr %wanted monotonic, align 4
  %most = call i32 @llvm.smin.i32(i32 %lack, i32 2)
  %none = icmp slt i32 %most, 1
  br i1 %none, label %done, label %begin

begin:
  %before = atomicrmw sub ptr %wanted, i32 %most monotonic
  %count = load atomic i32, ptr %started acquire, align 4
  %number = load i64, ptr %getcpu
  %r = call i64 (i64, ...) @syscall(i64 %number, ptr %cpu.at, ptr null, ptr null)
  %cpu = load i32, ptr %cpu.at
  br label %slot

slot:
  %i = phi i32 [ 0, %begin ], [ %i.next, %next ]
  %n = phi i32 [ %most, %begin ], [ %n.next, %next ]
  %state = getelementptr inbounds [SLOT_BYTES x i8], ptr %slots, i32 %i
  %s = load atomic i32, ptr %state monotonic, align 4
  %asleep = icmp eq i32 %s, 1
  br i1 %asleep, label %claim, label %next

claim:
  %exchange = cmpxchg ptr %state, i32 1, i32 2 acq_rel monotonic
  %claimed = extractvalue { i32, i1 } %exchange, 1
  br i1 %claimed, label %rouse, label %next

rouse:
  call void @planish_pool_rouse(ptr %pool, ptr %state, i32 %cpu)
  %n.less = sub i32 %n, 1
  br label %next

next:
  %n.next = phi i32 [ %n, %slot ], [ %n, %claim ], [ %n.less, %rouse ]
  %i.next = add i32 %i, 1
  %more = icmp ult i32 %i.next, %count
  %lacking = icmp ne i32 %n.next, 0
  %again = and i1 %more, %lacking
  br i1 %again, label %slot, label %done

done:
  ret void
}

; Wake the worker of a slot whose state is 2, on any CPU but the waker's.
define linkonce_odr void @planish_pool_rouse(ptr %pool, ptr %slot, i32 %cpu) nounwind noinline {
entry:
  %sleepers = field sleepers
  %wakes = field wakes
  %futex = field futex
  %getaffinity = field sched_getaffinity
  %setaffinity = field sched_setaffinity
  %thread = getelementptr inbounds i8, ptr %slot, i64 THREAD
  %excluded = getelementptr inbounds i8, ptr %slot, i64 EXCLUDED
  %mask = alloca <MASK_WORDS x i64>, align 8
  %was = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  %counted = atomicrmw add ptr %wakes, i64 1 monotonic
  %known = icmp ult i32 %cpu, MASK_BITS
  br i1 %known, label %get, label %wake

get:
  %get.number = load i64, ptr %getaffinity
  %set.number = load i64, ptr %setaffinity
  %id = load i32, ptr %thread
  store <MASK_WORDS x i64> zeroinitializer, ptr %mask, align 8
  %got = call i64 (i64, ...) @syscall(
      i64 %get.number, i32 %id, i64 MASK_BYTES, ptr %mask)
  %index = lshr i32 %cpu, 6
  %word = getelementptr inbounds i64, ptr %mask, i32 %index
  %shift = and i32 %cpu, 63
  %shift.64 = zext i32 %shift to i64
  %bit = shl i64 1, %shift.64
  %old = load i64, ptr %word
  %others = xor i64 %bit, -1
  %new = and i64 %old, %others
  store i64 %new, ptr %word
  %rest = load <MASK_WORDS x i64>, ptr %mask, align 8
  %any = call i64 @llvm.vector.reduce.or.vMASK_WORDSi64(<MASK_WORDS x i64> %rest)
  %changed = icmp ne i64 %new, %old
  %some = icmp ne i64 %any, 0
  %useful = and i1 %changed, %some
  br i1 %useful, label %set, label %wake

set:
  %failed = call i64 (i64, ...) @syscall(
      i64 %set.number, i32 %id, i64 MASK_BYTES, ptr %mask)
  %works = icmp eq i64 %failed, 0
  br i1 %works, label %note, label %wake

note:
  %cpu.next = add i32 %cpu, 1
  store i32 %cpu.next, ptr %excluded
  br label %wake

wake:
  %number = load i64, ptr %futex
  store atomic i32 0, ptr %slot release, align 4
  %woken = call i64 (i64, ...) @syscall(i64 %number, ptr %slot, i64 FUTEX_WAKE, i64 1)
  ret void
}

; Give this worker back the CPU that it was not to wake up on.
define linkonce_odr void @planish_pool_include(ptr %pool, ptr %slot) nounwind noinline {
entry:
  %getaffinity = field sched_getaffinity
  %setaffinity = field sched_setaffinity
  %excluded = getelementptr inbounds i8, ptr %slot, i64 EXCLUDED
  %cpu.next = load i32, ptr %excluded
  %none = icmp eq i32 %cpu.next, 0
  br i1 %none, label %done, label %get

get:
  %mask = alloca <MASK_WORDS x i64>, align 8
  store <MASK_WORDS x i64> zeroinitializer, ptr %mask, align 8
  %get.number = load i64, ptr %getaffinity
  %set.number = load i64, ptr %setaffinity
  %got = call i64 (i64, ...) @syscall(
      i64 %get.number, i32 0, i64 MASK_BYTES, ptr %mask)
  %read = icmp sgt i64 %got, 0
  br i1 %read, label %set, label %clear

set:
  %cpu = sub i32 %cpu.next, 1
  %index = lshr i32 %cpu, 6
  %word = getelementptr inbounds i64, ptr %mask, i32 %index
  %shift = and i32 %cpu, 63
  %shift.64 = zext i32 %shift to i64
  %bit = shl i64 1, %shift.64
  %old = load i64, ptr %word
  %new = or i64 %old, %bit
  store i64 %new, ptr %word
  %failed = call i64 (i64, ...) @syscall(
      i64 %set.number, i32 0, i64 MASK_BYTES, ptr %mask)
  br label %clear

clear:
  store i32 0, ptr %excluded
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
  %left = and i64 %w, 65535
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
  %ran = call i32 @planish_pool_claim(ptr %pool, i64 %generation, i1 true)
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

; Sleep while the generation is the one seen; whether it makes sense to spin afterwards.
define linkonce_odr i1 @planish_pool_sleep(ptr %pool, ptr %slot, i64 %seen) nounwind noinline {
entry:
  %futex = field futex
  %number = load i64, ptr %futex
  %none = icmp eq i64 %number, 0
  br i1 %none, label %nap, label %settle

nap:
  %napped = call i32 @usleep(i32 100)
  ret i1 false

settle:
  %word = field word
  %sleepers = field sleepers
  %sleeps = field sleeps
  %before = load atomic i32, ptr %slot acquire, align 4
  %touched = icmp ne i32 %before, 0
  br i1 %touched, label %out, label %announce

announce:
  call void @planish_pool_include(ptr %pool, ptr %slot)
  %counted = atomicrmw add ptr %sleeps, i64 1 monotonic
  %was.state = atomicrmw xchg ptr %slot, i32 1 seq_cst
  %was = atomicrmw add ptr %sleepers, i32 1 seq_cst
  %w = load atomic i64, ptr %word seq_cst, align 8
  %generation = lshr i64 %w, 32
  %same = icmp eq i64 %generation, %seen
  br i1 %same, label %sleep, label %wake

sleep:
  %r = call i64 (i64, ...) @syscall(i64 %number, ptr %slot, i64 FUTEX_WAIT, i64 1, ptr null)
  br label %wake

wake:
  %exchange = cmpxchg ptr %slot, i32 1, i32 0 acq_rel acquire
  %state = extractvalue { i32, i1 } %exchange, 0
  %alone = extractvalue { i32, i1 } %exchange, 1
  br i1 %alone, label %undo, label %woken

undo:
  %undone = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  br label %out

woken:
  %complete = icmp eq i32 %state, 0
  br i1 %complete, label %include, label %others

include:
  call void @planish_pool_include(ptr %pool, ptr %slot)
  br label %others

others:
  %w.now = load atomic i64, ptr %word monotonic, align 8
  %left = and i64 %w.now, 65535
  %open = icmp ne i64 %left, 0
  br i1 %open, label %pass, label %out

pass:
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
  br i1 %ours, label %enter, label %done

enter:
  %started = field started
  %index = atomicrmw add ptr %started, i32 1 acq_rel
  %fits = icmp ult i32 %index, MOST_WORKERS
  br i1 %fits, label %come, label %done

come:
  %stop = field stop
  %workers = field workers
  %slots = field slots
  %idle_spin_ns = field idle_spin_ns
  %futex = field futex
  %gettid = field gettid
  %setscheduler = field sched_setscheduler
  %word = field word
  %priority = alloca i64, align 8
  %patience = load i64, ptr %idle_spin_ns
  %slot = getelementptr inbounds [SLOT_BYTES x i8], ptr %slots, i32 %index
  %number = load i64, ptr %futex
  %calls = icmp ne i64 %number, 0
  br i1 %calls, label %present, label %begin

present:
  %thread = getelementptr inbounds i8, ptr %slot, i64 THREAD
  %gettid.number = load i64, ptr %gettid
  %id = call i64 (i64, ...) @syscall(i64 %gettid.number)
  %id.32 = trunc i64 %id to i32
  store i32 %id.32, ptr %thread
  store i64 0, ptr %priority
  %setscheduler.number = load i64, ptr %setscheduler
  %set = call i64 (i64, ...) @syscall(
      i64 %setscheduler.number, i64 0, i64 SCHED_BATCH, ptr %priority)
  br label %begin

begin:
  %came = atomicrmw add ptr %workers, i32 1 seq_cst
  br label %fresh

fresh:
  %fresh.seen = phi i64 [ 0, %begin ], [ %generation, %join ], [ %seen, %sleep ]
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
  %new = call i1 @planish_pool_sleep(ptr %pool, ptr %slot, i64 %seen)
  br i1 %new, label %fresh, label %look

go:
  %went = atomicrmw sub ptr %workers, i32 1 seq_cst
  br label %done

done:
  ret void
}
"""

# FUTEX_PRIVATE_FLAG is in both.
_CONSTANTS = {
    "VERSION": VERSION,
    "FUTEX_WAIT": 128,
    "FUTEX_WAKE": 129,
    "SCHED_BATCH": 3,
    "MOST_WORKERS": MOST_WORKERS,
    "SLOT_BYTES": ctypes.sizeof(Slot),
    "THREAD": Slot.thread.offset,
    "EXCLUDED": Slot.excluded.offset,
    "MASK_WORDS": 16,
    "MASK_BYTES": 16 * 8,
    "MASK_BITS": 16 * 64,
}

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
    text = re.sub("|".join(_CONSTANTS), lambda match: str(_CONSTANTS[match[0]]), text)
    text = re.sub(r"^  hint\n", f"  call {called}\n" if called else "", text, flags=re.M)
    return f"{text}\ndeclare {declared}\n" if declared else text
