"""A streamed chat completion of OpenAI or a compatible server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from sessions_app.agents.llm.streams.answer import (
    AnswerStream,
    End,
    ReadCall,
    fields_of,
    sent,
    text_of,
)
from sessions_app.agents.llm.streams.openai_calls import CallPieces, OpenCall
from sessions_app.agents.llm.streams.reasoning_details import MEMBER, ReasoningDetails
from sessions_app.agents.llm.streams.thinking import OPEN, Said, ThinkTags

# These reasons say that the calls are whole, so one without arguments has none.
_CALLING = frozenset({"tool_calls", "function_call", "tool_use"})


class OpenAIAnswer(AnswerStream):
    """Reads chunks; only the reason of the end makes calls complete."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces = CallPieces()
        self._tags = ThinkTags()
        self._details = ReasoningDetails()
        self._about: dict[str, Any] = {}
        """The newest chunk without its choices."""
        self._content: list[str] = []
        self._usage: object = None
        self._has_refused = False

    @property
    def end(self) -> End:
        """Return the end of the answer; a refusal is a filter's, for any reason."""
        found = super().end
        return End.FILTERED if self._has_refused and found is End.WHOLE else found

    @property
    def calls(self) -> list[ReadCall]:
        calls = [self._call(call) for call in self._pieces.calls]
        if calls and (details := self._details.whole()):
            calls[0] = replace(calls[0], opaque={**calls[0].opaque, MEMBER: details})
        return calls

    def _call(self, call: OpenCall) -> ReadCall:
        arguments = "".join(call.pieces)
        is_called = self.reason.lower() in _CALLING
        return ReadCall(
            name=call.name,
            arguments="{}" if is_called and arguments.strip() in ("", "null") else arguments,
            is_complete=self.end is End.WHOLE and not call.is_unclear,
            opaque=call.opaque,
        )

    def _event(self, fields: dict[str, Any]) -> Iterator[bytes]:
        choices = fields.get("choices")
        choice = fields_of(choices[0]) if isinstance(choices, list) and choices else {}
        if fields.get("error"):
            if not self.has_ended:
                self._has_failed = True
                yield sent(fields)
            return
        self._take_reason(choice.get("finish_reason"))
        self._usage = fields.get("usage") or self._usage
        self._about = {
            key: value for key, value in fields.items() if key not in ("choices", "usage", "error")
        }
        # Some servers send the whole message beside each piece.
        delta = fields_of(choice["delta"] if "delta" in choice else choice.get("message"))
        content = text_of(delta.get("content"))
        # The last chunk may repeat the whole text, as a message with a role.
        if content and self.reason and delta.get("role") and content == "".join(self._content):
            delta["content"] = ""
        self._content.append(content)
        self._details.add(delta.get(MEMBER))
        calls = delta.get("tool_calls")
        for piece in calls if isinstance(calls, list) else []:
            self._pieces.add(fields_of(piece))
        if older := fields_of(delta.get("function_call")):
            self._pieces.add({"index": 0, "function": older})
        yield from self._sent(self._said(delta))

    def _said(self, delta: dict[str, Any]) -> Iterator[Said]:
        if reasoning := text_of(delta.get("reasoning")) or text_of(delta.get("reasoning_content")):
            yield Said(reasoning, is_reasoning=True)
        content = delta.get("content")
        for part in content if isinstance(content, list) else [content]:
            yield from self._part(part)
        if refusal := text_of(delta.get("refusal")):
            self._has_refused = True
            yield Said(refusal)

    def _part(self, part: object) -> Iterator[Said]:
        """Yield the text and the reasoning of a part of the content."""
        if isinstance(part, str):
            yield from self._tags.feed(part)
            return
        fields = fields_of(part)
        if isinstance(text := fields.get("text"), str):
            yield from self._tags.feed(text)
        thoughts = fields.get("thinking")
        for thought in thoughts if isinstance(thoughts, list) else [thoughts]:
            if text := text_of(thought) or text_of(fields_of(thought).get("text")):
                yield Said(text, is_reasoning=True)

    def _sent(self, said: Iterator[Said]) -> Iterator[bytes]:
        for text, is_reasoning in said:
            if is_reasoning:
                yield self._chunk({"reasoning_content": text})
            else:  # the library takes a piece that equals a tag for a tag
                for piece in (text[:1], text[1:]) if text == OPEN else (text,):
                    yield self._chunk({"content": piece})

    def _chunk(self, delta: dict[str, Any]) -> bytes:
        return sent({**self._about, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})

    def _rest(self) -> Iterator[bytes]:
        if self.has_ended:
            yield from self._sent(self._tags.close())
        if not self._has_failed and (self._about or self.has_ended):
            # Servers repeat the usage in each chunk, and the library adds it up.
            usage = {"usage": self._usage} if self._usage else {}
            yield sent({"object": "chat.completion.chunk", **self._about, "choices": [], **usage})

    def _unstreamed(self, fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
        choices = fields.get("choices")
        choice = fields_of(choices[0]) if isinstance(choices, list) and choices else {}
        message = fields_of(choice.get("message"))
        calls = message.get("tool_calls")
        if isinstance(calls, list):  # each is a call, also without an id
            message["tool_calls"] = [{**fields_of(each), "index": index} for index, each in enumerate(calls)]
        yield {**fields, "object": "chat.completion.chunk", "choices": [{**choice, "message": message}]}
