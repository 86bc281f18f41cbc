"""Requests per minute of each user, at the doors that the REST framework serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from conversations.storage import quotas
from convserver.api.direct.outcomes import is_counted

if TYPE_CHECKING:  # the framework loads this module before its views
    from rest_framework.views import APIView


class UserThrottle(BaseThrottle):
    """Counts a request for its user: with a conversation's key, for the owner."""

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Count it, unless that was done before. Raise QuotaExceeded, which each door words."""
        if request.user.pk is not None and not is_counted(request):
            quotas.admit_request(request.user.pk)
        return True
