"""git, package managers, and what else reads HOME."""

from __future__ import annotations

from insidekit import Row, bash

_GIT = {"git": "git"}
_REPOSITORY = """
export GIT_AUTHOR_DATE='1000000000 +0000' GIT_COMMITTER_DATE='1000000000 +0000'
git init -q r && cd r
echo one >f && mkdir d && echo two >d/g
git add . && git commit -qm first && git tag -am v1 v1
echo more >>f && git commit -qam second
git branch other && git stash list >/dev/null
"""
_READ = (
    "git status --short",
    "git log --stat --oneline",
    "git diff HEAD~1",
    "git show --stat HEAD",
    "git blame f >/dev/null",
    "git branch -a",
    "git grep -n one",
    "git ls-files -s",
    "git rev-parse --show-toplevel",
    "git describe --always",
    "git cat-file -p HEAD^{tree}",
    "git reflog | cat",
    "git for-each-ref",
    "git rev-list --count HEAD",
    "git archive HEAD >a.tar",
    "git check-ignore a.tar || true",
    "git shortlog -s HEAD",
    "git fsck --no-progress",
    "git -p log -1",
)

_WHEEL = """
python3 - <<'END'
import zipfile
with zipfile.ZipFile("inner-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("inner.py", "x = 3\\n")
    info = "inner-1.0.dist-info/"
    wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: inner\\nVersion: 1.0\\n")
    text = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    wheel.writestr(info + "WHEEL", text)
    wheel.writestr(info + "RECORD", "")
END
"""

ROWS = {
    "git-repository": Row(
        bash("cd r", *_READ),
        prepare=_REPOSITORY,
        needs=_GIT,
        home=True,
    ),
    "git-worktree": Row(
        bash("cd w", *_READ),
        prepare=_REPOSITORY + "git worktree add -q ../w other",
        needs=_GIT,
        home=True,
    ),
    "git-submodule": Row(
        bash(
            "cd s/m",
            *_READ,
            "cd ..",
            "git submodule status",
            "git status --short",
            "git diff --submodule HEAD",
        ),
        prepare=_REPOSITORY + "cd .. && git init -q s && cd s && git submodule --quiet add ../r m"
        " && git commit -qm third",
        needs=_GIT,
        home=True,
    ),
    "git-credentials": Row(
        bash(
            "printf 'protocol=https\\nhost=secret.example\\n\\n'"
            " | GIT_TERMINAL_PROMPT=0 git credential fill || true",
            "git config --global user.name",
        ),
        needs=_GIT,
        home=True,
        betrays=(
            "git credential fill <<<$'protocol=https\nhost=secret.example\n'",
            "password=secret",
        ),
    ),
    "npm": Row(
        bash(
            "npm install --silent --offline --no-audit --no-fund ./dependency",
            "npm run hello --silent",
            "npm pack --silent ./dependency",
        ),
        files={
            "package.json": '{"name": "a", "version": "1.0.0", "scripts": '
            '{"hello": "node -e \'console.log(require(\\"dependency\\"))\'"}}',
            "dependency/package.json": '{"name": "dependency", "version": "1.0.0"}',
            "dependency/index.js": "module.exports = 'dependency'\n",
        },
        needs={"npm": "npm", "node": "nodejs"},
    ),
    "npm-configuration": Row(
        bash("npm config get registry"),
        needs={"npm": "npm", "node": "nodejs"},
        home=True,
        betrays=("npm config get registry", "secret.example"),
    ),
    "node": Row(
        bash("node m.js"),
        files={
            "m.js": "const { Worker, isMainThread } = require('worker_threads')\n"
            "const { execFileSync, fork } = require('child_process')\n"
            "const fs = require('fs')\n"
            "if (process.send) { process.send('child'); process.exit() }\n"
            "fs.promises.writeFile('f', 'x').then(() => fs.promises.readFile('f')).then(() => {\n"
            "  if (execFileSync('echo', ['y']).toString() !== 'y\\n') process.exit(2)\n"
            "  fork(__filename).on('message', () => new Worker('1', { eval: true }))\n"
            "}).catch(() => process.exit(3))\n"
        },
        needs={"node": "nodejs"},
    ),
    "pip": Row(
        bash(
            "python3 -m pip install -q --no-index --target t ./inner-1.0-py3-none-any.whl",
            "PYTHONPATH=t python3 -c 'import inner; print(inner.x)'",
            "test $(python3 -m pip cache dir) = $XDG_CACHE_HOME/pip",
        ),
        prepare=_WHEEL,
        needs={"pip3": "python3-pip"},
    ),
    "pip-configuration": Row(
        bash("python3 -m pip config list"),
        needs={"pip3": "python3-pip"},
        home=True,
        betrays=("python3 -m pip config list", "secret.example"),
    ),
    "uv": Row(
        bash(
            "uv -q venv --offline --python /usr/bin/python3 v",
            "uv -q pip install --offline --python v/bin/python ./inner-1.0-py3-none-any.whl",
            "v/bin/python -c 'import inner; print(inner.x)'",
            "test $(uv cache dir) = $XDG_CACHE_HOME/uv",
        ),
        prepare=_WHEEL,
        needs={"uv": "uv"},
        home=True,
    ),
    "curl-and-ssh": Row(
        bash(
            "curl -sS -o out http://127.0.0.1:9/ 2>&1 | sed 's/ after .* ms//' || true",
            "ssh -G somewhere | sed -n 1,3p",
        ),
        needs={"curl": "curl", "ssh": "openssh-client"},
        home=True,
    ),
    "shells-read-their-files": Row(
        bash(
            "bash -ic 'echo x' 2>/dev/null",
            "zsh -ic 'echo y' 2>/dev/null",
            "python3 -ic 'print(1)' </dev/null 2>&1 | grep -x 1",
        ),
        needs={"zsh": "zsh"},
        home=True,
    ),
}
