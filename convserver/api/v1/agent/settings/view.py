"""The base of the views about a user, whom the key of one conversation does not stand for."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field
from rest_framework.request import Request

from conversations.events import ConversationRef
from convserver.api.openhands.errors import Refused
from convserver.api.openhands.text import storable
from convserver.api.openhands.view import body_in
from convserver.api.v1.agent.view import AgentViewSet

OF_ONE = "This key opens one conversation, and neither settings nor secrets of its owner."

ProfileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"), AfterValidator(storable)]


class Named(BaseModel):
    """The name in an address."""

    name: ProfileName


def checked_name(name: str) -> str:
    """Return the name of a new profile. Raise InvalidRequest for one that it cannot have."""
    return body_in({"name": name}, Named, where="path").name


class OfUserViewSet(AgentViewSet):
    """A resource of the user, none of a conversation."""

    is_named_by_method = False

    def check_permissions(self, request: Request) -> None:
        """Refuse the key of one conversation. Raise Refused."""
        # First, so that a client without credentials gets the usual 401.
        super().check_permissions(request)
        if isinstance(request.auth, ConversationRef):
            raise Refused(401, {"detail": OF_ONE})
