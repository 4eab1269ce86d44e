"""What the rows of `inside/` are made of, and what runs one of them in its own process.

A row is ordinary work: files, a command that ends with the word `works`, and the answer that is
expected where it is not that. The workspace and a HOME full of secrets are made for it.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from casekit import python

import sandbox

__all__ = ["WORKS", "Answer", "Done", "Fails", "Row", "bash", "script"]


@dataclass(frozen=True)
class Answer:
    """How a row ends: it works, or what it says and why that is right."""

    says: str = ""
    why: str = ""


WORKS = Answer()


def Fails(says: str, why: str) -> Answer:
    """An expected failure: text that the command prints, and the reason."""
    assert says and why
    return Answer(says, why)


@dataclass(frozen=True)
class Row:
    """One kind of work.

    - ``command``: for `bash -c` or as a list; its output ends with `works`.
    - ``files``: by name, what is in the workspace; ``prepare`` is run in it on the host.
    - ``needs``: program -> Debian package.
    - ``answers``: by isolation, isolation-user or user; what is missing works.
    - ``home``: whether it reads HOME: then its output is the same without the secrets.
    - ``betrays``: a command, and what it prints outside because of the secrets.
    """

    command: str | Sequence[str]
    files: Mapping[str, str] = field(default_factory=dict)
    prepare: str = ""
    needs: Mapping[str, str] = field(default_factory=dict)
    answers: Mapping[str, Answer] = field(default_factory=dict)
    home: bool = False
    betrays: tuple[str, str] = ("", "")
    policy: Callable[[], sandbox.SandboxPolicy] = sandbox.workspace_write
    confined: bool = True

    def answer(self, isolation: str, who: str) -> Answer:
        """What is expected of it."""
        for key in (f"{isolation}-{who}", isolation, who):
            if key in self.answers:
                return self.answers[key]
        return WORKS


@dataclass(frozen=True)
class Done:
    """What came of a row."""

    works: bool
    isolation: str
    text: str


def script(code: str, *arguments: str) -> dict[str, object]:
    """The command and files of a Python program, with a name so that it can be spawned again."""
    return {"command": [python(), "program.py", *arguments], "files": {"program.py": code}}


def bash(*lines: str) -> str:
    """A script that ends at the first thing that fails."""
    return "\n".join(("set -eu -o pipefail", *lines, "echo works"))


SECRETS = {
    ".npmrc": "registry=http://secret.example/\n//secret.example/:_authToken=secret\n",
    ".config/pip/pip.conf": "[global]\nindex-url = http://n:secret@secret.example/\n",
    ".pip/pip.conf": "[global]\nindex-url = http://n:secret@secret.example/\n",
    ".pypirc": "[pypi]\nusername = n\npassword = secret\n",
    ".docker/config.json": '{"auths": {"secret.example": {"auth": "secret"}}}',
    ".aws/credentials": "[default]\naws_secret_access_key = secret\n",
    ".azure/config": "secret",
    ".kube/config": "secret",
    ".config/gcloud/credentials.db": "secret",
    ".config/gh/hosts.yml": "secret",
    ".git-credentials": "https://n:secret@secret.example\n",
    ".config/git/credentials": "https://n:secret@secret.example\n",
    ".netrc": "machine secret.example login n password secret\n",
    ".curlrc": 'user-agent = "secret"\n',
    ".wgetrc": "user_agent = secret\n",
    ".ssh/config": "Host *\n  User secret\n",
    ".ssh/id_ed25519": "secret",
    ".gnupg/private-keys-v1.d/x.key": "secret",
    ".cargo/credentials.toml": '[registry]\ntoken = "secret"\n',
    ".m2/settings.xml": "<settings>secret</settings>",
    ".gradle/gradle.properties": "secret=secret\n",
    ".pgpass": "*:*:*:*:secret\n",
    ".my.cnf": "[client]\npassword=secret\n",
    ".bash_history": "secret\n",
    ".python_history": "secret\n",
    ".psql_history": "secret\n",
    ".gdb_history": "secret\n",
    ".rediscli_history": "secret\n",
    ".node_repl_history": "secret\n",
    ".config/chromium/Default/Cookies": "secret",
    ".pki/nssdb/key4.db": "secret",
}
# In both homes: what is no secret, and must be found.
PLAIN = {
    ".gitconfig": "[user]\n\tname = n\n\temail = n@example.org\n[credential]\n\thelper = store\n"
    '[protocol "file"]\n\tallow = always\n[init]\n\tdefaultBranch = main\n'
}


def fill(home: Path, files: Mapping[str, str]) -> None:
    """Writes files below a directory."""
    for name, text in files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)


def carry_out(row: Row, w: Path, home: Path) -> sandbox.Result:
    """Runs a row in a new workspace."""
    os.environ["HOME"] = str(home)
    w.mkdir()
    for name, text in row.files.items():
        (w / name).parent.mkdir(parents=True, exist_ok=True)
        (w / name).write_text(text)
    if row.prepare:
        done = subprocess.run(
            ["bash", "-euc", row.prepare], cwd=w, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr
    policy = row.policy()
    for place in os.environ["PATH"].split(":"):
        if os.path.realpath(place).startswith("/tmp/"):  # private, but for what is named
            policy = policy.with_read(place)
    command = row.command if isinstance(row.command, str) else list(row.command)
    return sandbox.run(command, policy, cwd=w, timeout=90)


def betrayed(row: Row, home: Path) -> None:
    """The control: outside the secrets of HOME make a difference."""
    command, word = row.betrays
    env = os.environ | {"HOME": str(home)}
    done = subprocess.run(["bash", "-c", command], env=env, capture_output=True, text=True)
    assert word in done.stdout, f"no control: {done.stdout}{done.stderr}"


def main(module: str, name: str, place: str) -> int:
    """Runs one row and prints a `Done`; what is wrong beyond it is raised."""
    warnings.simplefilter("ignore", sandbox.SandboxWeakened)
    row: Row = importlib.import_module(module).ROWS[name]
    full, bare = Path(place) / "home", Path(place) / "bare"
    for home, files in ((full, SECRETS | PLAIN), (bare, PLAIN)):
        home.mkdir()
        fill(home, files)
    if row.betrays[0]:
        betrayed(row, full)
    result = carry_out(row, Path(place) / "work", full)
    if row.home:
        other = carry_out(row, Path(place) / "work2", bare)
        without = other.text.replace("work2", "work").replace("/bare", "/home")
        assert result.text == without, f"{result.text}\n-- without the secrets:\n{without}"
    works = result.ok and result.out.rstrip().endswith("works")
    text = result.text if works else f"{result.text}\n{result.outcome}"
    print(json.dumps(asdict(Done(works, result.enforcement.isolation, text))))
    return 0
