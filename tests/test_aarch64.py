"""The C for aarch64, by a cross compiler: it compiles, links, and knows that machine's numbers.

What its filters do there is simulated in test_seccomp.py, for both machines.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from seccomp_facts import AARCH64, header_numbers, numbers
from setupkit import ROOT, setup_file

CC = "aarch64-linux-gnu-gcc"
PACKAGES = "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
SETUP = setup_file()
STRICT = ("-Wall", "-Wextra", "-Wconversion", "-Werror")


def cross(*words: str | Path, **options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([CC, *words], capture_output=True, text=True, cwd=ROOT, **options)


def compiled(jobs: Sequence[Sequence[str | Path]]) -> list[str]:
    """What the compiler says of each of many commands that went wrong."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [done.stderr for done in pool.map(lambda job: cross(*job), jobs) if done.returncode]


@pytest.fixture(scope="module", autouse=True)
def compiler() -> None:
    if shutil.which(CC) is None:
        text = f"no compiler for aarch64: apt-get install {PACKAGES}"
        pytest.fail(text) if os.environ.get("CI") else pytest.skip(text)


def test_every_file_of_the_core_compiles_without_a_warning(tmp_path: Path) -> None:
    flags = [*SETUP.CORE_FLAGS, *STRICT, "-fPIC", "-Isrc/_sandcore/core", "-c"]
    files = SETUP.sources("core/*.c")
    assert len(files) > 20
    assert compiled([[*flags, one, "-o", tmp_path / Path(one).stem] for one in files]) == []


def test_helper_and_launcher_link_without_a_c_library(tmp_path: Path) -> None:
    programs = SETUP.extensions("linux")[1:]
    flags = SETUP.helper_flags("linux-aarch64")
    includes = [f"-I{path}" for one in programs for path in one.include_dirs]
    files = {path for one in programs for path in one.sources}
    objects = {path: tmp_path / (path.replace("/", "-") + ".o") for path in files}
    strict = [*flags, *STRICT, *includes, "-c"]
    assert compiled([[*strict, path, "-o", target] for path, target in objects.items()]) == []
    for one in programs:
        parts = [objects[path] for path in one.sources]
        done = cross(*flags, *parts, "-o", tmp_path / one.name)
        assert (done.returncode, done.stderr) == (0, "")
        words = ["readelf", "-hlW", tmp_path / one.name]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        assert "AArch64" in said and "INTERP" not in said and "DYNAMIC" not in said
        (stack,) = [line for line in said.splitlines() if "GNU_STACK" in line]
        assert " RW " in stack


def test_a_warning_for_aarch64_alone_is_seen(tmp_path: Path) -> None:
    """The control: plain char is unsigned there."""
    source = tmp_path / "plain.c"
    source.write_text("int below(char c);\nint below(char c) { return c < 0; }\n")
    flags = ("-std=c11", *STRICT, "-c", source, "-o", tmp_path / "plain.o")
    assert "always false" in cross(*flags).stderr
    assert subprocess.run(["gcc", *flags], capture_output=True).returncode == 0


def test_every_call_of_its_kernel_headers_is_in_the_table_with_its_number() -> None:
    ours = numbers(AARCH64)
    theirs = header_numbers("#include <asm/unistd.h>\n", CC)
    theirs = {name: number for name, number in theirs.items() if not name.startswith("3264_")}
    for name in ("syscalls", "arch_specific_syscall"):  # not calls, but their counts
        theirs.pop(name, None)
    assert len(theirs) > 290
    assert {name: ours.get(name) for name in theirs} == theirs


def test_what_is_compiled_for_it_makes_filters_for_it() -> None:
    source = '#include "seccomp.h"\n_Static_assert(SECCOMP_NATIVE_ARCH == %#xu, "arch");\n'
    flags = ("-fsyntax-only", "-Isrc/_sandcore/core", "-xc", "-")
    assert cross(*flags, input=source % AARCH64).returncode == 0
    assert cross(*flags, input=source % (AARCH64 ^ 1)).returncode != 0
