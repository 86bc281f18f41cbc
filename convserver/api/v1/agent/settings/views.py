"""The settings of a user on the agent face: read whole, changed in part."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from drf_spectacular.utils import extend_schema
from pydantic import BaseModel, Field, RootModel
from rest_framework.request import Request
from rest_framework.response import Response

from convserver.api.openhands.errors import Detail, Refused, ValidationProblems
from convserver.api.openhands.text import StorableText
from convserver.api.openhands.view import body_of
from convserver.api.scopes import OF_THE_USER, WRITES, requires
from convserver.api.v1.agent.requests import KeptObject
from convserver.api.v1.agent.settings import document, forms, profiles, tool_servers
from convserver.api.v1.agent.settings.document import AGENT, CONVERSATION, OTHERS, TOOL_SERVERS
from convserver.api.v1.agent.settings.view import OfUserViewSet, ProfileName
from convserver.event_loop import in_loop
from convserver.serving.admission import Lane, in_lane
from sessions_app.agents.llm.tools.trial import try_server
from sessions_app.outbound.model_trial import TrialUnderWay

CHANGED = {400: Detail, 404: Detail, 422: ValidationProblems}
TRIAL_MAX_S = 120
NOTHING_TO_CHANGE = (
    "Nothing to change: name agent_settings_diff, conversation_settings_diff, misc_settings_diff, "
    "active_profile, active_agent_profile_id or active_meta_profile."
)


class AgentSettings(BaseModel):
    """A user's settings; stored keys are shown as asterisks, whatever X-Expose-Secrets asks for."""

    agent_settings: dict[str, Any]
    conversation_settings: dict[str, Any]
    llm_api_key_is_set: bool
    active_profile: str | None
    active_agent_profile_id: str | None
    active_meta_profile: str | None
    misc_settings: dict[str, Any]
    notice: str = Field(default="", description="After a change: what people should know of the new key.")


class SettingsChange(BaseModel):
    """The members to change; objects are merged, and null removes a member of one."""

    agent_settings_diff: KeptObject | None = None
    conversation_settings_diff: KeptObject | None = None
    misc_settings_diff: KeptObject | None = None
    active_profile: ProfileName | None = None
    active_agent_profile_id: str | None = None
    active_meta_profile: ProfileName | None = None


class KeptBody(RootModel[KeptObject]):
    """A tool server: `url` or `command`, and how it is opened."""


class ToolServerTest(BaseModel):
    """A tool server to connect, for at most `timeout` seconds."""

    name: Annotated[StorableText, Field(min_length=1, max_length=128)] = "test-server"
    server: KeptObject
    timeout: Annotated[float, Field(gt=0, le=TRIAL_MAX_S)] = 15.0


class ToolServerFound(BaseModel):
    """The tools of a server that can be used."""

    ok: Literal[True]
    tools: list[str]


class ToolServerFault(BaseModel):
    """Why a server cannot be used."""

    ok: Literal[False]
    error: str
    error_kind: Literal["timeout", "connection"]


ToolServerTrial = ToolServerFound | ToolServerFault


class AgentSettingsViewSet(OfUserViewSet):
    """The settings of the user."""

    needs = WRITES

    @requires(OF_THE_USER)
    @extend_schema(responses={200: AgentSettings})
    def retrieve(self, request: Request) -> Response:
        """Return all settings; those that were never set have their defaults."""
        return Response(document.shown(self.user_id))

    @requires(OF_THE_USER)
    @extend_schema(request=SettingsChange, responses={200: AgentSettings, **CHANGED})
    def change(self, request: Request) -> Response:
        """Change the settings that the body names; a masked key stays what it is."""
        body = body_of(request, SettingsChange)
        diffs = {
            part: diff
            for part in (AGENT, CONVERSATION, OTHERS)
            if (diff := getattr(body, f"{part}_diff")) is not None
        }
        pointers = {name: getattr(body, name) for name in document.POINTERS if name in body.model_fields_set}
        if not diffs and not pointers:
            raise Refused(400, {"detail": NOTHING_TO_CHANGE})
        # Before anything is stored: settings must not name what does not exist.
        profiles.require_pointers(self.user_id, pointers)
        applied = pointers.get("active_profile")
        # A client that activates a profile expects its model in the settings, as `activate` puts it there.
        if applied and "llm" not in (diffs.get(AGENT) or {}):
            diffs[AGENT] = {**diffs.get(AGENT, {}), "llm": profiles.model_for_settings(self.user_id, applied)}
        document.change(self.user_id, diffs, pointers=pointers)
        note = profiles.note_on((diffs.get(AGENT) or {}).get("llm"))
        return Response({**document.shown(self.user_id), **({"notice": note} if note else {})})

    @extend_schema(responses={200: forms.SettingsForm})
    def agent_form(self, request: Request) -> Response:
        """Return the fields of an agent's settings that have an effect here."""
        return Response(forms.AGENT_FORM.model_dump())

    @extend_schema(responses={200: forms.SettingsForm})
    def conversation_form(self, request: Request) -> Response:
        """Return the fields of a conversation's settings that have an effect here."""
        return Response(forms.CONVERSATION_FORM.model_dump())


class ToolServerViewSet(OfUserViewSet):
    """One tool server of the settings."""

    needs = OF_THE_USER

    @extend_schema(request=KeptBody, responses={201: AgentSettings, 409: Detail, **CHANGED})
    def create(self, request: Request, settings_key: str) -> Response:
        """Store a tool server under a new name."""
        if settings_key in tool_servers.of_user(self.user_id):
            raise Refused(409, {"detail": f"MCP server {settings_key!r} already exists."})
        return self._changed(settings_key, body_of(request, KeptBody).root, status=201)

    @extend_schema(request=KeptBody, responses={200: AgentSettings, **CHANGED})
    def partial_update(self, request: Request, settings_key: str) -> Response:
        """Change the members of a tool server that the body names."""
        self._require(settings_key)
        return self._changed(settings_key, body_of(request, KeptBody).root)

    @extend_schema(responses={200: AgentSettings, **CHANGED})
    def destroy(self, request: Request, settings_key: str) -> Response:
        """Remove a tool server."""
        self._require(settings_key)
        return self._changed(settings_key, None)

    @in_lane(Lane.ABROAD)
    @extend_schema(request=ToolServerTest, responses={200: ToolServerTrial, 409: Detail, **CHANGED})
    def test(self, request: Request) -> Response:
        """Connect a tool server and return the names of its tools, or why there are none."""
        body = body_of(request, ToolServerTest)
        server = tool_servers.entered(self.user_id, body.name, body.server)
        try:
            trial = in_loop(partial(try_server, seconds=body.timeout), self.user_id, server)
        except TrialUnderWay as error:
            raise Refused(409, {"detail": str(error)}) from error
        if trial.tools or not trial.problems:
            return Response({"ok": True, "tools": sorted(name for name, _ in trial.tools)})
        kind = "timeout" if trial.is_late else "connection"
        return Response({"ok": False, "error": trial.problems[0], "error_kind": kind})

    def _require(self, name: str) -> None:
        if name not in tool_servers.of_user(self.user_id):
            raise Refused(404, {"detail": f"MCP server {name!r} was not found."})

    def _changed(self, name: str, server: dict[str, Any] | None, *, status: int = 200) -> Response:
        document.change(self.user_id, {AGENT: {TOOL_SERVERS: {name: server}}}, pointers={})
        return Response(document.shown(self.user_id), status=status)
