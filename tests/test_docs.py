"""What the documents show is run; what they list is compared with the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import secrets_page

import sandbox

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ["README.md", "docs/reference.md"]


def blocks(document: str, language: str) -> list[str]:
    text = (ROOT / document).read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


EXAMPLES = [(name, code) for name in DOCUMENTS for code in blocks(name, "python")]


@pytest.mark.parametrize(("document", "code"), EXAMPLES)
def test_each_example_in_python_runs(document: str, code: str, tmp_path: Path) -> None:
    """In a project and a HOME of its own: an example may be `rm -rf ~`."""
    home, project = tmp_path / "home", tmp_path / "project"
    for path in (home, project, tmp_path / "cache"):
        path.mkdir()
    (home / "kept").touch()
    (project / "Makefile").write_text("all:\n\t@echo made\n")
    code = code.replace("/tmp/project", str(project)).replace("/tmp/cache", f"{tmp_path}/cache")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=project,
        env={**os.environ, "HOME": str(home)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (home / "kept").exists()


def test_the_page_of_secrets_is_the_table() -> None:
    assert secrets_page.PAGE.read_text() == secrets_page.page()


def test_the_protected_names_are_those_of_the_reference() -> None:
    text = " ".join((ROOT / "docs/reference.md").read_text().split())
    assert f"`{' '.join(sandbox.SandboxPolicy().protected)}`" in text


@pytest.mark.parametrize(
    "document", [*DOCUMENTS, "SECURITY.md", "docs/decisions.md", "docs/inside.md"]
)
def test_links_lead_somewhere(document: str) -> None:
    text = (ROOT / document).read_text()
    targets = re.findall(r"\]\((?!http)([^)#]+)", text)
    base = (ROOT / document).parent
    assert [target for target in targets if not (base / target).exists()] == []
