"""Requests per minute of each user, at the doors that the REST framework serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from conversations.storage import quotas

if TYPE_CHECKING:  # the framework loads this module before its views
    from rest_framework.views import APIView


class UserThrottle(BaseThrottle):
    """Counts a request for its user: with a conversation's key, for the owner."""

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Count it. Raise QuotaExceeded, which each door words like its other refusals."""
        if request.user.pk is not None:
            quotas.admit_request(request.user.pk)
        return True
