"""The log-in of programs without a browser of their own, by the device authorization grant (RFC 8628)."""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import urlencode

from django.http import QueryDict
from django.urls import reverse
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from pydantic import BaseModel, Field
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from convserver.api.addresses import origin_of
from convserver.api.openhands.errors import Detail
from convserver.api.scopes import OPEN
from convserver.api.v1.app.view import AppView
from convserver.serving import request_log
from sessions_app import device_logins
from sessions_app.device_logins import Granted, PollError
from sessions_app.models.device_logins import INTERVAL_S, LIFETIME_S

GRANT_TYPE = "urn:ietf:params:oauth:grant-type:device_code"
RETRY_AFTER_S = 60


class DeviceCodes(BaseModel):
    """The codes of a new login, and where a person approves it."""

    device_code: str = Field(description="For the program alone, which polls with it.")
    user_code: str = Field(description="For the person.")
    verification_uri: str
    verification_uri_complete: str = Field(description="The same with the user code.")
    expires_in: int = Field(description="Seconds.")
    interval: int = Field(description="Seconds between two polls.")


class DevicePoll(BaseModel):
    """A poll for the token."""

    device_code: str
    grant_type: Literal["urn:ietf:params:oauth:grant-type:device_code"] | None = None


class DeviceToken(BaseModel):
    """An API token of the person who approved."""

    access_token: str
    token_type: Literal["Bearer"] = "Bearer"  # noqa: S105 - a way to send one
    expires_in: int | None = Field(description="Seconds; null if it does not expire.")


class DevicePollRefusal(BaseModel):
    """Why there is no token, or not yet."""

    error: str = Field(
        description="`authorization_pending`, `slow_down`, `access_denied`, `expired_token`, "
        "`invalid_grant`, `invalid_request` or `unsupported_grant_type`."
    )
    error_description: str = Field(description="For people.")
    interval: int | None = Field(default=None, description="With `slow_down`: seconds between two polls.")


class DeviceLoginView(AppView):
    """A step of the login: the codes are the only credentials."""

    needs = OPEN
    authentication_classes = ()
    permission_classes = (AllowAny,)


class AuthorizeView(DeviceLoginView):
    """The begin of a login."""

    @extend_schema(request=None, responses={200: DeviceCodes, 429: Detail})
    def post(self, request: Request) -> Response:
        """Begin a login, which a person approves in a browser; a body is ignored."""
        meta = request._request.META
        try:
            codes = device_logins.begin(meta.get("REMOTE_ADDR", ""), meta.get("HTTP_USER_AGENT", ""))
        except device_logins.TooManyDeviceLogins as error:
            # `detail` is for clients of this wire, `error` for programs that know the RFC.
            body = {"detail": str(error), "error": PollError.SLOW_DOWN, "error_description": str(error)}
            return Response(body, status=429, headers={"Retry-After": str(RETRY_AFTER_S)})
        page = origin_of(request) + reverse("device")
        shown = DeviceCodes(
            device_code=codes.device,
            user_code=codes.user,
            verification_uri=page,
            verification_uri_complete=f"{page}?{urlencode({'user_code': codes.user})}",
            expires_in=LIFETIME_S,
            interval=INTERVAL_S,
        )
        return Response(shown.model_dump())


class TokenView(DeviceLoginView):
    """The polls of a login."""

    @extend_schema(
        request={"application/x-www-form-urlencoded": DevicePoll},
        responses={200: DeviceToken, 400: DevicePollRefusal},
    )
    def post(self, request: Request) -> Response:
        """Return the token once a person has approved the login; it is returned only once."""
        # RFC 8628 has a form, and parsers of this door take JSON.
        form = QueryDict(request._request.body)
        given = {name: form.getlist(name) for name in ("device_code", "grant_type")}
        if len(given["device_code"]) != 1 or not given["device_code"][0] or len(given["grant_type"]) > 1:
            return _refused("invalid_request", "Send one device_code, as a form.")
        if given["grant_type"] not in ([], [""], [GRANT_TYPE]):
            return _refused("unsupported_grant_type", f"The grant_type must be {GRANT_TYPE}.")
        answer = device_logins.poll(given["device_code"][0])
        if isinstance(answer, Granted):
            expires_at = answer.expires_at
            left_s = int((expires_at - timezone.now()).total_seconds()) if expires_at else None
            shown = DeviceToken(access_token=answer.token, expires_in=left_s)
            return Response(shown.model_dump())
        more = {} if answer.interval_s is None else {"interval": answer.interval_s}
        refused = _refused(answer.error, answer.detail, **more)
        if answer.error is PollError.PENDING:
            request_log.leave_out(refused)  # a program polls until a person has answered
        return refused


def _refused(error: str, detail: str, **more: Any) -> Response:
    request_log.name_code(error)
    return Response({"error": error, "error_description": detail, **more}, status=400)
