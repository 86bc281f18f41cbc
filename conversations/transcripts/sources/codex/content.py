"""Content in the form of OpenAI's Responses API: a text, or a list of blocks with a `type`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from conversations.dialects import columns
from conversations.dialects.columns import Fields
from conversations.transcripts.sources.nodes import rest_of, rest_of_block

# The blocks with a text, and the member that holds it.
TEXTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
# The beginnings of texts that the program writes in the user's name.
INJECTED = (
    "# AGENTS.md instructions",
    "<INSTRUCTIONS>",
    "<app-context>",
    "<codex_internal_context",
    "<collaboration_mode>",
    "<environment_context>",
    "<hook_prompt",
    "<model_switch>",
    "<permissions instructions>",
    "<personality_spec>",
    "<plugins_instructions>",
    "<realtime_conversation>",
    "<recommended_plugins>",
    "<skill>",
    "<skills_instructions>",
    "<subagent_notification>",
    "<turn_aborted>",
    "<user_action>",
    "<user_instructions>",
    "<user_shell_command>",
    "Another language model started to solve this problem",
    "Warning: The maximum number of unified exec processes",
    "Warning: apply_patch was requested via",
)
USERS = "user."  # the prefix of the kinds of the user's own blocks, if the program writes kinds
_IMAGE_MARK = re.compile(r"\s*(<image[^<>]*>|</image>)\s*")


class ItemContent(NamedTuple):
    texts: list[str]
    images: list[str]
    injected: list[object]  # blocks that the program added to the user's words
    others: list[object]  # blocks of another kind
    rests: list[dict[str, object]]  # by block: the members that are none of these

    @property
    def text(self) -> str:
        """Return the texts, without the marks around images if there are images."""
        said = [text for text in self.texts if not (self.images and _IMAGE_MARK.fullmatch(text))]
        return "\n\n".join(filter(None, said))


def read(item: Fields, *, is_users: bool) -> ItemContent:
    """Divide the content of a message; only the user's has injected blocks."""
    found = ItemContent([], [], [], [], [])
    blocks = blocks_of(item.get("content"))
    for block, kind in zip(blocks, _kinds(item, len(blocks)), strict=True):
        fields = columns.fields(block)
        found.rests.append({})
        if (text := text_of(block)) is not None:
            # Releases that write kinds name the user's own blocks; before, only the text tells.
            is_own = kind.startswith(USERS) if kind else not text.lstrip().startswith(INJECTED)
            if is_users and not is_own:
                found.injected.append(block)
                continue
            found.texts.append(text)
            found.rests[-1] = rest_of_block(fields, {TEXTS.get(columns.first_text(fields.get("type")), "")})
        elif url := image_url(fields):
            found.images.append(url)
            inside = rest_of(columns.fields(fields.get("image_url")), {"url"})
            found.rests[-1] = rest_of_block(fields, (), {"image_url": inside})
        else:
            found.others.append(block)
    return found


def blocks_of(content: object) -> Sequence[object]:
    """Return the blocks of a content; a content that is no list is one block."""
    if isinstance(content, list):
        return content
    return [] if content is None else [content]


def text_of(block: object) -> str | None:
    """Return the text of a block; None for a block without text."""
    if isinstance(block, str):
        return block
    fields = columns.fields(block)
    member = TEXTS.get(columns.first_text(fields.get("type")))
    text = fields.get(member) if member else None
    return text if isinstance(text, str) else None


def image_url(block: Fields) -> str:
    """Return the address of an image block, or its data as one; empty if it is none."""
    url = block.get("image_url")
    return columns.first_text(url, columns.fields(url).get("url"))


def _kinds(item: Fields, count: int) -> list[str]:
    """Return the kinds of the blocks; empty texts if the program has written none."""
    told = columns.fields(item.get("internal_chat_message_metadata_passthrough")).get("content_item_kinds")
    if isinstance(told, list) and len(told) == count:
        return [columns.first_text(kind) for kind in told]
    return [""] * count
