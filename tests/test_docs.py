"""What the documents show is run; what they list is compared with the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import get_type_hints

import pytest
import secrets_page

import sandbox
import sandbox.command
import sandbox.session
from sandbox.cli.run import command as run_command
from sandbox.profile.document import Document, RuleTable

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ["README.md", "docs/reference.md", "docs/profiles.md", "docs/session.md"]


def blocks(document: str, language: str) -> list[str]:
    text = (ROOT / document).read_text()
    every = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [code for kind, code in every if kind == language]


# Not for the public: what a class needs for others of this package.
UNLISTED = {"as_text", "stdout_cut", "stderr_cut", "resolved", "policy"}
UNLISTED |= {
    "ready",
    "result",
    "lost",
    "variables",
    "lend",
}  # of a sandbox: for the package's own modules
COMMANDS = [
    line.partition("#")[0].strip()
    for code in blocks("README.md", "sh")
    for line in code.splitlines()
    if line.startswith("sandbox ")
]
EXAMPLES = [(name, code) for name in DOCUMENTS for code in blocks(name, "python")]


@pytest.mark.parametrize("isolation", ["landlock", "auto"])
@pytest.mark.parametrize(("document", "code"), EXAMPLES)
def test_each_example_in_python_runs(
    document: str, code: str, isolation: str, tmp_path: Path
) -> None:
    """In a project and a HOME of its own: an example may be `rm -rf ~`."""
    home, project = tmp_path / "home", tmp_path / "project"
    for path in (home, project, tmp_path / "cache"):
        path.mkdir()
    (home / "kept").touch()
    (project / "Makefile").write_text("all:\n\t@echo made\n")
    for number in range(3):
        sample = tmp_path / "samples" / str(number)
        sample.mkdir(parents=True)
        (sample / "solution.py").write_text(f"print({number})\n")
        (sample / "Makefile").write_text("all:\n\ttouch out\n")
    for name in ("project", "cache", "samples"):
        code = code.replace(f"/tmp/{name}", f"{tmp_path}/{name}")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=project,
        env={**os.environ, "HOME": str(home), "SANDBOX_ISOLATION": isolation},
        capture_output=True,
        text=True,
    )
    if isolation == "landlock" and "Sandbox(workspace_write(), workspaces=" in code:
        assert "Unenforceable: cannot enforce workspaces=" in done.stderr  # as it says there
    else:
        assert done.returncode == 0, done.stderr
    assert (home / "kept").exists()


@pytest.mark.parametrize("line", COMMANDS)
def test_each_command_of_the_readme_is_one(line: str, tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    for path in (home, project):
        path.mkdir()
    (project / "Makefile").write_text("all:\n\t@echo made\n")
    (project / "test_one.py").write_text(
        "import unittest\nclass One(unittest.TestCase):\n    def test(self): pass\n"
    )
    git = "git init -q && git -c user.name=a -c user.email=b commit -q --allow-empty -m x"
    env = {**os.environ, "HOME": str(home), "SANDBOX_ISOLATION": "auto"}
    subprocess.run(git, shell=True, cwd=project, check=True, env=env)
    command = f"{sys.executable} -m {line}"
    if " log " in line:  # of what stands above it
        command = f"{sys.executable} -m sandbox exec -- true && {command}"
    done = subprocess.run(command, shell=True, cwd=project, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_reference_has_every_public_name() -> None:
    text = (ROOT / "docs/reference.md").read_text()
    names = [*sandbox.__all__, *sandbox.command.__all__]
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []


def test_the_page_of_sessions_has_every_public_name() -> None:
    text = (ROOT / "docs/session.md").read_text()
    names = sandbox.session.__all__
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []


def test_the_reference_has_every_verdict_with_its_reasons() -> None:
    text = (ROOT / "docs/reference.md").read_text()
    for verdict in sandbox.command.Verdict:
        (row,) = re.findall(rf"^\| `{verdict}` \|.*\| (.*) \|$", text, re.MULTILINE)
        reasons = [one for one in sandbox.command.Reason if one.verdict is verdict]
        assert row == " ".join(f"`{reason}`" for reason in reasons)


@pytest.mark.parametrize("kind", [sandbox.Result, sandbox.Denial, sandbox.Limits, sandbox.Sandbox])
def test_the_reference_has_what_the_common_classes_offer(kind: type) -> None:
    text = (ROOT / "docs/reference.md").read_text()
    names = [name for name in dir(kind) if not name.startswith("_") and name not in UNLISTED]
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []


def test_the_reference_has_the_options_of_run() -> None:
    (block,) = [one for one in blocks("docs/reference.md", "") if "sandbox run" in one]
    shown = set(re.findall(r"--[a-z-]+", block.partition("sandbox policy")[0]))
    options = {name for option in run_command.params for name in option.opts if name[:2] == "--"}
    assert shown == options - {"--verbose"}


@pytest.mark.parametrize("text", blocks("docs/profiles.md", "toml"))
def test_each_profile_that_is_shown_is_one(text: str, tmp_path: Path) -> None:
    config, project = tmp_path / "config/sandbox", tmp_path / "project"
    (config / "profiles").mkdir(parents=True)
    project.mkdir()
    (config / "shown.toml").write_text(text)
    (config / "profiles/strict.toml").write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "sandbox", "policy", "check", str(config / "shown.toml")],
        env={**os.environ, "XDG_CONFIG_HOME": str(config.parent)},
        cwd=project,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_page_of_profiles_shows_every_key() -> None:
    (every,) = [one for one in blocks("docs/profiles.md", "toml") if "description" in one]
    shown = tomllib.loads(every)
    assert set(shown) == set(Document.__struct_fields__)
    for table in ("network", "environment", "isolation", "approval", "trust"):
        fields = get_type_hints(Document)[table].__args__[0].__struct_fields__
        assert set(shown[table]) == set(fields)
    assert set(shown["rules"][0]) == set(RuleTable.__struct_fields__)


def test_the_page_of_secrets_is_the_table() -> None:
    assert secrets_page.PAGE.read_text() == secrets_page.page()


def test_the_protected_names_are_those_of_the_reference() -> None:
    text = " ".join((ROOT / "docs/reference.md").read_text().split())
    assert f"`{' '.join(sandbox.SandboxPolicy().protected)}`" in text


@pytest.mark.parametrize(
    "document", [*DOCUMENTS, "SECURITY.md", "docs/decisions.md", "docs/inside.md", "docs/macos.md"]
)
def test_links_lead_somewhere(document: str) -> None:
    text = (ROOT / document).read_text()
    targets = re.findall(r"\]\((?!http)([^)#]+)", text)
    base = (ROOT / document).parent
    assert [target for target in targets if not (base / target).exists()] == []
