"""What the layout promises: who may import, include, call whom, and how long things may get."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import require
from setupkit import ROOT, setup_file

SANDBOX = ROOT / "src" / "sandbox"
CORE = ROOT / "src" / "_sandcore" / "core"
HELPER = ROOT / "src" / "_sandcore" / "helper"
LAUNCHER = ROOT / "src" / "_sandcore" / "launcher"

# Lowest first; a module may import only what stands before it.
LADDER = (
    "version",
    "printed",
    "locks",
    "errors",
    "paths",
    "limits",
    "variables",
    "environ",
    "entries",
    "secrets",
    "command.verdict",
    "command.words",
    "command.parse",
    "command.options",
    "command.tables",
    "command.programs",
    "command.wrappers",
    "command.dangers",
    "command.git",
    "command.rules",
    "command.context",
    "command.judge",
    "command.assess",
    "command",
    "parts",
    "policy",
    "presets",
    "denial",
    "protected",
    "profile",
    "profile.locate",
    "profile.values",
    "profile.where",
    "profile.wrong",
    "profile.document",
    "profile.explain",
    "profile.reading",
    "profile.settings",
    "profile.compose",
    "profile.grants",
    "profile.widths",
    "profile.tighten",
    "profile.differ",
    "profile.guarding",
    "profile.load",
    "loading",
    "links",
    "named",
    "workplace",
    "resolve",
    "narrow",
    "messages",
    "refused",
    "result",
    "notice",
    "diagnose",
    "host",
    "mends",
    "advice",
    "backends",
    "backends.search",
    "backends.sbpl",
    "backends.spelled",
    "backends.seatbelt",
    "docks",
    "backends.jobs",
    "backends.base",
    "backends.attempts",
    "denials",
    "request",
    "backends.aliases",
    "backends.searched",
    "backends.cover",
    "backends.rules",
    "backends.basis",
    "backends.notices",
    "backends.resting",
    "backends.refusals",
    "backends.enforceable",
    "backends.layout",
    "backends.namespaces",
    "backends.moored",
    "backends.rlimits",
    "backends.nofollow",
    "backends.snapshot",
    "backends.watched",
    "backends.restore",
    "backends.guard",
    "backends.journal",
    "backends.ground",
    "backends.launch",
    "backends.prepared",
    "backends.scratch",
    "backends.temporary",
    "backends.audit",
    "backends.running",
    "backends.direct",
    "backends.joint",
    "backends.seat",
    "backends.confinement",
    "backends.linux",
    "backends.settings",
    "backends.apple",
    "backends.frames",
    "backends.keeper",
    "backends.captured",
    "backends.kept",
    "backends.threads",
    "backends.unenforced",
    "backends.explain_seatbelt",
    "backends.macos_seat",
    "backends.macos",
    "backends.choose",
    "backends.compiled",
    "backends.explain",
    "communicate",
    "streams",
    "process",
    "boundary",
    "reach",
    "transfer",
    "files",
    "live",
    "shared",
    "flights",
    "bars",
    "batch",
    "pool",
    "loops",
    "pipes",
    "towers",
    "aio_batch",
    "aio",
    "headers",
    "handed",
    "children",
    "subprocess",
    "session.events",
    "session.lines",
    "session.segments",
    "session.mending",
    "session.log",
    "session.chain",
    "session.decide",
    "session.prefixes",
    "session.keys",
    "session.approval",
    "session.approvers",
    "session.prompt",
    "session.trust",
    "session.trustfile",
    "session.escalation",
    "session.shown",
    "session.values",
    "session.deltas",
    "session.boxes",
    "session.drafts",
    "session.patch",
    "session.envelope",
    "session.edit",
    "session.perform",
    "session.changes",
    "session.watching",
    "session.recorder",
    "session.session",
    "session.judging",
    "session.pipeline",
    "session.editing",
    "session.calls",
    "session.aio",
    "session",
    "",  # the package itself: re-exports what is below, and the command line is above it
    "cli",
    "cli.text",
    "cli.lazy",
    "cli.stops",
    "cli.waiting",
    "cli.tables",
    "cli.version",
    "cli.options",
    "cli.report",
    "cli.doctor",
    "cli.checkup",
    "cli.bpf",
    "cli.bench",
    "cli.mechanisms",
    "cli.seatbelt",
    "cli.debug",
    "cli.run",
    "cli.policy",
    "cli.sessions",
    "cli.exec",
    "cli.shell",
    "cli.records",
    "cli.log",
    "cli.trust",
    "cli.compile",
    "cli.main",
    "__main__",
)
IMPORTS_THE_CORE = {
    "backends.basis",
    "backends.compiled",
    "backends.confinement",
    "backends.direct",
    "backends.explain",
    "backends.ground",
    "backends.joint",
    "backends.journal",
    "backends.launch",
    "backends.linux",
    "backends.moored",
    "backends.namespaces",
    "backends.notices",
    "backends.resting",
    "backends.running",
    "backends.seat",
}
# What `import sandbox` must not bring: each costs more than a confined command.
HEAVY = (
    "click",
    "rich",
    "psutil",
    "msgspec",
    "tomllib",
    "sandbox.profile",
    "tree_sitter",
    "tree_sitter_bash",
    "sandbox.command",
    "asyncio",
    "importlib.metadata",
    "subprocess",
    "sandbox.subprocess",
    "sandbox.session",
)

# Headers that declare types, constants and system calls of the kernel.
KERNEL_HEADERS = re.compile(
    r"(linux|asm)/\w+\.h|sys/(syscall|mman|resource|signalfd|socket|wait)\.h"
)
FREESTANDING_HEADERS = {
    "errno.h",
    "fcntl.h",
    "poll.h",
    "signal.h",
    "stdalign.h",
    "stdbool.h",
    "stddef.h",
    "stdint.h",
    "string.h",
    "time.h",
}
CALLER_HEADERS = FREESTANDING_HEADERS | {
    "limits.h",
    "pthread.h",
    "stdlib.h",
    "sys/epoll.h",
    "sys/eventfd.h",
    "sys/ioctl.h",
    "sys/mman.h",
    "sys/stat.h",
    "sys/timerfd.h",
    "sys/types.h",
    "sys/un.h",
    "sys/utsname.h",
    "unistd.h",
}
# The compiler calls these four by itself; mem.c has them where there is no C library.
COMPILER_CALLS = {"memcpy", "memmove", "memset", "memcmp", "strlen"}
CHILD_CALLS = COMPILER_CALLS | {"landlock_restrict"}

# The design's sizes (60, 40, 300) with a fifth of slack.
C_FUNCTION_LINES = 72
PYTHON_FUNCTION_LINES = 48
FILE_LINES = 360


def modules() -> dict[str, Path]:
    """Name below `sandbox` -> file; packages by their own name."""
    found = {}
    for path in sorted(SANDBOX.rglob("*.py")):
        parts = path.relative_to(SANDBOX).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path) -> set[str]:
    """Full names of what a file imports anywhere, each `from a import b` as a.b and as a."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}:{node.lineno}: imports are absolute"
            assert node.module is not None
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def inner_imports(path: Path) -> set[str]:
    """Names below `sandbox` of the modules of ours that a file imports."""
    known = modules()
    found = set()
    for name in imports(path):
        head, _, tail = name.partition(".")
        if head == "sandbox" and tail in known:
            found.add(tail)
    return found


def freestanding() -> list[Path]:
    """The sources of sandcore-helper and sandcore-exec."""
    ours = [path for home in (HELPER, LAUNCHER) for path in sorted(home.glob("*.c"))]
    return [*ours, *(CORE / name for name in setup_file().HELPER_CORE)]


def includes(path: Path) -> set[str]:
    return set(re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)', path.read_text(), re.MULTILINE))


def undefined(source: Path, out: Path) -> tuple[set[str], set[str]]:
    """Names that an object file wants, and names that it offers."""
    target = out / (source.stem + ".o")
    flags = ["-std=c11", "-O2", f"-I{CORE}", f"-I{HELPER}"]
    subprocess.run([*require.compiler(), *flags, "-c", source, "-o", target], check=True)
    listing = subprocess.run(["nm", target], capture_output=True, text=True, check=True).stdout
    symbols = [line.split()[-2:] for line in listing.splitlines()]
    wants = {name for kind, name in symbols if kind == "U"} - {"_GLOBAL_OFFSET_TABLE_"}
    return wants, {name for kind, name in symbols if kind.isupper() and kind != "U"}


def c_functions(text: str) -> list[tuple[str, int]]:
    """Name and number of lines of each function, from its signature to the closing brace.

    Relies on what clang-format gives: bodies are indented, signatures and closing braces are not.
    """
    found = []
    lines = text.splitlines()
    end = -1
    for number, line in enumerate(lines):
        if number <= end:
            continue
        if line != "{" and not re.fullmatch(r"\S.*\) \{|\s+.*\w\) \{", line):
            continue
        start = number
        while start > 0 and re.match(r"[\w ]", lines[start - 1]) and lines[start][:1] in " {":
            start -= 1
        signature = re.match(r"\w[^=]*?(\w+)\(", " ".join(lines[start : number + 1]))
        if signature is None:
            continue
        end = lines.index("}", number)
        found.append((signature.group(1), end - start + 1))
    return found


def test_every_module_stands_on_the_ladder() -> None:
    strangers = set(modules()) - set(LADDER)
    assert not strangers, f"add to LADDER in {Path(__file__).name}: {sorted(strangers)}"


@pytest.mark.parametrize("name", modules())
def test_imports_only_go_down_the_ladder(name: str) -> None:
    below = LADDER[: LADDER.index(name)] if name in LADDER else ()
    for used in inner_imports(modules()[name]):
        # Naming a module of a package names the package too: that is not a use of it.
        is_own_package = name.startswith(used + ".") or used == ""
        assert used in below or is_own_package, f"{name or 'sandbox'} imports {used}: upwards"


def test_values_are_not_taken_from_the_package_by_its_own_modules() -> None:
    """`from sandbox import x` inside the package is an import of everything."""
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "sandbox":
                taken = {alias.name for alias in node.names} - set(modules())
                assert not taken or name.startswith("cli"), f"{name} takes {taken} from sandbox"


def test_one_module_knows_the_compiled_core() -> None:
    users = {
        name
        for name, path in modules().items()
        if any(used.split(".")[0] == "_sandcore" for used in imports(path))
    }
    assert users <= IMPORTS_THE_CORE


def test_importing_sandbox_brings_nothing_heavy() -> None:
    program = f"import sys, sandbox; print(*(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == []


def test_running_a_command_brings_nothing_that_assesses_one(tmp_path: Path) -> None:
    heavy = [name for name in HEAVY if name.startswith(("tree", "sandbox.command"))]
    program = (
        f"import sys, sandbox; sandbox.run('true'); print(*(set({heavy!r}) & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr, done.stdout.split()) == (0, "", [])


def test_one_module_knows_the_parser_of_shell_text() -> None:
    users = {
        name
        for name, path in modules().items()
        if any(used.split(".")[0].startswith("tree_sitter") for used in imports(path))
    }
    assert users == {"command.parse"}


@pytest.mark.parametrize(
    "call", ["sandbox.run(['true'])", "sandbox.cli.main.main(['run', '--', 'true'])"]
)
def test_a_command_without_profiles_brings_nothing_that_reads_them(
    call: str, tmp_path: Path
) -> None:
    reads = ("msgspec", "tomllib", "difflib", "sandbox.profile.load", "sandbox.profile.values")
    program = f"import sys, sandbox.cli.main; {call}; print(*(set({reads!r}) & set(sys.modules)))"
    env = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
    words = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=env)
    assert (done.returncode, done.stderr, done.stdout.split()) == (0, "", [])


@pytest.mark.parametrize("path", sorted(CORE.glob("*.[ch]")), ids=lambda path: path.name)
def test_the_core_includes_no_python_and_no_stdio(path: Path) -> None:
    ours = {header.name for header in CORE.glob("*.h")}
    allowed = CALLER_HEADERS | ours | {"../include/sandcore.h"}
    strangers = {name for name in includes(path) - allowed if not KERNEL_HEADERS.fullmatch(name)}
    assert not strangers


def test_the_helper_includes_no_header_of_calls() -> None:
    ours = {header.name for home in (CORE, HELPER, LAUNCHER) for header in home.glob("*.h")}
    for path in [*freestanding(), *HELPER.glob("*.h"), *LAUNCHER.glob("*.h")]:
        wanted = includes(path) - FREESTANDING_HEADERS - ours
        assert not {name for name in wanted if not KERNEL_HEADERS.fullmatch(name)}, path.name


def test_the_child_calls_nothing_outside_a_short_list(tmp_path: Path) -> None:
    """Between clone and exec no lock, allocation or C library: the parent's memory is shared."""
    wants, offers = undefined(CORE / "child.c", tmp_path)
    assert wants <= CHILD_CALLS
    assert "child_main" in offers


def test_the_helper_needs_no_c_library(tmp_path: Path) -> None:
    wants: set[str] = set()
    offers: set[str] = set()
    for source in freestanding():
        more_wants, more_offers = undefined(source, tmp_path)
        wants |= more_wants
        offers |= more_offers
    assert wants - offers <= COMPILER_CALLS


@pytest.mark.parametrize(
    "path", sorted({*CORE.glob("*.c"), *freestanding()}), ids=lambda path: path.name
)
def test_c_functions_are_short(path: Path) -> None:
    long = [entry for entry in c_functions(path.read_text()) if entry[1] > C_FUNCTION_LINES]
    assert long == []


def test_python_functions_are_short() -> None:
    long = []
    for path in [*SANDBOX.rglob("*.py"), ROOT / "setup.py"]:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            if lines > PYTHON_FUNCTION_LINES:
                long.append((path.name, node.name, lines))
    assert long == []


def test_files_are_short() -> None:
    ends = ("*.py", "*.pyx", "*.pxi", "*.[ch]")
    files = [path for end in ends for path in (ROOT / "src").rglob(end)]
    assert files
    sizes = {path.name: len(path.read_text().splitlines()) for path in files}
    assert {name: lines for name, lines in sizes.items() if lines > FILE_LINES} == {}


def test_the_function_counter_counts() -> None:
    """The measure of the tests above, on functions of known length in both styles of braces."""
    text = "struct a {\n    int b;\n};\n\nstatic int f(int a,\n             int b)\n{\n    x;\n}\n"
    assert c_functions(text) == [("f", 5)]
    assert c_functions(text.replace(")\n{", ") {")) == [("f", 4)]
    loop = "int g(void)\n{\n    while (x) {\n        y;\n    }\n}\nint h(void) {\n    z;\n}\n"
    assert c_functions(loop) == [("g", 6), ("h", 3)]


def test_every_part_that_can_be_weaker_is_in_the_table() -> None:
    """What a policy can accept is what results name: no more, no less."""
    from sandbox.parts import PARTS

    text = "".join(path.read_text() for path in SANDBOX.rglob("*.py"))
    named = set(re.findall(r'Weaker\(\s*"([a-z-]+)"', text)) | set(
        re.findall(r'^PART = "([a-z-]+)"', text, re.MULTILINE)
    )
    assert named == set(PARTS)
