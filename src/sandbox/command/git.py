"""git: which sub-commands only read, with which options, and what the repository has a say in.

A repository's own configuration names programs: for the watching of files, for filters, diffs,
text conversions, signatures, pagers, transports. So git is never safe by its words alone, but for
a few that run none of them. ``Context.git_helpers_off`` is the caller's promise that
none can run, which takes two things:

- ``HELPERS_OFF`` in the environment that git is run with: it turns off all that has a switch but
  ``diff.external``, of which every value is run, also the empty one (git 2.39: "external diff
  died"); of what is here only ``diff`` runs it, and is safe with ``--no-ext-diff``;
- for what has none (``filter.*`` and ``diff.*`` drivers, which attributes name), that no command
  may write the repository's ``.git``, and that whoever made the repository is trusted, or that the
  command is confined so well that a helper may run.

Options are whole names, as in ``options``; git takes abbreviations, so those are not in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from sandbox.command.dangers import Danger, forms_in
from sandbox.command.options import Options, first_strange, names, options
from sandbox.command.verdict import Reason

__all__ = ["HELPERS_OFF", "git_danger", "git_plain", "git_strange", "git_wants_helpers"]

# Each with the reason beside it; the last one given for a key wins over every file.
_SETTINGS = (
    ("core.fsmonitor", "false"),  # run by status and diff
    ("core.hooksPath", "/dev/null"),  # post-index-change is run by a refresh of the index
    ("core.attributesFile", "/dev/null"),  # names drivers for every repository
    ("log.showSignature", "false"),  # runs gpg.program
    ("gpg.program", "false"),  # run by %G? in formats
    ("gpg.ssh.program", "false"),
    ("gpg.x509.program", "false"),
    ("diff.autoRefreshIndex", "false"),  # writes the index
    ("status.submoduleSummary", "false"),  # runs git in submodules, with their configuration
    ("diff.submodule", "short"),
    ("protocol.allow", "never"),  # a missing object is fetched by a transport of the repository's
)

HELPERS_OFF: Mapping[str, str] = MappingProxyType(
    {
        "GIT_CONFIG_COUNT": str(len(_SETTINGS)),
        **{f"GIT_CONFIG_KEY_{at}": key for at, (key, _) in enumerate(_SETTINGS)},
        **{f"GIT_CONFIG_VALUE_{at}": value for at, (_, value) in enumerate(_SETTINGS)},
        "GIT_PAGER": "cat",  # comes before core.pager and pager.*
        "GIT_EDITOR": "false",
        "GIT_ALLOW_PROTOCOL": "none",  # comes before protocol.*.allow
        "GIT_NO_LAZY_FETCH": "1",  # since git 2.44
        "GIT_OPTIONAL_LOCKS": "0",  # status does not write the index
        "GIT_TERMINAL_PROMPT": "0",
        # The empty tree: no .gitattributes of the work tree, so no driver (since git 2.41).
        "GIT_ATTR_SOURCE": "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    }
)

_PAGED = frozenset({"--no-pager", "-P"})
_PLAIN_GLOBALS = frozenset(
    {"--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs", "--no-replace-objects"}
)
_SAFE_SETTINGS = frozenset(
    {"core.fsmonitor=false", "core.hooksPath=/dev/null", "core.pager=cat", "color.ui=false"}
    | {"core.quotePath=false", "core.quotepath=false", "log.showSignature=false"}
)

_COMMITS = """oneline graph all branches tags remotes decorate no-decorate abbrev-commit
    no-abbrev-commit abbrev stat shortstat numstat name-only name-status summary patch no-patch raw
    format pretty date since until after before author committer grep max-count skip reverse
    first-parent merges no-merges follow no-ext-diff no-textconv no-color color unified
    ignore-all-space ignore-space-change ignore-blank-lines word-diff find-renames find-copies
    no-renames diff-filter topo-order date-order left-right cherry-pick no-show-signature relative
    no-pager pickaxe-regex function-context minimal patience histogram check full-index binary
    no-prefix cached staged merge-base exit-code quiet ignore-submodules
    dirstat compact-summary patch-with-stat ancestry-path simplify-by-decoration full-history"""
_DIFF = options("pPuUzwbRWsSMCDacm0123456789i", "nSGULM", _COMMITS)


class _Row(NamedTuple):
    """A sub-command: its options, why it is here, and which of the repository's helpers may run.

    ``helpers``: "all", or "pager" (on a terminal only, and not with --no-pager); tried.
    ``lists``: operands count as questions only with one of these options.
    ``first``: the first operand must be one of these, where it has one.
    """

    options: Options
    why: str
    helpers: str = "all"
    lists: frozenset[str] = frozenset()
    first: frozenset[str] = frozenset()


_READS: dict[str, _Row] = {
    "status": _Row(
        options("sbuzv", "", """short branch porcelain long untracked-files ignored no-renames
                ignore-submodules show-stash ahead-behind no-ahead-behind column no-column"""),
        "tells; runs fsmonitor and filters"),
    "diff": _Row(_DIFF, "starts diff.external if not --no-ext-diff; --output writes"),
    "log": _Row(_DIFF, "as diff; --show-signature starts gpg"),
    "show": _Row(_DIFF, "as log"),
    "whatchanged": _Row(_DIFF, "as log"),
    "shortlog": _Row(options("nsec", "", "numbered summary email all since until no-merges"),
                     "counts commits"),
    "blame": _Row(options("wlstfnecMC", "L", "porcelain date since no-textconv show-email"),
                  "--contents reads only, --textconv starts programs"),
    "grep": _Row(
        options("niIwvlLchHEFGPqraopW", "eABCm", """line-number ignore-case word-regexp
                invert-match files-with-matches name-only count extended-regexp fixed-strings
                perl-regexp cached untracked no-index heading break show-function
                function-context and or not all-match max-depth after-context before-context
                context quiet full-name no-textconv"""),
        "-O starts a pager"),
    "ls-files": _Row(
        options("cdmosukzt", "xX", """cached deleted modified others stage unmerged killed
                exclude-standard full-name error-unmatch directory exclude abbrev eol"""),
        "-m runs filters"),
    "ls-tree": _Row(options("drtlz", "", "name-only name-status full-tree full-name abbrev long"),
                    "lists a tree"),
    "cat-file": _Row(options("tsep", "", "", 2), "--textconv and --filters start programs"),
    "describe": _Row(options("", "", "all tags long always abbrev match exclude contains"
                             " exact-match first-parent candidates"), "names a commit"),
    "rev-list": _Row(_DIFF._replace(long=_DIFF.long | {"--count", "--objects"}), "lists commits"),
    "merge-base": _Row(options("a", "", "all is-ancestor octopus fork-point independent"),
                       "compares commits"),
    "diff-tree": _Row(_DIFF._replace(letters=_DIFF.letters + "rt",
                                     long=_DIFF.long | {"--root", "--no-commit-id"}), "as diff"),
    "name-rev": _Row(options("", "", "tags name-only always"), "names a commit"),
    "count-objects": _Row(options("vH"), "counts"),
    "check-ignore": _Row(options("vqn", "", "no-index verbose quiet non-matching"), "asks"),
    "show-ref": _Row(options("hds", "", "heads tags head hash verify quiet dereference"), "lists"),
    "rev-parse": _Row(
        options("q", "", """show-toplevel show-prefix show-cdup git-dir git-common-dir
                absolute-git-dir abbrev-ref short verify quiet is-inside-work-tree
                is-inside-git-dir is-bare-repository is-shallow-repository symbolic-full-name"""),
        "an object that is missing is fetched by a program of the repository's"),
    "branch": _Row(
        options("avr", "", """list all remotes verbose show-current contains no-contains merged
                no-merged sort column no-column color no-color abbrev points-at"""),
        "an operand makes a branch",
        lists=names("--list --contains --merged --no-merged")),
    "tag": _Row(options("ln", "", "list contains merged sort column points-at no-column"),
                "an operand makes a tag", lists=names("-l --list --contains")),
    "remote": _Row(options("v", "", "verbose", 0), "an operand changes, or asks the network",
                   helpers="pager"),
    "config": _Row(options("lz", "", "get get-all get-regexp list show-origin show-scope name-only"
                           " local global system type includes"),
                   "two operands set", helpers="pager",
                   lists=names("--get --get-all --get-regexp -l --list")),
    "stash": _Row(_DIFF, "only list and show read", first=names("list show")),
    "worktree": _Row(options("vz", "", "porcelain verbose", 1), "only list reads", helpers="pager",
                     first=names("list")),
    "reflog": _Row(_DIFF, "only show reads", first=names("show")),
}  # fmt: skip
_VERSION = (("--version",), ("version",))
# Questions about names alone. Any other looks for objects, and in a partial clone git fetches those
# that are missing, which starts what remote.*.uploadpack of the repository names.
_NO_OBJECTS = names("""--show-toplevel --show-prefix --show-cdup --git-dir --git-common-dir
    --absolute-git-dir --is-inside-work-tree --is-inside-git-dir --is-bare-repository
    --is-shallow-repository --abbrev-ref --symbolic-full-name HEAD""")
# Of diff: with these alone no patch is made.
_NO_PATCH = names("--stat --numstat --shortstat --summary --name-only --name-status")
_STAGED_DIFF = names("--cached --staged")
_NEEDS_OPERAND = names("stash worktree")  # without one they write, or are an error


def _globals(words: Sequence[str]) -> tuple[int, int | None]:
    """Where the sub-command stands, and the first global option not known to be harmless."""
    at, strange = 0, None
    while at < len(words) and words[at].startswith("-"):
        word = words[at]
        takes = word in ("-c", "-C", "--git-dir", "--work-tree", "--namespace", "--exec-path",
                         "--super-prefix", "--config-env", "--attr-source")  # fmt: skip
        value = words[at + 1] if takes and at + 1 < len(words) else ""
        if not (word in _PLAIN_GLOBALS or (word == "-c" and value in _SAFE_SETTINGS)):
            strange = at if strange is None else strange
        at += 2 if takes and word != "--exec-path" else 1
    return at, strange


def git_plain(words: Sequence[str]) -> Sequence[str]:
    """What follows ``git``, from the sub-command on."""
    return words[_globals(words)[0] :]


def git_strange(words: Sequence[str]) -> tuple[int, str] | None:
    """The first word after ``git`` that is not known to be harmless, and what is known of it."""
    if tuple(words) in _VERSION:
        return None
    at, strange = _globals(words)
    if strange is not None:
        return strange, "an option of git that may name programs or another repository"
    row = _READS.get(words[at]) if at < len(words) else None
    if row is None:
        return min(at, max(len(words) - 1, 0)), "a sub-command not known to only read"
    rest = words[at + 1 :]
    found = first_strange(rest, row.options)
    if found is None:
        found = _operands(rest, row, words[at])
    if found is None and words[at] == "diff" and _shows_patch(rest):
        found = 0
    if found is None:
        found = next((n for n, word in enumerate(rest) if "%G" in word), None)
    return None if found is None else (at + 1 + min(found, max(len(rest) - 1, 0)), row.why)


def _operands(rest: Sequence[str], row: _Row, name: str) -> int | None:
    """The first operand that makes a sub-command do more than tell."""
    operands = [at for at, word in enumerate(rest) if not word.startswith("-")]
    if row.first:
        if not operands:
            return 0 if name in _NEEDS_OPERAND else None
        return None if rest[operands[0]] in row.first and operands[0] == 0 else operands[0]
    if row.lists and operands:
        if "--sort" in rest:  # takes the next word, also the one that asks: branch --sort --list x
            return list(rest).index("--sort")
        asked = next((at for at, word in enumerate(rest) if word in row.lists), None)
        return operands[0] if asked is None or asked > operands[0] else None
    return None


def _shows_patch(rest: Sequence[str]) -> bool:
    """Whether ``diff`` makes a patch, by which program the repository may say."""
    chosen = rest[: rest.index("--")] if "--" in rest else rest
    asked = {word for word in chosen if word.startswith("-")}
    if asked <= _NO_PATCH | _STAGED_DIFF and asked & _NO_PATCH:
        return False
    for before, word in zip(["", *chosen], chosen, strict=False):
        # Behind another option it may be that one's value: -S --no-ext-diff.
        if word == "--no-ext-diff" and (
            before[:1] != "-" or before in _NO_PATCH or before in _STAGED_DIFF
        ):
            return False
    return True


def git_wants_helpers(words: Sequence[str]) -> bool:
    """Whether a command that is not strange may run what the repository names."""
    if tuple(words) in _VERSION:
        return False
    at, _ = _globals(words)
    row = _READS.get(words[at]) if at < len(words) else None
    if row is None or words[at:] == ["branch", "--show-current"]:
        return row is None
    if words[at] == "rev-parse":
        return not _NO_OBJECTS.issuperset(words[at + 1 :])
    return row.helpers == "all" or (row.helpers == "pager" and _PAGED.isdisjoint(words[:at]))


def _has_word(*wanted: str) -> Callable[[Sequence[str]], bool]:
    """A form that is a word, wherever it stands."""
    return lambda words: not set(wanted).isdisjoint(words)


def _has_ref(sign: str) -> Callable[[Sequence[str]], bool]:
    """A form that is a ref with this sign before it."""
    return lambda words: any(word.startswith(sign) for word in words)


_STAGED, _WORKTREE = names("--staged -S"), names("--worktree -W -SW -WS")


def _restores_files(words: Sequence[str]) -> bool:
    """Whether ``restore`` changes files, and not what is staged alone."""
    return _STAGED.isdisjoint(words) or not _WORKTREE.isdisjoint(words)


_HISTORY, _DISCARD = Reason.HISTORY, Reason.DISCARD

_DANGERS: dict[str, tuple[Danger, ...]] = {
    "push": (Danger(_HISTORY, "overwrites or deletes what others have", "fd",
                    ("--force", "--force-with-lease", "--force-if-includes", "--mirror", "--delete",
                     "--prune")),
             Danger(_HISTORY, "overwrites what others have", when=_has_ref("+")),
             Danger(_HISTORY, "deletes what others have", when=_has_ref(":"))),
    "reset": (Danger(_DISCARD, "changes files back", long=("--hard", "--merge")),),
    "clean": (Danger(_DISCARD, "removes files", "f", ("--force",)),),
    "checkout": (Danger(_DISCARD, "changes files back", "f", ("--force", "--")),
                 Danger(_DISCARD, "changes files back", when=_has_word("."))),
    "switch": (Danger(_DISCARD, "changes files back", "fC", ("--force", "--discard-changes")),),
    "restore": (Danger(_DISCARD, "changes files back", when=_restores_files),),
    "branch": (Danger(_HISTORY, "drops a branch", "dDfM", ("--delete", "--force")),),
    "tag": (Danger(_HISTORY, "drops or moves a tag", "df", ("--delete", "--force")),),
    "stash": (Danger(_DISCARD, "drops stashes", when=_has_word("drop", "clear")),),
    "commit": (Danger(_HISTORY, "rewrites the last commit", long=("--amend",)),),
    "rebase": (Danger(_HISTORY, "rewrites commits"),),
    "filter-branch": (Danger(_HISTORY, "rewrites all commits"),),
    "filter-repo": (Danger(_HISTORY, "rewrites all commits"),),
    "replace": (Danger(_HISTORY, "puts other objects in the place of some"),),
    "update-ref": (Danger(_HISTORY, "moves or drops refs"),),
    "reflog": (Danger(_HISTORY, "drops what undoes mistakes", when=_has_word("expire", "delete")),),
    "gc": (Danger(_HISTORY, "drops what undoes mistakes", long=("--prune",)),),
    "prune": (Danger(_HISTORY, "drops what undoes mistakes"),),
    "worktree": (Danger(_DISCARD, "removes a work tree", "f", ("--force",)),),
    "rm": (Danger(Reason.REMOVAL, "forced", "f", ("--force",)),),
    "credential": (Danger(Reason.CREDENTIALS, "gives out passwords"),),
}  # fmt: skip


def git_danger(words: Sequence[str]) -> list[Danger]:
    """The dangerous forms in a command; ``words`` are what follows ``git``."""
    at, _ = _globals(words)
    forms = _DANGERS.get(words[at], ()) if at < len(words) else ()
    return forms_in(words[at + 1 :], forms)
