"""Files that people upload to have them imported."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence

SAID = "Where does the cuckoo keep its clock?"


def chat(chat_id: str = "chat-1", *, title: str = "Cuckoo clocks", said: Sequence[str] = (SAID,)) -> object:
    """Return a conversation as ChatGPT exports it: words of the user and of the assistant in turn."""
    mapping: dict[str, object] = {"root": {"id": "root", "message": None, "parent": None, "children": ["0"]}}
    for number, text in enumerate(said):
        mapping[str(number)] = {
            "id": str(number),
            "parent": str(number - 1) if number else "root",
            "children": [str(number + 1)] if number + 1 < len(said) else [],
            "message": {
                "id": str(number),
                "author": {"role": "assistant" if number % 2 else "user"},
                "create_time": 1_700_000_000 + number,
                "content": {"content_type": "text", "parts": [text]},
                "recipient": "all",
            },
        }
    return {
        "id": chat_id,
        "conversation_id": chat_id,
        "title": title,
        "create_time": 1_700_000_000,
        "mapping": mapping,
        "current_node": str(len(said) - 1),
    }


def chats(*all_chats: object) -> bytes:
    """Return ChatGPT's `conversations.json`."""
    return json.dumps(all_chats).encode()


def zipped(files: Mapping[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, text in files.items():
            packed.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
    return content.getvalue()


def export(*all_chats: object) -> bytes:
    """Return ChatGPT's export as its zip file, of one conversation unless others are given."""
    return zipped({"conversations.json": chats(*(all_chats or (chat(),))), "user.json": b"{}"})
