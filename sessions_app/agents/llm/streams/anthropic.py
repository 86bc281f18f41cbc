"""A streamed answer of Anthropic's messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sessions_app.agents.llm.streams.answer import (
    AnswerStream,
    CallBudget,
    End,
    ObjectScan,
    ReadCall,
    arguments_text,
    fields_of,
    sent,
    text_of,
)

# Further blocks that are open at once count as calls, of which an answer has a limited number.
OPEN_MAX = 20


def _index(fields: Mapping[str, Any]) -> int:
    index = fields.get("index")
    return index if isinstance(index, int) else 0


class _Block:
    """A block of the answer, with the pieces between its start and its stop."""

    def __init__(self, number: int, fields: Mapping[str, Any]) -> None:
        self.number = number
        self.fields = dict(fields)
        self.pieces: list[str] = []
        """The arguments."""
        self.thoughts: list[str] = []
        self.signature: list[str] = []
        self.has_stopped = False
        self.is_unclear = False
        self._scan = ObjectScan()

    @property
    def is_call(self) -> bool:
        return self.fields.get("type") == "tool_use"

    @property
    def arguments(self) -> str:
        """Return the arguments of the pieces, or those of the start."""
        if self._scan.is_empty and (self.has_stopped or self.fields.get("input")):
            return arguments_text(self.fields.get("input") or {})
        return "".join(self.pieces)

    @property
    def is_object(self) -> bool:
        """Whether the arguments are a whole JSON object."""
        return self._scan.has_ended or (self._scan.is_empty and bool(self.fields.get("input")))

    def add(self, arguments: str) -> None:
        self.pieces.append(arguments)
        self._scan.add(arguments)

    @property
    def signed(self) -> Mapping[str, Any]:
        """Return a signed or hidden thought; nothing of other blocks."""
        if self.fields.get("type") == "redacted_thinking":
            return self.fields
        signature = text_of(self.fields.get("signature")) + "".join(self.signature)
        thought = text_of(self.fields.get("thinking")) + "".join(self.thoughts)
        return {**self.fields, "thinking": thought, "signature": signature} if signature else {}


class AnthropicAnswer(AnswerStream):
    """Reads events. A block's stop says that its call is complete, unless the limit of length stopped it."""

    def __init__(self) -> None:
        super().__init__()
        self._blocks: list[_Block] = []
        self._open: dict[int, _Block] = {}
        """The blocks without a stop, by the server's numbers."""
        self._budget = CallBudget()

    @property
    def calls(self) -> list[ReadCall]:
        return [self._call(block) for block in self._blocks if block.is_call]

    @property
    def opaque(self) -> list[Mapping[str, Any]]:
        return [signed for block in self._blocks if block.has_stopped and (signed := block.signed)]

    def _call(self, block: _Block) -> ReadCall:
        end = self.end
        is_stopped = block.has_stopped and not block.is_unclear
        is_complete = is_stopped if end is End.WHOLE else False
        # A limit also stops a block in its middle, which can only be the last one.
        if end in (End.LENGTH, End.PAUSED):
            is_complete = is_stopped and (block.is_object or block is not self._blocks[-1])
        if end is End.WHOLE and not block.has_stopped:
            is_complete = block.is_object and not block.is_unclear
        return ReadCall(
            name=text_of(block.fields.get("name")), arguments=block.arguments, is_complete=is_complete
        )

    def _event(self, fields: dict[str, Any]) -> Iterator[bytes]:
        kind = text_of(fields.get("type"))
        match kind:
            case "error":
                if not self.has_ended:
                    self._has_failed = True
                    yield sent(fields, kind)
            case "content_block_start":
                yield from self._start(fields)
            case "content_block_delta":
                yield from self._add(fields)
            case "content_block_stop":
                yield from self._stop(fields)
            case "message_delta":
                self._take_reason(fields_of(fields.get("delta")).get("stop_reason"))
                yield sent(fields, kind)
            case "message_stop":
                self.is_over = True
                yield sent(fields, kind)
            case "message_start":
                yield sent(fields, kind)
            case _ if fields.get("error"):
                self._has_failed = True
                yield sent({"type": "error", **fields}, "error")

    def _start(self, fields: dict[str, Any]) -> Iterator[bytes]:
        block = _Block(len(self._blocks), fields_of(fields.get("content_block")))
        self._budget.take(calls=int(block.is_call or len(self._open) > OPEN_MAX))
        self._blocks.append(block)
        self._open[_index(fields)] = block
        if not block.is_call:
            yield sent({**fields, "index": block.number}, "content_block_start")

    def _add(self, fields: dict[str, Any]) -> Iterator[bytes]:
        delta = fields_of(fields.get("delta"))
        if (block := self._block(fields)) is None:
            return
        match delta.get("type"):
            case "input_json_delta" if block.is_call:
                arguments = arguments_text(delta.get("partial_json"))
                self._budget.take(chars=len(arguments))
                block.add(arguments)
            case "thinking_delta":
                block.thoughts.append(text_of(delta.get("thinking")))
            case "signature_delta":
                block.signature.append(text_of(delta.get("signature")))
        if not block.is_call:
            yield sent({**fields, "index": block.number}, "content_block_delta")

    def _stop(self, fields: dict[str, Any]) -> Iterator[bytes]:
        if (block := self._block(fields)) is None:
            return
        block.has_stopped = True
        if self._open.pop(_index(fields), None) is None:
            self._open.clear()  # the number is wrong: the only open block stops
        if not block.is_call:
            yield sent({**fields, "index": block.number}, "content_block_stop")

    def _block(self, fields: dict[str, Any]) -> _Block | None:
        """Return the block of an event; without a known number, the only open one."""
        if (block := self._open.get(_index(fields))) is not None:
            return block
        if len(self._open) == 1:
            return next(iter(self._open.values()))
        for each in self._open.values():
            each.is_unclear = True
        return None

    def _unstreamed(self, fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
        blocks = fields.get("content")
        yield {"type": "message_start", "message": {**fields, "content": [], "stop_reason": None}}
        for index, block in enumerate(blocks if isinstance(blocks, list) else []):
            yield {"type": "content_block_start", "index": index, "content_block": block}
            yield {"type": "content_block_stop", "index": index}
        delta = {"stop_reason": fields.get("stop_reason"), "stop_sequence": fields.get("stop_sequence")}
        yield {"type": "message_delta", "delta": delta, "usage": fields.get("usage") or {"output_tokens": 0}}
        yield {"type": "message_stop"}
