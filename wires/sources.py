"""What the source code of a package says: its routes, its kinds of events, the server that it needs.

It is read by patterns, since the interpreter here may be older than the syntax of the packages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

AGENT_SERVER = "openhands-agent-server"
APP_SERVER = "openhands-ai"
_AT = {AGENT_SERVER: "/agent", APP_SERVER: ""}
"""Where this server serves a package's routes."""
_API = {AGENT_SERVER: "/api", APP_SERVER: "/api/v1"}
_AT_THE_ROOT = (
    "server_details_router",
    "status_router",
    "openai/router",
    "bridge_router",
    "/api",
    "/sockets",
    "/session_socket",
)
"""Ends of the names of modules that the servers mount beside the root of their package."""
_OF_ONE_RUNTIME = ("bash_router", "file_router", "git_router", "vscode_router")
"""Modules that the agent server mounts a second time, below a conversation."""
_WITHOUT_RUNTIME = ("/file/home", "/file/search_subdirs", "/git/repositories/search")
_RUNTIME = "/conversations/{runtime_conversation_id}"
_OTHER_RUNTIME = "docker_runtime"

_ROUTER = re.compile(r"^(?P<name>\w+) = APIRouter\((?P<arguments>[^()]*(?:\([^()]*\)[^()]*)*)\)", re.M)
_PREFIX = re.compile(r"prefix=[\"'](?P<prefix>[^\"']*)[\"']")
_CONSTANT = re.compile(r"^(?P<name>[A-Z_]+)(?:: [^=]+)? = [\"'](?P<value>[^\"']*)[\"'](?:  #.*)?$", re.M)
_ROUTE = re.compile(
    r"^\s*@(?P<router>\w+)\.(?P<method>get|post|put|patch|delete|websocket)\(\s*"
    r"(?:[\"'](?P<path>[^\"']*)[\"']|(?P<constant>[A-Z_]+))(?P<rest>[^@]*?)^\s*(?:async )?def ",
    re.M,
)
_HIDDEN = "include_in_schema=False"
_CLASS = re.compile(r"^class (?P<name>\w+)\((?P<bases>[^)]*)\):", re.M)
_MINIMUM = re.compile(r"minimumAgentServer:\s*[`\"'](?P<version>[\d.]+)")
_PARAMETER = re.compile(r"\{[^}]*\}")


def routes_of(package: str, root: Path) -> set[str]:
    """Return each documented route as `METHOD /path` at this server, its parameters as `{}`."""
    found: set[str] = set()
    for file in sorted(root.rglob("*.py")):
        module = f"/{file.relative_to(root).with_suffix('').as_posix()}"
        if _OTHER_RUNTIME in module:
            continue
        prefix = _AT[package] + ("" if module.endswith(_AT_THE_ROOT) else _API[package])
        for method, path in _routes(file.read_text()):
            found.add(route(method, prefix + path))
            is_twice = module.endswith(_OF_ONE_RUNTIME) and path not in _WITHOUT_RUNTIME
            if package == AGENT_SERVER and is_twice:
                found.add(route(method, prefix + _RUNTIME + path))
    return found


def route(method: str, path: str) -> str:
    """Return a route in the form in which two are compared."""
    return f"{method.upper()} {_PARAMETER.sub('{}', path)}"


def event_kinds(root: Path) -> set[str]:
    """Return the names of the SDK's classes of events that can be stored or sent."""
    bases: dict[str, set[str]] = {}
    for file in sorted((root / "openhands" / "sdk" / "event").rglob("*.py")):
        for found in _CLASS.finditer(file.read_text()):
            bases[found["name"]] = {base.strip() for base in found["bases"].split(",")}
    kinds = {"Event"}
    while more := {name for name, above in bases.items() if above & kinds} - kinds:
        kinds |= more
    return kinds - set().union(*bases.values())


def minimum_agent_server(root: Path) -> set[str]:
    """Return the oldest versions of an agent server that the web client accepts."""
    assets = (root / "package" / "build" / "assets").glob("*.js")
    return {found["version"] for file in assets for found in _MINIMUM.finditer(file.read_text())}


def _routes(source: str) -> Iterator[tuple[str, str]]:
    prefixes = {"app": ""}
    for router in _ROUTER.finditer(source):
        prefix = _PREFIX.search(router["arguments"])
        prefixes[router["name"]] = prefix["prefix"] if prefix else ""
    constants = {found["name"]: found["value"] for found in _CONSTANT.finditer(source)}
    for found in _ROUTE.finditer(source):
        if found["router"] in prefixes and _HIDDEN not in found["rest"]:
            path = found["path"] if found["path"] is not None else constants[found["constant"]]
            yield found["method"], prefixes[found["router"]] + path
