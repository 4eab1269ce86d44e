"""Keys of approvals: what makes two commands one, and what never does; prefixes; digests."""

from __future__ import annotations

import shlex
import subprocess
import sys
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetykit import context

from sandbox import Access, Entry, Environment, InvalidPath, Limits, SandboxPolicy, workspace_write
from sandbox.session.keys import Key, digest_of, key_of
from sandbox.session.prefixes import ALONE, NEVER, SUBCOMMANDS, banned, prefix_of

WHERE = context()
TRUSTING = context(login=True)


def key(command: Any, where: Any = WHERE, **more: Any) -> Key:
    given = {"cwd": "/work", "policy": "p", **more}
    return key_of(command, where, **given)


# What makes no difference.

WORD = st.text(st.sampled_from("ab1 -_./='\"\\$*#~{},;|&<>()!é"), min_size=1, max_size=8)
WORDS = st.lists(WORD, max_size=4).map(lambda words: ["make", *words])


def quoted(word: str, how: str) -> str:
    """One spelling of a word; `how` draws it."""
    if how == "double":
        for special in '\\"$`':
            word = word.replace(special, f"\\{special}")
        return f'"{word}"'
    if how == "pieces":
        return "".join(shlex.quote(one) for one in word)
    if how == "escaped":
        return "".join(one if one.isalnum() else f"\\{one}" for one in word)
    return shlex.quote(word)


HOW = st.sampled_from(["single", "double", "pieces", "escaped"])
SHELL = st.sampled_from(["bash", "sh", "/bin/bash", "/usr/bin/dash"])


@given(WORDS, st.lists(HOW, min_size=5, max_size=5), st.lists(SHELL, max_size=3), st.data())
def test_quoting_and_shells_around_a_command_keep_its_key(
    words: list[str], how: list[str], shells: list[str], data: st.DataObject
) -> None:
    gap = data.draw(st.sampled_from([" ", "  ", "\t"]))
    text = gap.join(quoted(word, one) for word, one in zip(words, how, strict=False))
    for shell in shells:
        text = f"{shell} -c {shlex.quote(text)}"
    argv = ["bash", "-c", text]
    expected = key(words)
    # Nor does it believe every escaped blank: what it does not is a script.
    escaped = "".join(word for word, one in zip(words, how, strict=False) if one == "escaped")
    is_simple = not set("".join(words)) & set("<\\{}~=#") and " " not in escaped
    for spelled in (text, argv, text.encode()):
        found = key(spelled)
        # What the parser does not believe is a script, and never the key of other words.
        assert found == expected or not is_simple
        assert found == expected or found.words[:1] != ("make",)


@pytest.mark.parametrize(
    "spelled",
    ["npm test -v", "npm  test -v ", "'npm' \"test\" -v", r"n\pm te''st -v", "npm test -v # all",
     "\nnpm test -v\n", "npm test -v;", "bash -c 'npm test -v'", "sh -c \"npm test '-v'\"",
     "bash -ec 'npm test -v'", "bash -c \"sh -c 'npm test -v'\"", "npm \\\n test -v",
     ["npm", "test", "-v"], ["bash", "-c", "npm test -v"], ["/bin/sh", "-euc", "npm test -v"],
     ["bash", "-o", "pipefail", "-c", "npm test -v"], b"npm test -v"],
)  # fmt: skip
def test_these_are_one_command(spelled: Any) -> None:
    assert key(spelled) == key("npm test -v")
    assert hash(key(spelled)) == hash(key("npm test -v"))


def test_a_script_is_one_whoever_gives_it_to_the_same_shell() -> None:
    text = "cd a && npm test"
    assert key(text, shell="/bin/bash") == key(["bash", "-c", text])
    assert key(text, shell="/bin/bash") == key(f"bash -c {shlex.quote(text)}")
    assert key(text, shell="/bin/bash") != key(["dash", "-c", text])
    assert key(text) != key(["bash", "-ec", text])
    assert key(text) != key("cd a  && npm test")


# What does.


@pytest.mark.parametrize(
    "other",
    ["npm test", "npm test -v -v", "npm test '-v '", "npm -v test", "./npm test -v",
     "env A=1 npm test -v", "A=1 npm test -v", "npm test -v &", "npm test -v | cat",
     "npm test -v > f", "npm test -v 2>&1", "npm test $v", "npm test -v; ls", "! npm test -v",
     "npm test -v <<E\nx\nE", "npm test -v <<< x", "(npm test -v)", "bash -c 'npm test -v' x",
     "bash -lc 'npm test -v'", "bash -ic 'npm test -v'", "./bash -c 'npm test -v'",
     "zsh -c 'npm test -v'", "fish -c 'npm test -v'", "bash -x -c 'npm test -v'",
     "bash --rcfile f -c 'npm test -v'", "timeout 5 npm test -v", "eval npm test -v",
     "npm test -v\u200b", b"npm test -v\xff", "npm test ~", "npm test {-v,}"],
)  # fmt: skip
def test_these_are_other_commands(other: Any) -> None:
    assert key(other) != key("npm test -v")


def test_here_documents_are_part_of_a_command() -> None:
    """`python3 <<E` with two texts would else be one command: that is code."""
    one, other = (key(f"python3 <<'E'\n{text}\nE") for text in ("a", "b"))
    assert one != other and one != key("python3") and not one.parts


def test_each_command_that_a_script_holds_counts() -> None:
    scripts = ["a; b", "a && b", "a | b", "a\nb", "a; b # c", "A=1 a; b", "a; b > f", "$(a); b"]
    assert len({key(one) for one in scripts}) == len(scripts)


def test_assignments_before_a_command_stay_part_of_it() -> None:
    assert key("A=1 make") != key("A=2 make")
    assert key("A='1' make") == key("A=1 make")
    assert key("A=1 make") != key(["A=1", "make"])
    assert key("env A=1 make") != key("A=1 make")
    assert not key("A=1 make").lasting


def test_a_login_shell_is_another_unless_its_files_are_trusted() -> None:
    for form in ("bash -lc make", "bash -l -c make", "bash --login -c make"):
        assert key(form) != key("make")
        assert key(form, TRUSTING) == key("make", TRUSTING)
    assert key("zsh -c make", TRUSTING) == key("make", TRUSTING)
    assert key("bash -lc 'make; ls'", TRUSTING) != key("make; ls", TRUSTING)


def test_no_shell_is_seen_through_where_the_environment_names_files_for_it() -> None:
    where = context(environment=("BASH_ENV",))
    assert len({key(one, where) for one in ("make", "bash -c make", ("make",))}) == 3


def test_where_it_runs_and_what_it_gets_count() -> None:
    base = key("make")
    assert key("make", cwd="/work/a") != base
    assert key("make", policy="q") != base
    assert key("make", permissions=("write /x",)) != base
    assert key("make", permissions=("a", "b")) == key("make", permissions=("b", "a", "a"))
    assert key("make", cwd="/work/") == base
    with pytest.raises(InvalidPath):
        key("make", cwd="work")


@given(WORDS, WORDS, st.sampled_from(["/work", "/work/a"]), st.sampled_from(["p", "q"]),
       st.sets(st.sampled_from(["write /x", "network full"])))  # fmt: skip
def test_other_words_directory_policy_or_permissions_are_another_key(
    one: list[str], other: list[str], cwd: str, policy: str, permissions: set[str]
) -> None:
    same = (one, cwd, policy, permissions) == (other, "/work", "p", set())
    assert (key(one, cwd=cwd, policy=policy, permissions=permissions) == key(other)) is same
    texts = [shlex.join(words) for words in (one, other)]
    assert (key(texts[0], cwd=cwd, policy=policy, permissions=permissions) == key(texts[1])) is same


def test_two_programs_of_one_name_never_share_a_key() -> None:
    first = context(path=("/opt/tools", "/usr/bin"), writable=())
    assert key("ls", first).programs == ("/opt/tools/ls",)
    assert key("ls", first) != key("ls")
    planted = context(path=("/work", "/usr/bin"))
    assert key("ls", planted).programs == ("/work/ls",)
    assert key("ls", planted) != key("ls") and not key("ls", planted).lasting
    assert key("./ls").programs == ("/work/ls",) and not key("./ls").lasting
    assert key("link", context(path=("/opt/tools",))).programs == ("/work/cat",)
    assert not key("link", context(path=("/opt/tools",))).lasting
    assert key("timeout 5 ls", planted) != key("timeout 5 ls")
    assert key("cat f | ls", planted) != key("cat f | ls")
    assert key("nothing").programs == ("",) and not key("nothing").lasting


def test_what_a_shell_does_itself_is_no_program_of_that_name() -> None:
    assert key("echo x").programs == (":echo",)
    assert key(["echo", "x"]).programs == ("/usr/bin/echo",)
    assert key("bash -c 'echo x'") == key("echo x") != key(["echo", "x"])


def test_what_may_last() -> None:
    for form in ("npm test", "git status | head", "cd a && make -j4 2>&1"):
        assert key(form).lasting, form
    for form in ("./gradlew test", "npm test; ./x", "npm test $x", "npm test > f", "make <<E\nE",
                 "(make)", ["make", "\x1b[1m"], ["make", "\udcff"], ""):  # fmt: skip
        assert not key(form).lasting, form


# Prefixes.


@pytest.mark.parametrize(
    ("line", "prefix"),
    [
        ("git push origin main", "git push"),
        ("git stash pop", "git stash pop"),
        ("npm test -- -v", "npm test"),
        ("npm run build", "npm run build"),
        ("cargo test --all", "cargo test"),
        ("swift build", "swift build"),
        ("make test X=1", "make test"),
        ("./gradlew test", "./gradlew test"),
        ("pytest -q tests", "pytest"),
        ("/usr/bin/git commit -m x", "/usr/bin/git commit"),
        ("touch a b", "touch a"),
        ("uv pip install x", "uv pip install"),
    ],
)
def test_a_prefix_is_a_program_with_what_decides(line: str, prefix: str) -> None:
    assert prefix_of(line.split()) == tuple(prefix.split())
    assert banned(line.split()) == ""


BANNED = """bash|bash -c x|sh x.sh|zsh|tcsh
/bin/dash -c|fish -c|pwsh x|python|python3 x.py|python3.11 -c x
.venv/bin/python -m pytest|pypy3 x|node x|node -e x|nodejs x|deno run x|bun x y|perl -e x|ruby x
php -r x|lua x|julia x|Rscript x|R x|osascript -e x|java -jar x|awk x|sed -n p|env A=1 ls|sudo ls
doas ls|su root|pkexec ls|git|git -C x status|git -c a=b push|git config x y|git bisect run x
git submodule|npm|npm run|npm exec x|npm -g install|pnpm run|pnpm dlx x|yarn run|yarn dlx x|npx x
bunx x|uvx x|uv run x|pipx run x|poetry run x|bundle exec x|xargs rm|find . -name x|fd x|ssh host
scp a b|docker ps|podman run x|make|make -C x|make A=1|time ls|timeout 5 ls|nice ls|nohup ls
busybox ls|setsid ls|watch ls|strace ls|vim x|gdb x|sqlite3 x|rm x|dd if=x|curl u|tar xf x|go run x
cargo +nightly build|kubectl exec x|eval x|exec ls|source x|. x|tmux new|bwrap ls|BASH -c x|cargo
PYTHON x|parallel ls|unshare ls|direnv exec . ls|nc host|swift x.swift"""


@pytest.mark.parametrize("line", [one for row in BANNED.splitlines() for one in row.split("|")])
def test_no_prefix_hands_on_what_runs(line: str) -> None:
    assert prefix_of(line.split()) is None
    assert banned(line.split())


def test_a_program_that_no_table_has_is_no_prefix_by_itself() -> None:
    for words in (["frob"], ["frob", "-e", "x"], ["frob", "--eval"], ["frob", ""]):
        assert prefix_of(words) is None
    assert prefix_of([]) is None and banned([])


@given(st.lists(st.sampled_from([*sorted(NEVER), *sorted(SUBCOMMANDS), "-c", "run", "x", "-", ""]),
                max_size=4))  # fmt: skip
def test_a_prefix_begins_the_command_and_is_one_itself(words: list[str]) -> None:
    prefix = prefix_of(words)
    if prefix is not None:
        assert tuple(words[: len(prefix)]) == prefix
        assert prefix_of(prefix) == prefix
        assert len(prefix) > 1 or prefix[0] in ALONE
        assert prefix[0] not in NEVER


def test_the_tables_do_not_contradict_each_other() -> None:
    assert not set(NEVER) & set(SUBCOMMANDS) and not ALONE & {*NEVER, *SUBCOMMANDS}
    for row in SUBCOMMANDS.values():
        assert not row.never & row.deeper
    for name in (*NEVER, *SUBCOMMANDS, *ALONE):
        assert name == name.casefold()


# Digests.


def test_every_part_of_a_policy_counts_in_its_digest() -> None:
    base = workspace_write("/w")
    others: dict[str, Any] = {
        "entries": (*base.entries, Entry("/x", Access.READ)),
        "network": "full",
        "environment": Environment(set={"A": "1"}),
        "limits": Limits(wall=1),
        "require": "namespaces",
        "protected": (),
        "extra_filter": bytes(8),
        "allow_secrets": ("npm",),
        "unix_sockets": ("/run/x",),
        "accept": (),
        "within": ((Entry("/x", Access.READ),),),
    }
    assert set(others) == {item.name for item in fields(SandboxPolicy) if item.init}
    changed = [replace(base, **{name: value}) for name, value in others.items()]
    for item in fields(Limits):
        value = 5 if item.name != "memory" and item.name != "tmp" else 1 << 21
        changed.append(base.with_limits(replace(base.limits, **{item.name: value})))
    digests = {digest_of(one) for one in (base, *changed)}
    assert len(digests) == len(changed) + 1


def test_the_order_of_entries_does_not_count() -> None:
    base = workspace_write("/w")
    assert digest_of(base) == digest_of(replace(base, entries=base.entries[::-1]))


def test_values_of_variables_count_only_with_a_secret() -> None:
    one, other = (
        workspace_write("/w").with_environment(Environment(set={"PIN": value})) for value in "12"
    )
    assert digest_of(one) == digest_of(other)
    assert digest_of(one, b"s") != digest_of(other, b"s")
    assert digest_of(one, b"s") != digest_of(one, b"t")


def test_a_digest_is_the_same_in_another_process() -> None:
    program = (
        "import sys; from sandbox import workspace_write; "
        "from sandbox.session.keys import digest_of; "
        "print(digest_of(workspace_write('/w'), b'x'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == digest_of(workspace_write("/w"), b"x"), done.stderr
