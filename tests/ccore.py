"""Compiles the C core into a module that tests call directly: `from ccore import ffi, lib`.

Every `src/_sandcore/core/*.c` is compiled by itself with the strict warnings as errors, then linked
with cffi's glue for the declarations in `tests/cdef/*.h` (each stands for the core header of the
same name, which the glue includes, so that a declaration that disagrees with it does not compile).
The result is cached under `build/ccore/` by a hash of everything that went in.

`SANDCORE_SANITIZE=1` adds ASan and UBSan (the interpreter then needs libasan preloaded: use
`make sanitize`). `SANDCORE_CORE="pump buffer"` takes only the named files, for work on one of them
while another does not compile.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from cffi import FFI
from cffi.recompiler import make_c_source

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "src" / "_sandcore" / "core"
CDEF = ROOT / "tests" / "cdef"
CACHE = ROOT / "build" / "ccore"
SANITIZE = os.environ.get("SANDCORE_SANITIZE") == "1"
ONLY = tuple(os.environ.get("SANDCORE_CORE", "").split())
MODULE = "sandcore_ccore"

BASE = ("-std=c11", "-O2", "-g", "-fPIC", "-fvisibility=hidden", f"-I{CORE}")
STRICT = ("-Wall", "-Wextra", "-Wconversion", "-Werror")
SANITIZERS = (
    ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
    if SANITIZE
    else ()
)


class CoreDoesNotBuild(Exception):
    """A file of the core, or its declarations for tests, is not right; the text names the file."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What goes into the module."""

    sources: tuple[Path, ...]
    cdefs: tuple[Path, ...]
    headers: tuple[Path, ...]

    def digest(self, cc: tuple[str, ...]) -> str:
        version = subprocess.run([*cc, "--version"], capture_output=True, check=True).stdout
        soabi = sysconfig.get_config_var("SOABI")
        digest = hashlib.sha256(repr((cc, version, soabi, BASE, STRICT, SANITIZERS)).encode())
        for path in (Path(__file__), *self.sources, *self.cdefs, *self.headers):
            data = path.read_bytes()
            digest.update(f"{path.name} {len(data)}\n".encode() + data)
        return digest.hexdigest()[:20]


def parts() -> Parts:
    """The core files and declarations as they are now (all, or those of SANDCORE_CORE)."""

    def wanted(path: Path) -> bool:
        return not ONLY or path.stem in ONLY

    return Parts(
        tuple(sorted(filter(wanted, CORE.glob("*.c")))),
        tuple(sorted(filter(wanted, CDEF.glob("*.h")))),
        tuple(sorted(CORE.glob("*.h"))),
    )


def compiler() -> tuple[str, ...]:
    """The C compiler and its fixed arguments."""
    cc = tuple(shlex.split(os.environ.get("CC", "gcc")))
    if shutil.which(cc[0]) is None:
        raise CoreDoesNotBuild(f"the tests need a C compiler ({cc[0]}): apt-get install gcc")
    return cc


def run(command: list[str], what: str) -> None:
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode != 0:
        raise CoreDoesNotBuild(
            f"{what}\n{shlex.join(command)}\n{done.stderr.strip()}\n"
            '(SANDCORE_CORE="NAME ..." builds only the named core files)'
        )


def compile_object(cc: tuple[str, ...], source: Path, out: Path, flags: tuple[str, ...]) -> Path:
    target = out / (source.stem + ".o")
    command = [*cc, *BASE, *flags, *SANITIZERS, "-c", str(source), "-o", str(target)]
    run(command, f"{source.parent.name}/{source.name} does not compile:")
    return target


def write_glue(cdefs: tuple[Path, ...], out: Path) -> Path:
    builder = FFI()
    for path in cdefs:
        if not (CORE / path.name).exists():
            raise CoreDoesNotBuild(f"cdef/{path.name} declares core/{path.name}: no such header")
        try:
            builder.cdef(path.read_text())
        except Exception as error:
            raise CoreDoesNotBuild(f"cdef/{path.name}: {error}") from error
    includes = "".join(f'#include "{path.name}"\n' for path in cdefs)
    glue = out / "glue.c"
    make_c_source(builder, MODULE, includes, str(glue))
    return glue


def build(found: Parts, cc: tuple[str, ...], out: Path) -> None:
    """Compiles and links the module into the directory `out`."""
    glue = write_glue(found.cdefs, out)
    python = f"-I{sysconfig.get_path('include')}"
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(compile_object, cc, path, out, STRICT) for path in found.sources]
        jobs.append(pool.submit(compile_object, cc, glue, out, (python,)))
        objects = [str(job.result()) for job in jobs]
    module = str(out / f"{MODULE}.so")
    run([*cc, "-shared", *SANITIZERS, *objects, "-o", module], "the core does not link:")


def cached() -> Path:
    """The directory of the built module, built now if need be."""
    cc = compiler()
    found = parts()
    home = CACHE / found.digest(cc)
    if (home / f"{MODULE}.so").exists():
        return home
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / f"{MODULE}.so").exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
                out = Path(scratch) / "out"
                out.mkdir()
                build(found, cc, out)
                shutil.rmtree(home, ignore_errors=True)
                out.rename(home)
    return home


def load() -> ModuleType:
    """Imports the built module."""
    path = cached() / f"{MODULE}.so"
    spec = importlib.util.spec_from_file_location(MODULE, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        raise CoreDoesNotBuild(f"the core was built and does not load: {error}") from error
    return module


_module = load()
ffi: Any = _module.ffi
lib: Any = _module.lib

if __name__ == "__main__":
    print(*dir(lib), sep="\n")
