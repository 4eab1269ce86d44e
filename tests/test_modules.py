"""What the extension keeps, and for whom: objects and module state, and nothing beside them."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import require
from setupkit import ROOT, setup_file

import _sandcore as core

WRITABLE = re.compile(
    r"^.{22} O (?!\S*\.ro)\S*(?:data|bss|COM)\S*\t\S+ +(?:\.hidden )?(\S+)$", re.M
)
# Of Cython and the C library in the extension. Written once, when the module is first loaded, with
# what is the same for every interpreter; Cython's list of its module states has a lock of its own.
NOT_OURS = re.compile(
    r"__pyx_(?!v_).*|__Pyx_.*|(CO_[A-Z_]+|tp_dictoffset)(\.\d+)?"
    r"|main_interpreter_id\.\d+|completed\.\d+|__dso_handle|__TMC_END__"
)


def writable(binary: Path) -> set[str]:
    """Names of the variables of an object file or library that it does not make read-only."""
    words = ["objdump", "-t", binary]
    return set(WRITABLE.findall(subprocess.run(words, capture_output=True, text=True).stdout))


def test_the_core_has_no_variable_that_outlives_a_call(tmp_path: Path) -> None:
    command = [*require.compiler(), *setup_file().CORE_FLAGS, "-fPIC", "-Isrc/_sandcore/core", "-c"]
    files = setup_file().sources("core/*.c")
    control = tmp_path / "control.c"
    control.write_text(
        "static int n;\nint all;\nint count(void);\nint count(void) { return ++n; }\n"
    )
    targets = {path: tmp_path / (Path(path).stem + ".o") for path in [*files, str(control)]}

    def compiled(path: str) -> set[str]:
        subprocess.run([*command, path, "-o", targets[path]], check=True, cwd=ROOT)
        return writable(targets[path])

    with ThreadPoolExecutor() as pool:
        found = dict(zip(targets, pool.map(compiled, targets), strict=True))
    assert found.pop(str(control)) == {"n", "all"}
    assert {path: names for path, names in found.items() if names} == {}


def test_the_extension_has_none_but_those_of_cython() -> None:
    found = writable(Path(core._core.__file__))
    assert {name for name in found if name.startswith("__pyx_")}  # it has its symbols
    assert {name for name in found if not NOT_OURS.fullmatch(name)} == set()


def test_free_threaded_interpreters_are_told_that_no_gil_is_needed() -> None:
    """There is none here to ask: what Cython was told is all that can be looked at."""
    text = (ROOT / "src" / "_sandcore" / "binding" / "_core.pyx").read_text()
    assert "freethreading_compatible=True" in text.partition('"""')[0]


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="isolated ones want an ABI of 3.12")
def test_each_interpreter_of_a_process_has_its_own(tmp_path: Path) -> None:
    body = f"""
        import sys
        sys.path[:0] = {sys.path!r}
        import _sandcore, sandbox, warnings
        warnings.simplefilter("ignore")
        with sandbox.Sandbox(sandbox.workspace_write(), workspace={str(tmp_path)!r}) as box:
            said = box.run(["echo", "inside "]).stdout
        try:
            _sandcore.Policy(b"")
        except ValueError as error:
            said += str(error).encode()
        print(id(_sandcore.Policy), id(_sandcore.StageError), said.decode().split())
    """
    outer = f"""
        import _xxsubinterpreters as interpreters
        body = {textwrap.dedent(body)!r}
        exec(body)
        made = [interpreters.create(), interpreters.create()]
        for one in made:
            interpreters.run_string(one, body)
        exec(body)
        for one in made:
            interpreters.destroy(one)
    """
    words = [sys.executable, "-c", textwrap.dedent(outer)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == 4 and len(set(lines)) == 3 and lines[0] == lines[3]
    assert all(line.endswith("['inside', 'not', 'a', 'compiled', 'policy']") for line in lines)
