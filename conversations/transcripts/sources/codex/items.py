"""What one item of a Responses API conversation says: a message, a call, a result, a thought."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from conversations.dialects import columns
from conversations.transcripts.sources import lines
from conversations.transcripts.sources.codex import content
from conversations.transcripts.sources.codex.content import Fields
from conversations.transcripts.sources.lines import Damaged
from conversations.transcripts.sources.nodes import (
    Author,
    Kept,
    Message,
    Part,
    Record,
    ToolCall,
    ToolResult,
)

SILENT = frozenset(
    {
        "additional_tools",
        "agent_message",
        "compaction",
        "compaction_summary",
        "compaction_trigger",
        "configuration_update",
        "context_compaction",
        "ghost_snapshot",
        "message",
        "other",
        "reasoning",
    }
)
"""Items that may say nothing to people: what they hold is encrypted, or for the model alone."""
AUTHORS = {"user": Author.USER, "assistant": Author.AGENT}
ENCRYPTED = "encrypted_content"
FAILED = frozenset({"failed", "incomplete"})


def parts(item: Fields, *, node_id: str, is_sub_agents: bool) -> tuple[Part, ...]:
    """Return what an item says to people; nothing if that is nothing.

    `node_id` stands for the id of a call that has none. In a sub-agent's session, messages between agents
    are its tasks.
    """
    kind = columns.first_text(item.get("type"))
    if kind == "message":
        return tuple(_message(item, AUTHORS.get(columns.first_text(item.get("role")))))
    if kind == "agent_message":
        return tuple(_message(item, Author.USER if is_sub_agents else Author.AGENT))
    if kind == "reasoning":
        return tuple(_reasoning(item))
    if kind in _CALLS:
        return tuple(_CALLS[kind](item, columns.first_text(item.get("call_id"), item.get("id"), node_id)))
    return ()


def _message(item: Fields, author: Author | None) -> Iterator[Part]:
    if author is None:
        return
    found = content.read(item, is_users=author is Author.USER)
    others = [Record(name=_block_name(block), value=block, why=_why(block)) for block in found.others]
    if not found.text and not found.images:
        if any(other.why is Kept.UNKNOWN for other in others):
            yield Record(name="message", value=item, why=Kept.UNKNOWN)
        return
    if found.injected:
        yield Record(name="injected", value=found.injected, why=Kept.BOOKKEEPING)
    yield Message(author=author, text=found.text, images=tuple(found.images))
    yield from others


def _block_name(block: object) -> str:
    return f"block {columns.first_text(columns.fields(block).get('type'))}".strip()


def _why(block: object) -> Kept:
    return Kept.BOOKKEEPING if columns.fields(block).get("type") == ENCRYPTED else Kept.UNKNOWN


def _reasoning(item: Fields) -> Iterator[Part]:
    blocks = [*content.blocks_of(item.get("summary")), *content.blocks_of(item.get("content"))]
    texts = (block if isinstance(block, str) else columns.fields(block).get("text") for block in blocks)
    if thought := "\n\n".join(text for text in texts if isinstance(text, str) and text):
        yield Message(author=Author.AGENT, text="", reasoning=thought)


def _function_call(item: Fields, call_id: str) -> Iterator[Part]:
    names = filter(None, (columns.first_text(item.get(name)) for name in ("namespace", "name")))
    tool = ".".join(names) or "unknown"
    yield ToolCall(call_id=call_id, tool=tool, arguments=_arguments(item.get("arguments")))


def _custom_call(item: Fields, call_id: str) -> Iterator[Part]:
    given = item.get("input")
    arguments = given if isinstance(given, str) else columns.as_json(given)
    yield ToolCall(
        call_id=call_id, tool=columns.first_text(item.get("name")) or "unknown", arguments=arguments
    )


def _local_shell(item: Fields, call_id: str) -> Iterator[Part]:
    yield ToolCall(call_id=call_id, tool="local_shell", arguments=columns.fields(item.get("action")))


def _tool_search(item: Fields, call_id: str) -> Iterator[Part]:
    yield ToolCall(call_id=call_id, tool="tool_search", arguments=_arguments(item.get("arguments")))


def _web_search(item: Fields, call_id: str) -> Iterator[Part]:
    yield ToolCall(call_id=call_id, tool="web_search", arguments=columns.fields(item.get("action")))
    yield from _own_result(item, call_id, "web_search")


def _image_generation(item: Fields, call_id: str) -> Iterator[Part]:
    prompt = item.get("revised_prompt")
    yield ToolCall(call_id=call_id, tool="image_generation", arguments={"prompt": prompt} if prompt else {})
    yield from _own_result(item, call_id, "image_generation")


def _own_result(item: Fields, call_id: str, tool: str) -> Iterator[Part]:
    """Yield how a call ended that the model's service made by itself: no other item says it."""
    status, image = columns.first_text(item.get("status")), columns.first_text(item.get("result"))
    if status or image:
        yield ToolResult(
            call_id=call_id,
            tool=tool,
            text=status,
            images=(f"data:image/png;base64,{image}",) if image else (),
            is_error=status in FAILED,
        )


def _output(item: Fields, call_id: str) -> Iterator[Part]:
    output = item.get("output")
    held = columns.fields(output)
    if "content" in held:  # older releases wrote a failure as an object
        yield _result(held.get("content"), call_id, is_error=held.get("success") is False)
    else:
        yield _result(output, call_id, is_error=_is_failure(output))


def _found_tools(item: Fields, call_id: str) -> Iterator[Part]:
    yield ToolResult(call_id=call_id, tool="tool_search", text=columns.as_json(item.get("tools")))


def _result(output: object, call_id: str, *, is_error: bool) -> ToolResult:
    """Return what a tool answered: a text, or blocks of text and images; anything else as JSON."""
    found = content.read({"content": output}, is_users=False)
    text = "\n".join(found.texts)
    if found.others:
        text = columns.as_json(output)
    return ToolResult(call_id=call_id, text=text, images=tuple(found.images), is_error=is_error)


def _is_failure(output: object) -> bool:
    """Say whether the output of a command, as JSON, has an exit code that is not zero."""
    held = content.object_in(output) if isinstance(output, str) else None
    code = columns.fields(columns.fields(held).get("metadata")).get("exit_code")
    return isinstance(code, int) and code != 0


def _arguments(given: object) -> Mapping[str, object] | str:
    """Return the arguments of a call: those in a text of JSON, or else as they are."""
    if isinstance(given, Mapping):
        return given
    if not isinstance(given, str):
        return columns.as_json(given)
    try:
        held = lines.storable(content.object_in(given))
    except Damaged:
        return given
    return held if isinstance(held, dict) else given


_CALLS: Mapping[str, Callable[[Fields, str], Iterator[Part]]] = {
    "function_call": _function_call,
    "function_call_output": _output,
    "custom_tool_call": _custom_call,
    "custom_tool_call_output": _output,
    "local_shell_call": _local_shell,
    "local_shell_call_output": _output,
    "tool_search_call": _tool_search,
    "tool_search_output": _found_tools,
    "web_search_call": _web_search,
    "image_generation_call": _image_generation,
}
