"""The words of both wires: a secret equal to one is not hidden where it is the wire's own word."""

from __future__ import annotations

from collections.abc import Iterator

from conversations.dialects.v0.actions import ACTIONS
from conversations.dialects.v0.observations import OBSERVATIONS
from conversations.dialects.v0.types import Fields
from conversations.dialects.v1.kinds import KINDS

_V0_MEMBERS = (
    *("id", "timestamp", "source", "message", "cause", "action", "observation", "args", "extras"),
    *("content", "success", "timeout", "blocking", "hidden", "thought", "is_confirmed"),
    *("tool_call_metadata", "function_name", "tool_call_id", "model_response", "total_calls_in_response"),
    *("llm_metrics", "accumulated_cost", "accumulated_token_usage", "prompt_tokens", "completion_tokens"),
    *("cache_read_tokens", "cache_write_tokens", "context_window", "per_turn_token", "response_id"),
)
_V1_MEMBERS = (
    *("kind", "parent_id", "action_id", "llm_response_id", "tool_name", "key", "value", "sender"),
    *("llm_message", "reasoning_content", "thinking_blocks", "responses_reasoning_item"),
    *("activated_skills", "extended_content", "image_urls", "tool_call", "arguments", "security_risk"),
    *("rejection_reason", "rejection_source", "system_prompt", "forgotten_event_ids", "summary_offset"),
    *("execution_status", "agent_status", "full_state", "confirmation_policy", "security_analyzer"),
    *("is_error", "exit_code", "metadata", "working_dir", "command", "description", "input_schema"),
)
_SOURCES = ("agent", "user", "environment", "hook")


def _names(fields: Fields) -> Iterator[str]:
    for name, field in fields.items():
        yield name
        yield from _names(field.members)


WORDS = frozenset(
    {
        *(*_V0_MEMBERS, *_V1_MEMBERS, *_SOURCES, *KINDS, *ACTIONS, *OBSERVATIONS),
        *(name for type_ in (*ACTIONS.values(), *OBSERVATIONS.values()) for name in _names(type_.fields)),
    }
)
