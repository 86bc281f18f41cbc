"""Sandboxes, one for each family of conversations: read, pause, resume (spec V1 §1.5)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from drf_spectacular.utils import extend_schema
from pydantic import BaseModel
from rest_framework.request import Request
from rest_framework.response import Response

from conversations import families
from conversations.cursors import ListCursor
from conversations.models import Conversation, ConversationRef
from convserver.api.addresses import as_asked
from convserver.api.openhands.errors import Detail, Refused
from convserver.api.openhands.view import Done, query_of
from convserver.api.scopes import RUNS, WRITES, requires
from convserver.api.v1.app.shapes import (
    SANDBOX_SPEC,
    Moment,
    SandboxInfo,
    SandboxPage,
    sandbox_info,
)
from convserver.api.v1.app.view import IDS, AppViewSet, PageQuery, described, of_list, texts_of
from convserver.event_loop import in_loop
from convserver.pagination import first_page
from sessions_app.openhands_v1 import sandboxes, steering
from sessions_app.workspaces.paths import PROJECT

_OF_ONE: dict[int, Any] = {404: Detail}
_STOPPED: dict[int, Any] = {**_OF_ONE, 503: Detail}


class SandboxSpecInfo(BaseModel):
    """The spec of sandboxes: this server's own is the only one."""

    id: str
    command: list[str] | None
    created_at: Moment
    initial_env: dict[str, str]
    working_dir: str


class SandboxSpecPage(BaseModel):
    """One page of specs."""

    items: list[SandboxSpecInfo]
    next_page_id: str | None


SPEC = SandboxSpecInfo(
    id=SANDBOX_SPEC,
    command=None,
    created_at=datetime(2025, 1, 1, tzinfo=UTC),
    initial_env={},
    working_dir=PROJECT,
)


class SandboxViewSet(AppViewSet):
    """The user's sandboxes."""

    needs = WRITES

    @extend_schema(parameters=described(PageQuery), responses={200: SandboxPage, **of_list})
    def search(self, request: Request) -> Response:
        """Return one page, the newest first."""
        query = query_of(request, PageQuery)
        rows = Conversation.objects.visible_to(request.user).known_to_v1().top_level().newest_first()
        if query.page_id:
            rows = rows.older_than(*ListCursor.decode(query.page_id))
        page = first_page(rows, query.limit)
        found = sandboxes.of_rows(Conversation.objects.active().with_pks(page.pks).newest_first())
        items = [as_asked(request, sandbox_info(each)) for each in found]
        shown = SandboxPage(items=items, next_page_id=page.next_page_id)
        return Response(shown.model_dump(mode="json"))

    @requires(RUNS)
    @extend_schema(parameters=[IDS], responses={200: list[SandboxInfo | None], **of_list})
    def batch(self, request: Request) -> Response:
        """Return them in the requested order, null for an unknown id; one of a deleted conversation is
        MISSING."""
        ids = texts_of(request, "id")
        found = sandboxes.of_ids(self.user_id, ids)
        shown = {name: as_asked(request, sandbox_info(sandbox)) for name, sandbox in found.items()}
        return Response([shown[each].model_dump(mode="json") if each in shown else None for each in ids])

    @requires(RUNS)
    @extend_schema(request=None, responses={404: Detail})
    def create(self, request: Request) -> Response:
        """Refuse: sandboxes are created with conversations."""
        raise Refused(404, {"detail": "A sandbox comes with a conversation: start one."})

    @requires(RUNS)
    @extend_schema(request=None, responses={200: Done, **_STOPPED})
    def pause(self, request: Request, sandbox_id: str) -> Response:
        """Stop the agents of all conversations in it."""
        in_loop(steering.pause, _top_of(self.user_id, sandbox_id))
        return Response({"success": True})

    @requires(RUNS)
    @extend_schema(request=None, responses={200: Done, **_OF_ONE})
    def resume(self, request: Request, sandbox_id: str) -> Response:
        """Start the agents of the conversations in it."""
        # The whole family runs in one sandbox, and web clients resume that when they open a conversation.
        in_loop(steering.resume, families.family_of(_top_of(self.user_id, sandbox_id)))
        return Response({"success": True})

    @extend_schema(responses={200: Done, **_STOPPED})
    def destroy(self, request: Request, sandbox_id: str) -> Response:
        """Stop the agents of all conversations in it; the conversations stay, and can be resumed."""
        in_loop(steering.pause, _top_of(self.user_id, sandbox_id))
        return Response({"success": True})


class SpecViewSet(AppViewSet):
    """The specs of sandboxes."""

    needs = WRITES

    @extend_schema(parameters=described(PageQuery), responses={200: SandboxSpecPage, **of_list})
    def search(self, request: Request) -> Response:
        """Return the only spec."""
        query_of(request, PageQuery)
        return Response(SandboxSpecPage(items=[SPEC], next_page_id=None).model_dump(mode="json"))

    @extend_schema(parameters=[IDS], responses={200: list[SandboxSpecInfo | None], **of_list})
    def batch(self, request: Request) -> Response:
        """Return them in the requested order, null for an unknown id."""
        ids = texts_of(request, "id")
        return Response([SPEC.model_dump(mode="json") if each == SPEC.id else None for each in ids])


def _top_of(user_id: int, sandbox_id: str) -> ConversationRef:
    """Return the root conversation of one of the user's sandboxes. Raise Refused."""
    top = sandboxes.top_of(user_id, sandbox_id)
    if top is None:
        raise Refused(404, {"detail": "There is no such sandbox."})
    return top
