"""One item of a Responses API conversation: a message, a call, a result, a thought."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from conversations.dialects import columns
from conversations.dialects.columns import Fields
from conversations.transcripts.sources import lines
from conversations.transcripts.sources.codex import content
from conversations.transcripts.sources.nodes import (
    Author,
    Kept,
    Message,
    Part,
    Record,
    ToolCall,
    ToolResult,
    filled_rests,
    rest_of,
    rest_of_block,
)

# Items that may have nothing for people: their content is encrypted, or only for the model.
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
CALLS = frozenset(
    {
        *("function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"),
        *("local_shell_call", "local_shell_call_output", "tool_search_call", "tool_search_output"),
        *("web_search_call", "image_generation_call"),
    }
)
AUTHORS = {"user": Author.USER, "assistant": Author.AGENT}
ENCRYPTED = "encrypted_content"
FAILED = frozenset({"failed", "incomplete"})
_IDS = frozenset({"type", "id", "call_id"})


class Item(NamedTuple):
    """The parts of an item, and the members that no part carries."""

    parts: tuple[Part, ...] = ()
    rest: Mapping[str, object] = {}


def is_item(record: Fields) -> bool:
    return columns.first_text(record.get("type")) in SILENT | CALLS


class Called(NamedTuple):
    parts: list[Part]
    inside: Mapping[str, object]  # what is left of the members that the parts carry


def _used(*names: str) -> Mapping[str, object]:
    """Name members of which nothing is left."""
    return dict.fromkeys(names)


def read(item: Fields, *, node_id: str, is_sub_agents: bool) -> Item:
    """Return the parts of an item for people; nothing if it has none.

    `node_id` is the id of a call without one. In a sub-agent's session, messages between agents are its
    tasks.
    """
    kind = columns.first_text(item.get("type"))
    if kind == "message":
        return _message(item, AUTHORS.get(columns.first_text(item.get("role"))), {"role"})
    if kind == "agent_message":
        return _message(item, Author.USER if is_sub_agents else Author.AGENT, set())
    if kind == "reasoning":
        return _reasoning(item)
    if kind in CALLS:
        call_id = columns.first_text(item.get("call_id"), item.get("id"), node_id)
        parts, inside = _called(kind, item, call_id)
        return Item(tuple(parts), rest_of(item, _IDS, inside))
    return Item()


def _message(item: Fields, author: Author | None, carried: set[str]) -> Item:
    if author is None:
        return Item()
    found = content.read(item, is_users=author is Author.USER)
    others = [_record(block) for block in found.others]
    if not found.text and not found.images:
        if any(other.why is Kept.UNKNOWN for other in others):
            return Item((Record(name="message", value=item, why=Kept.UNKNOWN),))
        return Item()
    parts: list[Part] = [Message(author=author, text=found.text, images=tuple(found.images)), *others]
    if found.injected:
        parts.insert(0, Record(name="injected", value=found.injected, why=Kept.BOOKKEEPING))
    return Item(tuple(parts), rest_of(item, _IDS | carried, {"content": filled_rests(found.rests)}))


def _record(block: object) -> Record:
    type_ = columns.first_text(columns.fields(block).get("type"))
    why = Kept.BOOKKEEPING if type_ == ENCRYPTED else Kept.UNKNOWN
    return Record(name=f"block {type_}".strip(), value=block, why=why)


def _reasoning(item: Fields) -> Item:
    thoughts: list[str] = []
    inside: dict[str, object] = {}
    for member in ("summary", "content"):
        left: list[dict[str, object]] = []
        for block in content.blocks_of(item.get(member)):
            fields = columns.fields({"text": block} if isinstance(block, str) else block)
            text = fields.get("text")
            thoughts += [text] if isinstance(text, str) else []
            left.append(rest_of_block(fields, {"text" if isinstance(text, str) else ""}))
        inside[member] = filled_rests(left)
    if not any(thoughts):
        return Item()
    said = Message(author=Author.AGENT, text="", reasoning="\n\n".join(filter(None, thoughts)))
    return Item((said,), rest_of(item, _IDS, inside))


def _called(kind: str, item: Fields, call_id: str) -> Called:
    """Return the parts of an item of CALLS."""
    match kind:
        case "function_call":
            names = filter(None, (columns.first_text(item.get(name)) for name in ("namespace", "name")))
            arguments = lines.arguments(item.get("arguments"))
            call = ToolCall(call_id=call_id, tool=".".join(names) or "unknown", arguments=arguments)
            return Called([call], _used("namespace", "name", "arguments"))
        case "custom_tool_call":
            tool, text = columns.first_text(item.get("name")), columns.as_text(item.get("input"))
            call = ToolCall(call_id=call_id, tool=tool or "unknown", arguments=text)
            return Called([call], _used("name", "input"))
        case "local_shell_call":
            return Called([_own_call(item, call_id, "local_shell")], _used("action"))
        case "tool_search_call":
            arguments = lines.arguments(item.get("arguments"))
            call = ToolCall(call_id=call_id, tool="tool_search", arguments=arguments)
            return Called([call], _used("arguments"))
        case "tool_search_output":
            text = columns.as_json(item.get("tools"))
            return Called([ToolResult(call_id=call_id, tool="tool_search", text=text)], _used("tools"))
        case "web_search_call":
            call, end = _own_call(item, call_id, "web_search"), _own_result(item, call_id, "web_search")
            return Called([call, *end], _used("action", "status", "result"))
        case "image_generation_call":
            prompt = item.get("revised_prompt")
            given = {"prompt": prompt} if prompt else {}
            call = ToolCall(call_id=call_id, tool="image_generation", arguments=given)
            end = _own_result(item, call_id, "image_generation")
            return Called([call, *end], _used("revised_prompt", "status", "result"))
        case _:
            return _output(item, call_id)


def _own_call(item: Fields, call_id: str, tool: str) -> ToolCall:
    action = item.get("action")
    is_object = action is None or isinstance(action, Mapping)
    given = columns.fields(action) if is_object else columns.as_json(action)
    return ToolCall(call_id=call_id, tool=tool, arguments=given)


def _own_result(item: Fields, call_id: str, tool: str) -> Iterator[Part]:
    """Yield the end of a call that the model's service made by itself: no other item has it."""
    status, image = columns.first_text(item.get("status")), columns.first_text(item.get("result"))
    if status or image:
        yield ToolResult(
            call_id=call_id,
            tool=tool,
            text=status,
            images=(f"data:image/png;base64,{image}",) if image else (),
            is_error=status in FAILED,
        )


def _output(item: Fields, call_id: str) -> Called:
    output = item.get("output")
    held = columns.fields(output)
    if "content" not in held:
        # The output of a command is JSON with its exit code.
        told = columns.fields(lines.arguments(output) if isinstance(output, str) else None)
        code = columns.fields(told.get("metadata")).get("exit_code")
        result, left = _result(output, call_id, is_error=isinstance(code, int) and code != 0)
        return Called([result], {"output": left})
    # older releases wrote a failure as an object
    result, left = _result(held.get("content"), call_id, is_error=held.get("success") is False)
    return Called([result], {"output": rest_of(held, {"success"}, {"content": left})})


def _result(output: object, call_id: str, *, is_error: bool) -> tuple[ToolResult, list[dict[str, object]]]:
    """Return the answer of a tool: text, or blocks of text and images; anything else as JSON.

    The rests of the blocks come with it.
    """
    found = content.read({"content": output}, is_users=False)
    text = "\n".join(found.texts)
    left = filled_rests(found.rests)
    if found.others:
        text, left = columns.as_json(output), []
    return ToolResult(call_id=call_id, text=text, images=tuple(found.images), is_error=is_error), left
