"""Builds the compiled parts of sandcore; everything declarative stands in pyproject.toml.

On Linux three things are compiled: the extension `_sandcore._core` (the Cython binding and the
whole C core), and beside it two static executables without a C library: `sandcore-helper`, and
`sandcore-exec`, which holds the helper too. Elsewhere nothing is, and the package is pure Python.
The extension is for the stable ABI: a wheel serves the version that builds it and all that follow.

Environment: `SANDCORE_STRICT=1` makes warnings in our C errors; `SANDCORE_SANITIZE=1` has UBSan in
core and helper end the process at undefined behaviour (ASan takes a C library, which the helper
lacks; the core has it in the tests of `make sanitize`).
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

from distutils.command.install_data import install_data  # isort: skip (setuptools brings it)

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tools"))

import require  # noqa: E402  (needs tools/ in the path: build backends do not add it)

PACKAGE = "src/_sandcore"
HELPER = "sandcore-helper"
LAUNCHER = "sandcore-exec"
# What helper and launcher take from the core: only files that need no C library.
HELPER_CORE = (
    "child.c",
    "clone.c",
    "wire.c",
    "policy.c",
    "landlock.c",
    "keys.c",
    "stage.c",
    "stamp.c",
    "mem.c",
)

# Free-threaded interpreters have none (before 3.15): each gets a wheel of its own.
STABLE_ABI = (
    []
    if sysconfig.get_config_var("Py_GIL_DISABLED")
    else [("Py_LIMITED_API", hex(sys.hexversion & 0xFFFF0000))]
)
TAG = "cp{}{}".format(*sys.version_info)

WARNINGS = ["-Wall", "-Wextra"]
STRICT = ["-Wconversion", "-Werror"] if os.environ.get("SANDCORE_STRICT") == "1" else []
SANITIZE = (
    # Traps need no runtime. The long name is the one that gcc 12 and clang both know.
    ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error", "-g"]
    if os.environ.get("SANDCORE_SANITIZE") == "1"
    else []
)
CORE_FLAGS = ["-std=c11", "-O2", "-fvisibility=hidden", *WARNINGS, *SANITIZE]
LINK_FLAGS = ["-Wl,-z,relro,-z,now"]
# Without a C library nothing may be assumed of one, such as the stack protector's place in TLS.
HELPER_FLAGS = [
    "-DSANDCORE_FREESTANDING",
    "-std=c11",
    "-O2",
    *WARNINGS,
    *STRICT,
    *SANITIZE,
    "-static",
    "-nostdlib",
    "-ffreestanding",
    "-fno-pic",
    "-no-pie",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    "-ffunction-sections",
    "-fdata-sections",
    "-U_FORTIFY_SOURCE",
    "-Wl,--gc-sections,-z,noexecstack,-z,relro,--build-id=none",
]
# What a machine needs besides: for old processors gcc calls its own library for atomics there.
MACHINE_FLAGS = {"aarch64": ["-mno-outline-atomics"]}


def sources(pattern: str) -> list[str]:
    """Paths under the package, relative to the project and in a fixed order."""
    return sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / PACKAGE).glob(pattern))


def helper_flags(platform: str = sysconfig.get_platform()) -> list[str]:
    """How helper and launcher are compiled for a platform, such as `linux-aarch64`."""
    return [*HELPER_FLAGS, *MACHINE_FLAGS.get(platform.rpartition("-")[2], [])]


def extensions(platform: str) -> list[Extension]:
    """What is compiled on a platform: extension and executables on Linux, nothing elsewhere."""
    if not platform.startswith("linux"):
        return []
    core = [f"{PACKAGE}/core"]
    headers = sources("core/*.h") + sources("include/*.h")
    binding = Extension(
        "_sandcore._core",
        sources("binding/_core.pyx"),
        include_dirs=core,
        depends=["setup.py", *sources("core/*.c"), *headers, *sources("binding/*.px[di]")],
        extra_compile_args=["-fvisibility=hidden", "-Wno-sign-compare"],
        extra_link_args=LINK_FLAGS,
        define_macros=[("CYTHON_USE_MODULE_STATE", "1"), *STABLE_ABI],
        py_limited_api=bool(STABLE_ABI),
    )
    helper = Extension(
        f"_sandcore.{HELPER}",
        [*sources("helper/*.c"), *(f"{PACKAGE}/core/{name}" for name in HELPER_CORE)],
        include_dirs=core,
        depends=[*sources("helper/*.h"), *headers],
    )
    # A helper of its own in one file with it: a fork starts that sooner than an exec.
    launcher = Extension(
        f"_sandcore.{LAUNCHER}",
        [
            *sources("launcher/*.c"),
            *(path for path in helper.sources if not path.endswith("helper/start.c")),
        ],
        include_dirs=[*core, f"{PACKAGE}/helper"],
        depends=[*helper.depends, *sources("launcher/*.h")],
    )
    return [binding, helper, launcher]


class BuildCompiled(build_ext):
    """Builds the extension from the binding and the core, and the executables as plain ones."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.cython_c_in_temp = True

    def run(self) -> None:
        missing = require.missing_for_build() if self.extensions else None
        if missing is not None:
            raise SystemExit(f"error: {missing}")
        super().run()

    def get_ext_filename(self, fullname: str) -> str:
        if fullname.rpartition(".")[2] in (HELPER, LAUNCHER):
            return os.path.join(*fullname.split("."))
        return str(super().get_ext_filename(fullname))

    def build_extension(self, ext: Extension) -> None:
        if ext.name.endswith((HELPER, LAUNCHER)):
            self.build_executable(ext)
            return
        # The core is compiled apart from Cython's output, which our warnings do not fit.
        ext.extra_objects = self.compiler.compile(
            sources("core/*.c"),
            output_dir=self.build_temp,
            include_dirs=ext.include_dirs,
            extra_postargs=[*CORE_FLAGS, *STRICT],
            depends=ext.depends,
        )
        super().build_extension(ext)

    def copy_extensions_to_source(self) -> None:
        super().copy_extensions_to_source()
        # One of another name, for one version or another ABI, would be loaded in the place of this.
        name = os.path.basename(self.get_ext_filename("_sandcore._core"))
        for built in (ROOT / PACKAGE).glob("_core.*.so"):
            if built.name != name:
                built.unlink()

    def build_executable(self, ext: Extension) -> None:
        target = self.get_ext_fullpath(ext.name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        includes = [f"-I{path}" for path in ext.include_dirs]
        self.spawn([*require.compiler(), *helper_flags(), *includes, *ext.sources, "-o", target])


class InstallLauncher(install_data):
    """Installs the launcher among the programs of the environment too: people type its name."""

    def finalize_options(self) -> None:
        super().finalize_options()
        built = self.get_finalized_command("build_ext").get_ext_fullpath(f"_sandcore.{LAUNCHER}")
        self.data_files = [("bin", [built])]


if __name__ == "__main__":
    setup(
        ext_modules=extensions(sys.platform),
        cmdclass={"build_ext": BuildCompiled, "install_data": InstallLauncher},
        # Elsewhere there is none to install. What it is says the command.
        data_files=[("bin", [])] if extensions(sys.platform) else [],
        options={"bdist_wheel": {"py_limited_api": TAG}} if STABLE_ABI else {},
    )
