"""The list of a directory of many files of a workspace, beside a bare scan of the same directory."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks import server
from benchmarks.clients import calls
from benchmarks.databases import Database
from benchmarks.job import ClientFailed

FILES, TIMES = 100_000, 5
_LISTED_MOST = 10_000


class Listing(NamedTuple):
    """How long both take, in milliseconds: the medians."""

    list_ms: float
    scan_ms: float


def measured(database: Database, directory: Path, files: int = FILES) -> Listing:
    """Create the files in a workspace, then list and scan them in turns. Raise ClientFailed."""
    places = directory / "listed-workspaces"
    with server.convserver(database.url, directory, CONVSERVER_WORKSPACES=str(places)) as running:
        body = {"agent": {"llm": {"model": "none"}}, "workspace": {"working_dir": "/workspace"}}
        public_id = json.loads(calls.post(running, "/agent/api/conversations", body))["id"]
        made = f"/agent/api/conversations/{public_id}/file/create_directory?path=/workspace/many"
        calls.post(running, made, {})
        (many,) = places.glob("*/many")
        for number in range(files):
            (many / f"{number:06}").touch()
        path = f"/api/conversations/{public_id.replace('-', '')}/list-files?path=many"
        lists_ms, scans_ms = [], []
        for _ in range(TIMES):
            began = time.perf_counter()
            listed = json.loads(calls.get(running, path))
            lists_ms.append((time.perf_counter() - began) * 1_000)
            if len(listed) != min(files, _LISTED_MOST):
                raise ClientFailed(f"The list has {len(listed)} names.")
            began = time.perf_counter()
            with os.scandir(many) as found:
                sorted((not each.is_dir(follow_symlinks=False), each.name.lower()) for each in found)
            scans_ms.append((time.perf_counter() - began) * 1_000)
    return Listing(median(lists_ms), median(scans_ms))
