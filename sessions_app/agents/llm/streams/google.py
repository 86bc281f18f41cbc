"""A streamed answer of Google's Gemini API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sessions_app.agents.llm.streams.answer import (
    AnswerStream,
    CallBudget,
    End,
    ReadCall,
    arguments_text,
    fields_of,
    sent,
    text_of,
)


class GoogleAnswer(AnswerStream):
    """Reads responses; each has whole calls, unless a call announces further parts."""

    REST_S = None  # some models name a reason in each response

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._budget = CallBudget()
        self._is_blocked = False

    @property
    def end(self) -> End:
        """Return the end of the answer; a filter may end it before its beginning."""
        return End.FILTERED if self._is_blocked else super().end

    @property
    def calls(self) -> list[ReadCall]:
        may_run = self.end in (End.WHOLE, End.LENGTH)
        return [
            ReadCall(
                name=text_of(call.get("name")),
                arguments=arguments_text({} if call.get("args") is None else call["args"]),
                is_complete=may_run and not (call.get("willContinue") or call.get("partialArgs")),
                opaque=opaque,
            )
            for call, opaque in self._calls
        ]

    def _event(self, fields: dict[str, Any]) -> Iterator[bytes]:
        if fields.get("error"):
            if not self.has_ended:  # after the end, an error takes nothing back
                self._has_failed = True
                yield sent(fields)
            return
        self._is_blocked = self._is_blocked or bool(
            fields_of(fields.get("promptFeedback")).get("blockReason")
        )
        candidates = fields.get("candidates")
        if not (isinstance(candidates, list) and candidates):
            yield sent(fields)
            return
        candidate = fields_of(candidates[0])
        self._take_reason(candidate.get("finishReason"))
        content = fields_of(candidate.get("content"))
        parts = content.get("parts")
        kept = []
        for part in parts if isinstance(parts, list) else []:
            if call := fields_of(fields_of(part).get("functionCall")):
                self._take(call, fields_of(part))
            else:
                kept.append(part)
        # Without the reason, whose new names the library warns of.
        yield sent({**fields, "candidates": [{"index": 0, "content": {**content, "parts": kept}}]})

    def _take(self, call: dict[str, Any], part: dict[str, Any]) -> None:
        self._budget.take(calls=1, chars=len(arguments_text(call.get("args"))))
        signature = text_of(part.get("thoughtSignature")).replace("-", "+").replace("_", "/")
        self._calls.append((call, {"thought_signature": signature} if signature else {}))
