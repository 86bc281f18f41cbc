"""The samples of every format that can be imported, and the ordinary way in for each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from django.core.management import CommandError, call_command

DATA = Path(__file__).parents[2] / "data"
OPENHANDS_V1 = "openhands-v1"
SAMPLES: Mapping[str, Path] = {
    "claude-code": DATA / "claude-code/projects",
    "codex": DATA / "codex/sessions",
    "chatgpt": DATA / "chatgpt",
    "claude-ai": DATA / "claude-ai",
    "open-webui": DATA / "open-webui",
    "hermes-webui": DATA / "hermes-webui/webui",
    "openhands-v0": DATA / "openhands-v0-store",
    OPENHANDS_V1: DATA / "openhands-v1/conversation",
    "convserver": DATA / "convserver",
}


def imported(format: str, path: Path | None = None) -> dict[str, Any]:
    """Import a path, by default the samples, as the command does, and return its report.

    The command for OpenHands V1 writes no report: what it prints stands for it.
    """
    path = path or SAMPLES[format]
    printed = StringIO()
    if format == OPENHANDS_V1:
        call_command("import_openhands_v1", str(path), stdout=printed)
        return {"printed": printed.getvalue().splitlines()}
    with TemporaryDirectory() as directory:
        file = Path(directory) / "report.json"
        try:
            call_command("import_transcripts", format, str(path), report=file, stdout=printed)
        except CommandError:  # some samples are there to fail
            report: dict[str, Any] = json.loads(file.read_text())
            if not report["failed"]:
                raise
        else:
            report = json.loads(file.read_text())
    return report


def digest_of(directory: Path) -> str:
    """Return the hash of all names, bytes and times of change below a directory."""
    whole = hashlib.sha256()
    for file in sorted(directory.rglob("*")):
        whole.update(str(file.relative_to(directory)).encode())
        whole.update(file.read_bytes() if file.is_file() else b"")
        whole.update(str(file.stat().st_mtime_ns).encode())
    return whole.hexdigest()
