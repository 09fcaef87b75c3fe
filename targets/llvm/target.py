"""CPUs through LLVM: which one, and exactly which instructions code for it may use.

A target names a CPU (for LLVM's tuning) and lists the features that code may use; all others that
LLVM could use by itself are turned off, so that a module file can say what a machine needs to have.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final

import llvmlite.binding as llvm

from planish.compiler.errors import CodegenError, ParseError
from planish.compiler.machine import Machine, host_machine, machine_with
from planish.targets.target import Target

if TYPE_CHECKING:
    from planish.compiler.program import Program
    from planish.targets.target import Code, Progress

# What changes the code that LLVM makes, by architecture. Other features (key locker, memory
# tagging ...) need an intrinsic of their own to be used.
CODE_FEATURES: Final[dict[str, tuple[str, ...]]] = {
    "x86_64": (
        "sse3", "ssse3", "sse4.1", "sse4.2", "sse4a", "popcnt", "cx16", "sahf", "crc32",
        "avx", "f16c", "fma", "fma4", "xop", "tbm", "avx2", "bmi", "bmi2", "lzcnt", "movbe", "adx",
        "aes", "pclmul", "sha", "gfni", "vaes", "vpclmulqdq",
        "avxvnni", "avxvnniint8", "avxvnniint16", "avxifma", "avxneconvert",
        "avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl", "avx512ifma", "avx512vbmi",
        "avx512vbmi2", "avx512vnni", "avx512bitalg", "avx512vpopcntdq", "avx512bf16", "avx512fp16",
        "avx512vp2intersect", "avx10.1", "avx10.2", "amx-tile", "amx-int8", "amx-bf16", "amx-fp16",
        "egpr", "ndd", "ccmp", "cf", "nf", "zu", "ppx", "push2pop2",
    ),
    "aarch64": (
        "neon", "fp-armv8", "crc", "lse", "lse2", "rdm", "rcpc", "fullfp16", "fp16fml", "dotprod",
        "i8mm", "bf16", "sve", "sve2", "aes", "sha2", "sha3", "sm4", "jsconv", "complxnum", "flagm",
        "fptoint", "altnzcv",
    ),
}  # fmt: skip

_V2: Final = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16", "sahf", "crc32")
_V3: Final = (*_V2, "avx", "f16c", "fma", "avx2", "bmi", "bmi2", "lzcnt", "movbe")
_V4: Final = (*_V3, "avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl")
_ICE: Final = (
    *_V4, "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vnni", "avx512bitalg",
    "avx512vpopcntdq", "gfni",
)  # fmt: skip
_V8: Final = ("neon", "fp-armv8")
_V82: Final = (*_V8, "crc", "lse", "rdm", "rcpc", "fullfp16", "dotprod")

# What CPUs that are not at hand have; of x86-64 at least what makes a difference to kernels.
CPUS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "x86_64": {
        "x86-64": (),
        "x86-64-v2": _V2, "nehalem": _V2,
        "x86-64-v3": _V3, "haswell": _V3, "broadwell": _V3, "skylake": _V3, "znver1": _V3,
        "znver2": _V3, "znver3": _V3, "alderlake": (*_V3, "avxvnni"),
        "x86-64-v4": _V4, "skylake-avx512": _V4, "cascadelake": (*_V4, "avx512vnni"),
        "icelake-client": _ICE, "icelake-server": _ICE,
        "sapphirerapids": (*_ICE, "avx512bf16", "avxvnni"),
        "znver4": (*_ICE, "avx512bf16"), "znver5": (*_ICE, "avx512bf16", "avxvnni"),
    },
    "aarch64": {
        "generic": _V8, "cortex-a53": _V8, "cortex-a57": _V8, "cortex-a72": _V8,
        "cortex-a55": _V82, "cortex-a75": _V82, "cortex-a76": _V82, "cortex-a77": _V82,
        "cortex-a78": _V82, "cortex-x1": _V82, "neoverse-n1": _V82, "apple-m1": _V82,
        "neoverse-v1": (*_V82, "i8mm", "bf16"), "neoverse-n2": (*_V82, "i8mm", "bf16"),
        "neoverse-v2": (*_V82, "i8mm", "bf16"), "apple-m2": (*_V82, "i8mm", "bf16"),
    },
}  # fmt: skip


@dataclass(frozen=True)
class Llvm(Target):
    """A CPU: LLVM's name of it, the triple, and the features that code may use, sorted."""

    name: ClassVar[str] = "llvm"

    cpu: str
    triple: str
    features: tuple[str, ...]

    def __str__(self) -> str:
        attributes = ",".join(f"+{f}" for f in self.features)
        text = f"llvm -mcpu={self.cpu} -mtriple={self.triple}"
        return f"{text} -mattr={attributes}" if attributes else text

    @property
    def architecture(self) -> str:
        """``x86_64``, ``aarch64`` ..."""
        return architecture_of(self.triple)

    @property
    def machine(self) -> Machine:
        features = frozenset(self.features)
        if self.is_host:
            return host_machine(self.architecture, features)
        return machine_with(self.architecture, features)

    @property
    def is_host(self) -> bool:
        """Whether this is the machine at hand (all that it has, not merely what it can run)."""
        return self == host()

    @property
    def missing(self) -> tuple[str, ...]:
        """What the machine at hand lacks to run code for this target; empty if it can."""
        here = host()
        if self.architecture != here.architecture:
            return (f"a CPU of the architecture {self.architecture}",)
        if system_of(self.triple) != system_of(here.triple):
            return (f"the system {system_of(self.triple)}",)
        return tuple(f for f in self.features if f not in here.features)

    def code(self, program: Program, say: Progress = lambda _: None) -> Code:
        from .program import native_code

        return native_code(program, self, say)

    def llvm_machine(self, level: int = 2) -> Any:
        """A new LLVM target machine, for position-independent code at a level of effort.

        Errors: CodegenError if this LLVM does not have the target.
        """
        initialize(self.architecture)
        known = CODE_FEATURES.get(self.architecture, ())
        if self.architecture == host().architecture and (names := _host_features()):
            known = tuple(f for f in known if f in names)
        off = [f"-{f}" for f in known if f not in self.features]
        try:
            return llvm.Target.from_triple(self.triple).create_target_machine(
                cpu=self.cpu,
                features=",".join([*(f"+{f}" for f in self.features), *off]),
                opt=level,
                reloc="pic",
                codemodel="small",
            )
        except RuntimeError as error:
            raise CodegenError(f"LLVM has no target for {self.triple}: {error}") from error


def architecture_of(triple: str) -> str:
    """The architecture that a triple begins with, under one name."""
    first = triple.split("-")[0].lower()
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(first, first)


def system_of(triple: str) -> str:
    """The operating system that a triple names; empty if it names none."""
    known = ("linux", "darwin", "macos", "windows", "freebsd")
    return next((s for s in known if s in triple.lower()), "").replace("macos", "darwin")


@cache
def initialize(architecture: str) -> None:
    """Have LLVM ready for an architecture."""
    if architecture == architecture_of(llvm.get_default_triple()):
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    else:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()


@cache
def _host_features() -> dict[str, bool]:
    try:
        return dict(llvm.get_host_cpu_features())
    except RuntimeError:  # LLVM cannot tell on this system
        return {}


@cache
def host() -> Llvm:
    """The machine at hand."""
    triple: str = llvm.get_process_triple()
    architecture = architecture_of(triple)
    has = _host_features()
    known = CODE_FEATURES.get(architecture, ())
    features = (
        sorted(f for f in known if has.get(f))
        if has
        else CPUS.get(architecture, {}).get("generic", ())
    )
    return Llvm(llvm.get_host_cpu_name(), triple, tuple(features))


def parse_llvm(text: str, options: list[str]) -> Llvm:
    """The target of ``llvm`` with these options.

    Errors: ParseError naming the option, or a CPU of which nothing is known.
    """
    given: dict[str, str] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if key not in ("-mcpu", "-mtriple", "-mattr") or not equals or not value or key in given:
            raise ParseError(
                f"{option!r} is no option of a target",
                op="target",
                node=text,
                hint="-mcpu=CPU, -mtriple=TRIPLE and -mattr=+FEATURE,...",
            )
        given[key] = value
    if not given:
        return host()
    triple = given.get("-mtriple", host().triple)
    if system_of(triple) not in ("", "linux", system_of(host().triple)):
        raise ParseError(
            f"{triple} is not Linux, for which alone code is made",
            op="target",
            node=text,
            hint=f"-mtriple={architecture_of(triple)}-linux-gnu",
        )
    cpu = given.get("-mcpu", "")
    if "-mattr" not in given:
        features = _of_cpu(cpu, triple, text)
    else:
        features = _attributes(text, given["-mattr"], architecture_of(triple))
    if not cpu:
        cpu = "x86-64" if architecture_of(triple) == "x86_64" else "generic"
    if "-mattr" in given:
        _ask_llvm(cpu, triple, features, text)
    return Llvm(cpu, triple, features)


def _attributes(text: str, value: str, architecture: str) -> tuple[str, ...]:
    known = CODE_FEATURES.get(architecture)
    out = set()
    for word in value.split(","):
        if not word.startswith("+") or len(word) < 2:
            raise ParseError(
                f"{word!r} is no feature",
                op="target",
                node=text,
                hint="write -mattr=+avx2,+fma: what is not listed is not used",
            )
        if known is not None and word[1:] not in known:
            raise ParseError(
                f"{word!r} is no feature of {architecture} that code can use",
                op="target",
                node=text,
                hint=f"one of: {' '.join(sorted(known))}",
            )
        out.add(word[1:])
    return tuple(sorted(out))


def _ask_llvm(cpu: str, triple: str, features: tuple[str, ...], text: str) -> None:
    """Whether LLVM knows a CPU and features that are in no table here.

    Errors: ParseError naming what it does not know.
    """
    architecture = architecture_of(triple)
    listed = cpu in CPUS.get(architecture, ()) or cpu == host().cpu
    if architecture in CODE_FEATURES and listed:
        return
    if said := _complaint(cpu, triple, ",".join(f"+{f}" for f in features)):
        raise ParseError(f"LLVM says: {said}", op="target", node=text)


@cache
def _complaint(cpu: str, triple: str, features: str) -> str:
    """What LLVM has against a CPU or features; it writes that to stderr, and goes on."""
    import subprocess  # rarely needed, and loading a module is to be fast

    program = (
        "import sys, llvmlite.binding as llvm\n"
        "llvm.initialize_all_targets(), llvm.initialize_all_asmprinters()\n"
        "target = llvm.Target.from_triple(sys.argv[1])\n"
        "target.create_target_machine(cpu=sys.argv[2], features=sys.argv[3])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, triple, cpu, features],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    # An unknown architecture is an error when code is made.
    return (done.stderr.splitlines() or [""])[0] if done.returncode == 0 else ""


def _of_cpu(cpu: str, triple: str, text: str) -> tuple[str, ...]:
    known = CPUS.get(architecture_of(triple), {})
    if not cpu:
        return tuple(sorted(known.get("generic", ())))
    if cpu not in known:
        others = [name for name, cpus in CPUS.items() if cpu in cpus]
        if others:
            raise ParseError(
                f"the CPU {cpu!r} is none of {triple}",
                op="target",
                node=text,
                hint=f"add -mtriple={others[0]}-linux-gnu",
            )
        raise ParseError(
            f"nothing is known of the CPU {cpu!r} of {triple}",
            op="target",
            node=text,
            hint=f"list its features with -mattr=+..., or take one of: {' '.join(known) or 'none'}",
        )
    return tuple(sorted(known[cpu]))
