"""The environment of git in runs on shadow repositories: all of its configuration is here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sessions_app.workspace_git.script import ENVIRONMENT as OF_EVERY_RUN

SHADOW = "/checkpoints"
"""Where a run sees the shadow repository."""
SOURCE = "/checkpoints-of-source"
"""Where it sees the one from which a branch is copied."""

_CONFIGURATION = {
    "core.hooksPath": "/dev/null",
    "core.attributesFile": "/dev/null",
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
    # Names that other systems cannot have are names here.
    "core.protectNTFS": "false",
    "core.protectHFS": "false",
    "core.ignoreCase": "false",
    "core.precomposeUnicode": "false",
    "core.fileMode": "true",
    "core.symlinks": "true",
    "core.autocrlf": "false",
    "core.sparseCheckout": "false",
    # Speed comes before size: a turn's end waits for this, and pruning packs it later.
    "core.compression": "1",
    # A longer file is read in parts, so that it needs little memory.
    "core.bigFileThreshold": "16m",
    "core.fsyncMethod": "batch",
    "gc.auto": "0",
    "pack.threads": "1",
    "pack.windowMemory": "64m",
}
ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {
        **OF_EVERY_RUN,
        "GIT_DIR": SHADOW,
        "GIT_WORK_TREE": ".",
        "SOURCE": SOURCE,
        "GIT_CONFIG_COUNT": str(len(_CONFIGURATION)),
        **{f"GIT_CONFIG_KEY_{number}": key for number, key in enumerate(_CONFIGURATION)},
        **{f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(_CONFIGURATION.values())},
        **{
            f"GIT_{who}_{what}": value
            for who in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", "convserver"), ("EMAIL", "convserver@localhost"))
        },
    }
)
