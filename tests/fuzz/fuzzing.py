"""Fuzzing and valgrind of the C that reads bytes: `fuzzing.py afl [SECONDS]`, `... valgrind`.

Each program of PROGRAMS is a file here, built with drive.c, the core, the helper and the launcher's
reader, in one of three ways: by gcc with ASan and UBSan for the tests (`build`, `run`), by
afl-clang-fast with both for AFL++, and plain for valgrind. What AFL++ found of interest is kept in
build/fuzz, is where the next run goes on, and is what valgrind sees too. Ends with status 1 when
something was found, and says where.

Memcheck of Debian 12 knows neither pidfd_open nor a clone that is not a fork, so no command can
be started below it, nor can the helper serve (it ends with ENOSYS): what is checked is what reads.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SOURCES = ROOT / "src" / "_sandcore"
HOME = ROOT / "build" / "fuzz"
PROGRAMS = ("blob", "request", "order", "reply", "layout", "proc", "file")

BASE = ("-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-fno-omit-frame-pointer")
ASAN = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
CORE = f"-I{SOURCES / 'core'}"
# First kernel/, whose sys.h stands in the place of the core's.
HELPER = (
    f"-I{HERE / 'kernel'}",
    CORE,
    f"-I{SOURCES / 'helper'}",
    f"-I{SOURCES / 'launcher'}",
)
LIBRARY = "library.a"
LEFT_OUT = {"start.c", "mem.c"}  # the helper's entry, and what a C library has

LIMITS = {"ASAN_OPTIONS": "detect_leaks=1:abort_on_error=1:symbolize=0", "AFL_MAP_SIZE": "65536"}
AFL = {
    "AFL_USE_ASAN": "1",
    "AFL_USE_UBSAN": "1",
    "AFL_NO_UI": "1",
    "AFL_NO_AFFINITY": "1",
    "AFL_SKIP_CPUFREQ": "1",
    "AFL_HANG_TMOUT": "5000",
    # Where the kernel's core_pattern is a program, which is not ours to change.
    "AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES": "1",
}


def call(command: Sequence[object], env: Mapping[str, str] | None = None) -> None:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, env=os.environ | (env or {}))
    if done.returncode != 0:
        raise SystemExit(f"{shlex.join(words)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")


def link(
    program: str,
    target: Path,
    library: Path,
    cc: Sequence[str] = ("gcc", *ASAN),
    env: Mapping[str, str] | None = None,
    instead: Sequence[Path] = (),
) -> None:
    """One program with a library, of which it takes what neither it nor `instead` has."""
    call([*cc, *BASE, *HELPER, HERE / f"{program}.c", *instead, library, "-o", target], env)


def build(
    programs: Iterable[str],
    out: Path,
    cc: Sequence[str] = ("gcc", *ASAN),
    env: Mapping[str, str] | None = None,
) -> None:
    """Builds programs into a directory."""
    out.mkdir(parents=True, exist_ok=True)
    jobs = [(path, (CORE,)) for path in sorted((SOURCES / "core").glob("*.c"))]
    jobs += [(path, HELPER) for path in sorted((SOURCES / "helper").glob("*.c"))]
    jobs += [(SOURCES / "launcher" / "file.c", HELPER)]
    jobs += [(HERE / name, HELPER) for name in ("drive.c", "fuzz.c", "kernel.c")]
    jobs = [job for job in jobs if job[0].name not in LEFT_OUT]

    def compiled(job: tuple[Path, tuple[str, ...]]) -> Path:
        path, flags = job
        target = out / f"{path.parent.name}-{path.stem}.o"
        call([*cc, *BASE, *flags, "-c", path, "-o", target], env)
        return target

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, jobs))
        library = out / LIBRARY
        library.unlink(missing_ok=True)
        call(["ar", "rcs", library, *objects])
        list(pool.map(lambda one: link(one, out / one, library, cc, env), programs))


def seeds() -> Path:
    """The directory of the inputs to begin with, made anew."""
    out = HOME / "seeds"
    shutil.rmtree(out, ignore_errors=True)
    call([sys.executable, HERE / "seeds.py", out])
    return out


def run(program: Path, mutations: int, inputs: Sequence[Path], *before: str) -> str:
    """Runs a program on files and mutations of each: what is wrong, empty if nothing is."""
    last = program.with_suffix(".last")
    command = [*before, str(program), str(last), str(mutations), *map(str, inputs)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode == 0:
        return ""
    return f"{program.name} ended with {done.returncode}; input: {last}\n{done.stderr[-6000:]}"


def corpus(program: str) -> list[Path]:
    """The seeds, and what AFL++ kept."""
    queue = HOME / "found" / program / "default" / "queue"
    return [
        path
        for home in (HOME / "seeds" / program, queue)
        if home.is_dir()
        for path in sorted(home.iterdir())
        if path.is_file()
    ]


def fuzz(program: str, seconds: float) -> tuple[str, bool]:
    """One program under AFL++ for so long: a line of what came of it, and whether that is well."""
    out = HOME / "found" / program
    out.mkdir(parents=True, exist_ok=True)
    start = "-" if (out / "default" / "queue").is_dir() else str(HOME / "seeds" / program)
    command = [
        "afl-fuzz",
        "-i",
        start,
        "-o",
        out,
        "-m",
        "none",
        "-t",
        "2000",
        "-V",
        round(seconds),
        "--",
        HOME / "afl" / program,
    ]
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        errors="replace",
        env=os.environ | AFL,
    )
    path = out / "default" / "fuzzer_stats"
    if done.returncode != 0 or not path.exists():
        return f"{program}: afl-fuzz ended with {done.returncode}\n{done.stdout[-3000:]}", False
    stats = dict(map(str.strip, line.split(":", 1)) for line in path.read_text().splitlines())
    bad = [
        found
        for kind in ("crashes", "hangs")
        for found in sorted((out / "default" / kind).glob("id:*"))
    ]
    line = (
        f"{program}: {stats['execs_done']} inputs, {stats['edges_found']} of "
        f"{stats['total_edges']} edges, {stats['corpus_count']} kept, "
        f"{stats['saved_crashes']} crashes, {stats['saved_hangs']} hangs"
    )
    return "\n  ".join([line, *map(str, bad)]), not bad


def afl(seconds: float = 600.0) -> int:
    """All programs, one on each core at a time, for so many seconds in total."""
    if shutil.which("afl-clang-fast") is None:
        raise SystemExit("AFL++ is missing: apt-get install afl++ libclang-rt-14-dev")
    build(PROGRAMS, HOME / "afl", ["afl-clang-fast"], AFL)
    seeds()
    cores = os.cpu_count() or 1
    with ThreadPoolExecutor(cores) as pool:
        share = max(seconds * min(cores, len(PROGRAMS)) / len(PROGRAMS), 2.0)
        results = []
        for line, well in pool.map(fuzz, PROGRAMS, [share] * len(PROGRAMS)):
            print(line, flush=True)
            results.append(well)
    return 0 if all(results) else 1


def valgrind() -> int:
    """All programs on all that is kept, and commands through the core, under memcheck."""
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind is missing: apt-get install valgrind")
    build([*PROGRAMS], HOME / "plain", ["gcc"])
    seeds()
    check = ["valgrind", "-q", "--error-exitcode=9", "--leak-check=full"]
    wrong = 0
    for program in PROGRAMS:
        inputs = corpus(program)
        what = run(HOME / "plain" / program, 20, inputs, *check)
        print(f"{program}: {len(inputs)} inputs, {what or 'nothing'}", flush=True)
        wrong += bool(what)
    return 1 if wrong else 0


if __name__ == "__main__":
    verb = {"afl": afl, "valgrind": valgrind}[sys.argv[1]]
    sys.exit(verb(*map(float, sys.argv[2:])))
