"""Serve, and have at the MCP door the fixtures that the protocol's conformance suite asks for.

Run as `python -m tests.support.servers.mcp_fixtures [command of convserver]`. Its transport and
authentication stay.
"""

from __future__ import annotations

import json
import os
import sys
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import django
from mcp import types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from convserver.cli import main

Context = Any
Content = Sequence[types.ContentBlock]
Answer = Callable[[Context, Mapping[str, Any]], Awaitable[Content]]

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
"""One red pixel."""
WAV = b64encode(
    b"RIFF\x26\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0data\x02\0\0\0\0\0"
).decode()
"""One silent sample."""

NOTHING: dict[str, Any] = {"type": "object", "properties": {}}


def text(said: str) -> types.TextContent:
    return types.TextContent(text=said)


def image() -> types.ImageContent:
    return types.ImageContent(data=PNG, mime_type="image/png")


def embedded(uri: str, mime_type: str, said: str) -> types.EmbeddedResource:
    return types.EmbeddedResource(
        resource=types.TextResourceContents(uri=uri, mime_type=mime_type, text=said)
    )


def always(*content: types.ContentBlock) -> Answer:
    """Return a tool that answers the same whatever it is given."""

    async def answer(context: Context, given: Mapping[str, Any]) -> Content:
        return content

    return answer


async def with_logging(context: Context, given: Mapping[str, Any]) -> Content:
    for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await context.session.send_log_message("info", said, related_request_id=context.request_id)
    return [text("Three messages were logged.")]


async def with_progress(context: Context, given: Mapping[str, Any]) -> Content:
    for progress in (0, 50, 100):
        await context.session.report_progress(progress, 100)
    return [text("Progress was reported three times.")]


async def reconnection(context: Context, given: Mapping[str, Any]) -> Content:
    if context.close_sse_stream is not None:
        await context.close_sse_stream()
    return [text("The stream was closed before this, if there was one.")]


async def sampling(context: Context, given: Mapping[str, Any]) -> Content:
    message = types.SamplingMessage(role="user", content=text(given["prompt"]))
    result = await context.session.create_message(
        [message], max_tokens=100, related_request_id=context.request_id
    )
    return [text(f"LLM response: {result.content.text}")]


def elicitation(message: str | None, required: Sequence[str] = (), **properties: Any) -> Answer:
    """Return a tool that asks the user for these properties; the message is given if it is None."""
    schema = {"type": "object", "properties": properties, "required": list(required)}

    async def answer(context: Context, given: Mapping[str, Any]) -> Content:
        result = await context.session.elicit_form(
            message or given["message"], schema, related_request_id=context.request_id
        )
        return [text(f"Elicitation completed: action={result.action}, content={json.dumps(result.content)}")]

    return answer


def argument(name: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}


def titled(**titles: str) -> list[dict[str, str]]:
    return [{"const": value, "title": title} for value, title in titles.items()]


JSON_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}
OPTIONS = ["option1", "option2", "option3"]
FAILS = "test_error_handling"
TOOLS: dict[str, tuple[dict[str, Any], Answer]] = {
    "test_simple_text": (NOTHING, always(text("This is a simple text response for testing."))),
    "test_image_content": (NOTHING, always(image())),
    "test_audio_content": (NOTHING, always(types.AudioContent(data=WAV, mime_type="audio/wav"))),
    "test_embedded_resource": (
        NOTHING,
        always(embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")),
    ),
    "test_multiple_content_types": (
        NOTHING,
        always(
            text("Multiple content types test:"),
            image(),
            embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
        ),
    ),
    "test_tool_with_logging": (NOTHING, with_logging),
    "test_tool_with_progress": (NOTHING, with_progress),
    FAILS: (NOTHING, always(text("This tool intentionally returns an error for testing"))),
    "test_reconnection": (NOTHING, reconnection),
    "test_sampling": (argument("prompt"), sampling),
    "test_elicitation": (
        argument("message"),
        elicitation(
            None,
            ["username", "email"],
            username={"type": "string", "description": "User's response"},
            email={"type": "string", "description": "User's email address"},
        ),
    ),
    "test_elicitation_sep1034_defaults": (
        NOTHING,
        elicitation(
            "Is this right?",
            name={"type": "string", "default": "John Doe"},
            age={"type": "integer", "default": 30},
            score={"type": "number", "default": 95.5},
            status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
            verified={"type": "boolean", "default": True},
        ),
    ),
    "test_elicitation_sep1330_enums": (
        NOTHING,
        elicitation(
            "Which ones?",
            untitledSingle={"type": "string", "enum": OPTIONS},
            titledSingle={"type": "string", "oneOf": titled(value1="First Option", value2="Second Option")},
            legacyEnum={
                "type": "string",
                "enum": ["opt1", "opt2"],
                "enumNames": ["Option One", "Option Two"],
            },
            untitledMulti={"type": "array", "items": {"type": "string", "enum": OPTIONS}},
            titledMulti={
                "type": "array",
                "items": {"anyOf": titled(value1="First Choice", value2="Second Choice")},
            },
        ),
    ),
    "json_schema_2020_12_tool": (JSON_SCHEMA, always(text("It was called."))),
}

STATIC_TEXT, STATIC_BINARY = "test://static-text", "test://static-binary"
TEMPLATE_START, TEMPLATE_END = "test://template/", "/data"

ARGUMENTS = {
    "test_simple_prompt": [],
    "test_prompt_with_arguments": ["arg1", "arg2"],
    "test_prompt_with_embedded_resource": ["resourceUri"],
    "test_prompt_with_image": [],
}
"""Prompts, and what each takes."""


def prompt(name: str, given: Mapping[str, str]) -> Content:
    """Return what a prompt says. Raise KeyError for an argument that is missing."""
    match name:
        case "test_simple_prompt":
            return [text("This is a simple prompt for testing.")]
        case "test_prompt_with_arguments":
            return [text(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'")]
        case "test_prompt_with_embedded_resource":
            resource = embedded(given["resourceUri"], "text/plain", "Embedded resource content for testing.")
            return [resource, text("Please process the embedded resource above.")]
        case "test_prompt_with_image":
            return [image(), text("Please analyze the image above.")]
    raise MCPError(types.INVALID_PARAMS, f"There is no prompt {name!r}.")


def resource(uri: str) -> types.TextResourceContents | types.BlobResourceContents:
    """Return what a resource holds. Raise MCPError if there is none."""
    if uri == STATIC_TEXT:
        said = "This is the content of the static text resource."
        return types.TextResourceContents(uri=uri, mime_type="text/plain", text=said)
    if uri == STATIC_BINARY:
        return types.BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG)
    if uri.startswith(TEMPLATE_START) and uri.endswith(TEMPLATE_END):
        of = uri.removeprefix(TEMPLATE_START).removesuffix(TEMPLATE_END)
        said = json.dumps({"id": of, "templateTest": True, "data": f"Data for ID: {of}"})
        return types.TextResourceContents(uri=uri, mime_type="application/json", text=said)
    raise MCPError(types.INVALID_PARAMS, f"There is no resource {uri}.")


def fixtures() -> Server[Any]:
    async def list_tools(context: Context, params: Any) -> types.ListToolsResult:
        tools = [
            types.Tool(name=name, description="A fixture.", input_schema=schema)
            for name, (schema, _) in TOOLS.items()
        ]
        return types.ListToolsResult(tools=tools)

    async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        _, answer = TOOLS[params.name]
        content = await answer(context, params.arguments or {})
        return types.CallToolResult(content=list(content), is_error=params.name == FAILS)

    async def list_resources(context: Context, params: Any) -> types.ListResourcesResult:
        resources = [types.Resource(uri=uri, name=uri) for uri in (STATIC_TEXT, STATIC_BINARY)]
        return types.ListResourcesResult(resources=resources)

    async def list_templates(context: Context, params: Any) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(name="data", uri_template=f"{TEMPLATE_START}{{id}}{TEMPLATE_END}")
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read_resource(
        context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        return types.ReadResourceResult(contents=[resource(params.uri)])

    async def list_prompts(context: Context, params: Any) -> types.ListPromptsResult:
        prompts = [
            types.Prompt(
                name=name,
                description="A fixture.",
                arguments=[types.PromptArgument(name=each, required=True) for each in arguments],
            )
            for name, arguments in ARGUMENTS.items()
        ]
        return types.ListPromptsResult(prompts=prompts)

    async def get_prompt(context: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        said = prompt(params.name, params.arguments or {})
        return types.GetPromptResult(
            messages=[types.PromptMessage(role="user", content=each) for each in said]
        )

    async def complete(context: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        return types.CompleteResult(completion=types.Completion(values=["paris", "park"]))

    async def accept(context: Context, params: Any) -> types.EmptyResult:
        return types.EmptyResult()

    return Server(
        "fixtures",
        version="1",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=accept,
        on_unsubscribe_resource=accept,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_completion=complete,
        on_set_logging_level=accept,
    )


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "convserver.settings")
    django.setup()
    from convserver.mcp import door

    door.application = door.McpDoor(fixtures)
    sys.exit(main(sys.argv[1:] or ["serve"]))
