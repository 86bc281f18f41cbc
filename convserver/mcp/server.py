"""The answers of the MCP door, over HTTP and over stdio."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from jsonschema import Draft202012Validator
from mcp import types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from convserver import __version__
from convserver.mcp import resources
from convserver.mcp.native import NativeDoor, NativeRefused
from convserver.mcp.tools import McpTool, as_text, offered

T = TypeVar("T")
Door = Callable[[Any], NativeDoor]
"""A function that opens the native door with the keys of a request over HTTP; stdio passes None."""

INSTRUCTIONS = (
    "All conversations that this user has had with agents on this server. Use `search` to find what was "
    "said, done or decided earlier, and `read_conversation` to read around what was found. Nothing that is "
    "there can be changed."
)
_WRITES = types.ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
_READS = types.ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False)


def server(door: Door) -> Server[Any]:
    """Return the server, whose tools ask the native door that `door` opens."""

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = next((each for each in offered() if each.name == params.name), None)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"There is no tool {params.name!r}.")
        given = params.arguments or {}
        try:
            _require_valid(tool, given)
            async with door(context.request) as native:
                return _result(as_text(await tool.run(native, given)))
        except NativeRefused as error:
            # A result, not an error of the protocol: models read only results, and can correct themselves.
            return _result(str(error), is_error=True)

    async def list_resources(
        context: Any, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        async with door(context.request) as native:
            return await _told(resources.listed(native, params.cursor if params else None))

    async def read_resource(
        context: Any, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        async with door(context.request) as native:
            return await _told(resources.read(native, params.uri))

    return Server(
        "convserver",
        version=__version__,
        title="convserver",
        instructions=INSTRUCTIONS,
        on_list_tools=_list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=_list_templates,
        on_read_resource=read_resource,
    )


async def _list_tools(context: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[_described(tool) for tool in offered()])


async def _list_templates(
    context: Any, params: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    return types.ListResourceTemplatesResult(resource_templates=resources.TEMPLATES)


async def _told(work: Awaitable[T]) -> T:
    """Return the result of `work`. Raise MCPError with the sentence of a refusal."""
    try:
        return await work
    except NativeRefused as error:
        raise MCPError(types.INVALID_PARAMS, str(error)) from error


def _described(tool: McpTool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema,
        annotations=_WRITES if tool.writes else _READS,
    )


def _require_valid(tool: McpTool, given: Mapping[str, Any]) -> None:
    """Raise NativeRefused if the arguments are not what the tool takes."""
    errors = list(Draft202012Validator(tool.input_schema).iter_errors(given))
    if errors:
        # Three are enough to correct the call, and each may quote a long argument.
        said = "; ".join(f"{each.json_path[2:]}: {each.message}".removeprefix(": ") for each in errors[:3])
        raise NativeRefused(f"The arguments of `{tool.name}` are wrong: {said[:500]}.")


def _result(text: str, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=is_error)
