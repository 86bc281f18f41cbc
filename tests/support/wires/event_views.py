"""What payloads say, read as the server reads them."""

from __future__ import annotations

from collections.abc import Mapping

from conversations import dialects
from conversations.dialects.views import CallView, EventView, MessageView, NoticeView


def is_interrupted(payload: Mapping[str, object]) -> bool:
    view = _view(payload)
    return isinstance(view, MessageView) and view.is_interrupted


def is_notice(payload: Mapping[str, object]) -> bool:
    return isinstance(_view(payload), NoticeView)


def called_tool(payload: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
    view = _view(payload)
    assert isinstance(view, CallView)
    return view.tool, view.given


def _view(payload: Mapping[str, object]) -> EventView:
    return dialects.view(payload, dialects.read(payload))
