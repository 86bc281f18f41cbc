"""The base of all V0 views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rest_framework.request import Request

from conversations.models import normal_id
from convserver.api.openhands.errors import v0_response
from convserver.api.openhands.view import OpenHandsView, OpenHandsViewSet
from convserver.api.v0.documented import DOOR


class V0View(OpenHandsView):
    """A view of the V0 door; the id in its address has been checked when its handler runs."""

    door = DOOR

    def get_exception_handler(self) -> Callable[..., Any]:
        return v0_response

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authenticate the visitor, then check the id. Raise InvalidConversationId."""
        # First, so that a client without credentials gets a 401 for whatever id.
        super().initial(request, *args, **kwargs)
        if "conversation_id" in kwargs:
            normal_id(kwargs["conversation_id"])


class V0ViewSet(OpenHandsViewSet, V0View):
    """A resource of the V0 door."""
