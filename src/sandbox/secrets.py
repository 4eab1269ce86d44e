"""The places that hold secrets, in HOME and on the machine, each with its reason.

What a command prints goes to a model and to its provider, so a secret that is read is lost. These
places are denied for reading unless a policy allows them by name. The table is the truth:
documentation, error texts and tests are made from it. A place that does not exist yet is denied
all the same. One name may stand for several places; allowing it allows all of them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from sandbox.errors import InvalidArgument

__all__ = [
    "ALL",
    "MACHINE",
    "SECRETS",
    "Secret",
    "check_allowed",
    "is_allowed",
    "machine_secrets",
    "secrets_of",
]

ALL = "*"  # as a name: every place of the table

Kind = Literal["file", "dir"]
System = Literal["any", "linux", "darwin"]


@dataclass(frozen=True, slots=True)
class Secret:
    """One place: ``name`` (what a person allows), ``path`` below HOME, why, what, and where.

    ``grantable``: naming a path in it in an entry of the policy is enough to have that path.
    """

    name: str
    path: str
    reason: str
    kind: Kind
    system: System = "any"
    grantable: bool = False

    def at(self, home: str) -> str:
        """The absolute path for a home directory."""
        return f"{home.rstrip('/')}/{self.path}"


def _rows(kind: Kind, reason: str, places: str, system: System = "any") -> tuple[Secret, ...]:
    """Rows of one kind and reason from ``name:path`` items with semicolons between them."""
    pairs = [item.strip().partition(":") for item in places.split(";")]
    return tuple(Secret(name, path, reason, kind, system) for name, _, path in pairs)


_KEYS = _rows(
    "dir",
    "private keys and the names of hosts they open",
    """
    ssh:.ssh; gnupg:.gnupg; putty:.putty; pki:.pki; age:.config/age; sops:.config/sops
    """,
)
_CLOUD = _rows(
    "dir",
    "keys and tokens of cloud accounts",
    """
    aws:.aws; azure:.azure; gcloud:.config/gcloud; oci:.oci; aliyun:.aliyun;
    bluemix:.bluemix; doctl:.config/doctl; hcloud:.config/hcloud; scaleway:.config/scw;
    fly:.fly; vercel:.local/share/com.vercel.cli; vercel:.vercel; netlify:.config/netlify;
    stripe:.config/stripe; cloudflared:.cloudflared; wrangler:.config/.wrangler;
    ngrok:.config/ngrok; ngrok:.ngrok2; rclone:.config/rclone;
    configstore:.config/configstore; kube:.kube; docker:.docker;
    containers:.config/containers; argocd:.config/argocd; terraform:.terraform.d;
    pulumi:.pulumi
    """,
)
_CLOUD_FILES = _rows(
    "file",
    "keys and tokens of cloud and data services",
    """
    s3cmd:.s3cfg; boto:.boto; databricks:.databrickscfg; terraform:.terraformrc;
    vault:.vault-token; snowflake:.snowsql/config; kaggle:.kaggle/kaggle.json;
    huggingface:.cache/huggingface/token; huggingface:.cache/huggingface/stored_tokens;
    huggingface:.huggingface/token
    """,
)
_FORGES = _rows(
    "dir",
    "tokens that push code in the user's name",
    """
    gh:.config/gh; glab:.config/glab-cli; tea:.config/tea;
    github-copilot:.config/github-copilot; subversion:.subversion/auth
    """,
)
_LOGINS = _rows(
    "file",
    "passwords and tokens in clear text",
    """
    netrc:.netrc; netrc:.authinfo; netrc:.authinfo.gpg; git:.git-credentials;
    git:.config/git/credentials; hub:.config/hub; curl:.curlrc; wget:.wgetrc;
    postgres:.pgpass; mysql:.my.cnf; mysql:.mylogin.cnf; smb:.smbcredentials
    """,
)
_PACKAGES = _rows(
    "file",
    "tokens that publish packages or open private indexes",
    """
    npm:.npmrc; yarn:.yarnrc; yarn:.yarnrc.yml; bun:.bunfig.toml; pypi:.pypirc;
    pip:.config/pip/pip.conf; pip:.pip/pip.conf;
    poetry:.config/pypoetry/auth.toml; cargo:.cargo/credentials;
    cargo:.cargo/credentials.toml; gem:.gem/credentials; gem:.local/share/gem/credentials;
    bundler:.bundle/config; composer:.composer/auth.json;
    composer:.config/composer/auth.json; nuget:.nuget/NuGet/NuGet.Config;
    maven:.m2/settings.xml; maven:.m2/settings-security.xml;
    gradle:.gradle/gradle.properties; sbt:.sbt/.credentials; ivy:.ivy2/.credentials;
    conda:.condarc; hex:.hex/hex.config
    """,
)
_VAULTS = _rows(
    "dir",
    "password stores and wallets",
    """
    pass:.password-store; uv:.local/share/uv/credentials;
    keyring:.local/share/keyrings; keyring:.local/share/python_keyring;
    keyring:.gnome2/keyrings; kwallet:.local/share/kwalletd; 1password:.config/op;
    1password:.config/1Password; bitwarden:.config/Bitwarden;
    bitwarden:.config/Bitwarden CLI; lastpass:.local/share/lpass;
    keepassxc:.config/keepassxc; bitcoin:.bitcoin; ethereum:.ethereum; electrum:.electrum;
    solana:.config/solana
    """,
)
_HISTORIES = _rows(
    "file",
    "a history holds what was typed, passwords and tokens too",
    """
    history:.bash_history; history:.zsh_history; history:.zhistory; history:.histfile;
    history:.sh_history; history:.ksh_history; history:.history;
    history:.local/share/fish/fish_history; history:.python_history;
    history:.ipython/profile_default/history.sqlite; history:.node_repl_history;
    history:.ts_node_repl_history; history:.irb_history; history:.local/share/irb/history;
    history:.pry_history; history:.php_history; history:.Rhistory; history:.psql_history;
    history:.mysql_history; history:.mariadb_history; history:.sqlite_history;
    history:.duckdb_history; history:.rediscli_history; history:.dbshell;
    history:.gdb_history; history:.lesshst; history:.viminfo;
    history:.local/state/nvim/shada; history:.wget-hsts
    """,
)
_HISTORY_DIRS = _rows(
    "dir",
    "a history holds what was typed, passwords and tokens too",
    """
    history:.bash_sessions; history:.zsh_sessions; history:.mongodb;
    history:.local/share/atuin
    """,
)
_BROWSERS = _rows(
    "dir",
    "cookies, sessions and saved passwords of a browser",
    """
    firefox:.mozilla; firefox:snap/firefox; firefox:.var/app/org.mozilla.firefox;
    librewolf:.librewolf; zen:.zen; chrome:.config/google-chrome;
    chrome:.config/google-chrome-beta; chrome:.config/google-chrome-unstable;
    chrome:.var/app/com.google.Chrome; chromium:.config/chromium; chromium:snap/chromium;
    chromium:.var/app/org.chromium.Chromium; brave:.config/BraveSoftware;
    brave:.var/app/com.brave.Browser; edge:.config/microsoft-edge; vivaldi:.config/vivaldi;
    opera:.config/opera
    """,
    "linux",
)
_MAC = _rows(
    "dir",
    "key chains, cookies, mail and messages of this user",
    """
    keychain:Library/Keychains; cookies:Library/Cookies; cookies:Library/HTTPStorages;
    safari:Library/Safari; safari:Library/Containers/com.apple.Safari;
    firefox:Library/Application Support/Firefox;
    chrome:Library/Application Support/Google/Chrome;
    chromium:Library/Application Support/Chromium;
    brave:Library/Application Support/BraveSoftware;
    edge:Library/Application Support/Microsoft Edge;
    vivaldi:Library/Application Support/Vivaldi;
    opera:Library/Application Support/com.operasoftware.Opera;
    arc:Library/Application Support/Arc; mail:Library/Mail; messages:Library/Messages;
    contacts:Library/Application Support/AddressBook;
    1password:Library/Application Support/1Password;
    1password:Library/Group Containers/2BUA8C4S2C.com.1password;
    bitwarden:Library/Application Support/Bitwarden;
    signal:Library/Application Support/Signal; slack:Library/Application Support/Slack;
    discord:Library/Application Support/discord; cursor:Library/Application Support/Cursor;
    claude:Library/Application Support/Claude;
    vscode:Library/Application Support/Code/User/globalStorage
    """,
    "darwin",
)
_TALK = _rows(
    "dir",
    "mail and messages of this user",
    """
    thunderbird:.thunderbird; mutt:.mutt; mutt:.config/mutt; mail:Maildir;
    evolution:.local/share/evolution; evolution:.config/evolution; signal:.config/Signal;
    slack:.config/Slack; discord:.config/discord; weechat:.config/weechat; pidgin:.purple
    """,
)
_TALK_FILES = _rows(
    "file",
    "passwords of mail accounts",
    """
    mutt:.muttrc; msmtp:.msmtprc; msmtp:.config/msmtp/config; mbsync:.mbsyncrc;
    fetchmail:.fetchmailrc
    """,
)
_AGENTS = _rows(
    "dir",
    "tokens, sessions and rules of a coding agent",
    """
    codex:.codex; claude:.claude; claude:.config/Claude; claude:.config/claude;
    gemini:.gemini; cursor:.cursor; cursor:.config/Cursor; copilot:.copilot; qwen:.qwen;
    goose:.config/goose; opencode:.config/opencode; opencode:.local/share/opencode;
    continue:.continue; codeium:.codeium; amp:.config/amp; openai:.config/openai;
    vscode:.config/Code/User/globalStorage; sandbox:.config/sandbox; sandbox:.local/state/sandbox
    """,
)
_AGENT_FILES = _rows(
    "file",
    "tokens, sessions and rules of a coding agent",
    """
    claude:.claude.json; aider:.aider.conf.yml
    """,
)
_DISPLAY = _rows(
    "file",
    "the cookie that opens the user's screen and keyboard",
    """
    xauthority:.Xauthority; iceauthority:.ICEauthority
    """,
)

SECRETS: tuple[Secret, ...] = (
    *_KEYS,
    *_CLOUD,
    *_CLOUD_FILES,
    *_FORGES,
    *_LOGINS,
    *_PACKAGES,
    *_VAULTS,
    *_HISTORIES,
    *_HISTORY_DIRS,
    *_BROWSERS,
    *_MAC,
    *_TALK,
    *_TALK_FILES,
    *_AGENTS,
    *_AGENT_FILES,
    *_DISPLAY,
)

_HOST_KEYS = "ssh_host_rsa_key ssh_host_ecdsa_key ssh_host_ed25519_key ssh_host_dsa_key"

# Not in HOME: below the root of the file system. Root owns these, and owning is enough to read.
MACHINE: tuple[Secret, ...] = (
    Secret(
        "devices",
        "dev",
        "raw disks, other sessions' terminals and keystrokes, shared memory of other programs",
        "dir",
        "linux",
        grantable=True,
    ),
    *_rows(
        "file",
        "password hashes of this machine's users",
        "shadow:etc/shadow; shadow:etc/gshadow; shadow:etc/shadow-; shadow:etc/gshadow-",
        "linux",
    ),
    *_rows(
        "file",
        "the key by which this machine is known to others",
        "; ".join(f"host-keys:etc/ssh/{name}" for name in _HOST_KEYS.split()),
        "linux",
    ),
    *_rows(
        "dir",
        "private keys of this machine's services",
        """
        tls:etc/ssl/private; tls:etc/pki/tls/private; tls:etc/letsencrypt;
        wireguard:etc/wireguard
        """,
        "linux",
    ),
    *_rows(
        "dir",
        "secrets that a container is given, tokens of its service account",
        """
        container:run/secrets; container:var/run/secrets; kubernetes:etc/kubernetes;
        kubernetes:var/lib/kubelet; credentials:run/credentials
        """,
        "linux",
    ),
    Secret(
        "sessions",
        "run/user",
        "tokens, cookies and sockets of this user's sessions (podman's, the screen's)",
        "dir",
        "linux",
        grantable=True,
    ),
    *_rows(
        "dir",
        "memory of other programs, as it was when they crashed",
        "coredumps:var/lib/systemd/coredump; coredumps:var/crash",
        "linux",
    ),
    *_rows(
        "file", "memory of other programs, swapped out", "swap:swapfile; swap:swap.img", "linux"
    ),
    *_rows("dir", "kernel traces", "tracing:sys/kernel/tracing; tracing:sys/kernel/debug", "linux"),
    *_rows("file", "this machine's key for Kerberos", "keytab:etc/krb5.keytab", "linux"),
    *_rows(
        "dir",
        "passwords of this machine's networks",
        "networks:etc/NetworkManager/system-connections",
        "linux",
    ),
)


def machine_secrets(system: str = sys.platform) -> tuple[Secret, ...]:
    """The places outside HOME that apply to a platform; their paths are below ``/``."""
    return tuple(row for row in MACHINE if row.system in ("any", system))


def secrets_of(system: str = sys.platform) -> tuple[Secret, ...]:
    """The places that apply to a platform (``linux`` or ``darwin``)."""
    return tuple(row for row in SECRETS if row.system in ("any", system))


def check_allowed(allowed: Iterable[str]) -> None:
    """Refuse names that no place has: an allowance with a typing error must not go unnoticed.

    Each is a name of the table, ``*`` for all, or an absolute path at or below a place (checked
    against HOME only when the policy is resolved). Raises ``InvalidArgument``.
    """
    named = [item for item in allowed if item != ALL and not item.startswith("/")]
    names = {row.name for row in (*SECRETS, *MACHINE)} if named else set()
    for item in [item for item in named if item not in names]:
        from difflib import get_close_matches  # only who mistyped pays for it

        near = [name for name in sorted(names) if name in item or item in name]
        near = near or get_close_matches(item, sorted(names))
        known = f"one of {', '.join(near)}" if near else "see docs/secrets.md for their names"
        raise InvalidArgument("allow_secrets", item, "no place of secrets has this name", known)


def is_allowed(row: Secret, place: str, allowed: Iterable[str]) -> bool:
    """Whether a whole place is allowed: by its name, by ``*``, or by its path."""
    return any(item in (ALL, row.name, place) for item in allowed)
