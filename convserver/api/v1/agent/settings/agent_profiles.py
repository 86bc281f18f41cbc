"""Configurations of agents under names of the user's: which model profile and which tool servers one has."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import uuid4

from drf_spectacular.utils import extend_schema
from pydantic import BaseModel, Field, RootModel
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.dialects import columns
from convserver.api.openhands.errors import Detail, Refused
from convserver.api.openhands.text import StorableText
from convserver.api.openhands.view import body_in, body_of
from convserver.api.scopes import OF_THE_USER
from convserver.api.v1.agent.requests import KeptObject
from convserver.api.v1.agent.settings import document, tool_servers
from convserver.api.v1.agent.settings.profiles import REFUSED, NewName, ProfileChanged, changed
from convserver.api.v1.agent.settings.view import OfUserViewSet, checked_name
from sessions_app.models import DocumentKind
from sessions_app.settings import model_keys, user_documents
from sessions_app.settings.setup_keys import masked, unmasked
from sessions_app.settings.user_documents import DocumentNotFound

KIND = DocumentKind.AGENT_PROFILE
NO_ACP = "This server runs no ACP agents. Choose an agent of the kind `openhands`."


class AgentProfileInfo(BaseModel):
    """The visible part of a profile, in a list."""

    id: str
    name: str
    agent_kind: str
    revision: int
    llm_profile_ref: str | None
    mcp_server_refs: list[str] | None


class AgentProfileList(BaseModel):
    """The profiles, and which one new conversations have."""

    profiles: list[AgentProfileInfo]
    active_agent_profile_id: str | None


class AgentProfile(BaseModel):
    """A profile as it was stored; keys are shown as asterisks."""

    name: str
    profile: dict[str, Any]


class AgentProfileActivated(BaseModel):
    """The profile that new conversations have now."""

    id: str
    message: str
    agent_settings_applied: bool


class AgentProfileFindings(BaseModel):
    """What a conversation with this profile would have, and what is missing."""

    agent_kind: str
    valid: bool
    errors: list[str]
    llm_profile_ref: str | None
    llm_profile_resolved: bool
    llm_api_key_set: bool
    mcp_server_refs: list[str] | None
    resolved_mcp_config_keys: list[str]
    dangling_mcp_server_refs: list[str]


class NamedParts(BaseModel):
    """The members of a profile that name what else is stored."""

    agent_kind: Annotated[str, Field(max_length=50)] = "openhands"
    llm_profile_ref: StorableText | None = None
    mcp_server_refs: list[StorableText] | None = None


class NewAgentProfile(RootModel[KeptObject]):
    """A profile: `llm_profile_ref`, `mcp_server_refs`, and what else a client keeps with it."""


class AgentProfileViewSet(OfUserViewSet):
    """The configurations of agents that the user has given names."""

    needs = OF_THE_USER

    @extend_schema(responses={200: AgentProfileList})
    def list(self, request: Request) -> Response:
        """Return all profiles, by name."""
        stored = user_documents.documents(self.user_id, KIND)
        infos = [_info(name, profile) for name, profile in stored.items()]
        active = document.kept_of(self.user_id).get("active_agent_profile_id")
        return Response(AgentProfileList(profiles=infos, active_agent_profile_id=active).model_dump())

    @extend_schema(responses={200: AgentProfile, **REFUSED})
    def retrieve(self, request: Request, name: str) -> Response:
        """Return one profile."""
        profile = _profile(self.user_id, name)
        return Response({"name": name, "profile": {**masked(profile), "name": name}})

    @extend_schema(request=NewAgentProfile, responses={201: ProfileChanged, 400: Detail, **REFUSED})
    def create(self, request: Request, name: str) -> Response:
        """Store a profile, in place of the one of this name if there is one."""
        checked_name(name)
        body = body_of(request, NewAgentProfile).root
        if body_in(body, NamedParts).agent_kind != "openhands":
            raise Refused(422, {"detail": NO_ACP})
        before = user_documents.documents(self.user_id, KIND).get(name)
        own = {
            "schema_version": 4,
            "agent_kind": "openhands",
            "id": before["id"] if before else str(uuid4()),
            "name": name,
            "revision": before["revision"] + 1 if before else 0,
        }
        # After the members of the body, which must not choose them.
        user_documents.store(self.user_id, KIND, {**_with_stored_keys(body, before), **own}, name=name)
        return changed(name, f"Agent profile {name!r} saved", status=201)

    @extend_schema(responses={200: ProfileChanged, **REFUSED})
    def destroy(self, request: Request, name: str) -> Response:
        """Delete a profile; also one that is gone is deleted."""
        gone = user_documents.documents(self.user_id, KIND).get(name)
        user_documents.remove(self.user_id, KIND, name)
        # The settings must not point to a profile that is gone.
        if gone and document.kept_of(self.user_id).get("active_agent_profile_id") == gone["id"]:
            document.change(self.user_id, {}, pointers={"active_agent_profile_id": None})
        return changed(name, f"Agent profile {name!r} deleted")

    @extend_schema(request=NewName, responses={200: ProfileChanged, **REFUSED})
    def rename(self, request: Request, name: str) -> Response:
        """Give a profile another name."""
        new_name = body_of(request, NewName).new_name
        _profile(self.user_id, name)
        user_documents.rename(self.user_id, KIND, name, new_name=new_name)
        return changed(new_name, f"Agent profile {name!r} renamed to {new_name!r}")

    @extend_schema(request=None, responses={200: AgentProfileActivated, **REFUSED})
    def activate(self, request: Request, name: str) -> Response:
        """Give the profile with this id to new conversations."""
        profile_id = with_id(self.user_id, name)["id"]
        document.change(self.user_id, {}, pointers={"active_agent_profile_id": profile_id})
        words = "Agent profile activated"
        return Response({"id": profile_id, "message": words, "agent_settings_applied": False})

    @extend_schema(request=None, responses={200: AgentProfileFindings, **REFUSED})
    def materialize(self, request: Request, name: str) -> Response:
        """Return what a conversation with this profile would have; nothing is changed."""
        profile = _profile(self.user_id, name)
        model_ref, server_refs = profile.get("llm_profile_ref"), profile.get("mcp_server_refs")
        models = user_documents.documents(self.user_id, DocumentKind.MODEL_PROFILE)
        servers = tool_servers.of_user(self.user_id)
        model = models.get(model_ref) if isinstance(model_ref, str) else None
        is_missing = model_ref is not None and model is None
        findings = AgentProfileFindings(
            agent_kind="openhands",
            valid=not is_missing,
            errors=[f"LLM profile {model_ref!r} not found"] if is_missing else [],
            llm_profile_ref=model_ref,
            llm_profile_resolved=model is not None,
            llm_api_key_set=bool(model and model.get("api_key")),
            mcp_server_refs=server_refs,
            resolved_mcp_config_keys=[each for each in server_refs or servers if each in servers],
            dangling_mcp_server_refs=[each for each in server_refs or () if each not in servers],
        )
        return Response(findings.model_dump())


def with_id(user_id: int, profile_id: str) -> dict[str, Any]:
    """Return the profile with an id. Raise Refused."""
    for profile in user_documents.documents(user_id, KIND).values():
        if profile.get("id") == profile_id.lower():
            return profile
    raise Refused(404, {"detail": f"Agent profile with id {profile_id[:100]!r} not found"})


def _with_stored_keys(body: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
    """Return a profile with the keys that were masked, as they are stored for the same servers."""
    known = columns.fields(before)
    servers = body.get("mcp_config")
    if isinstance(servers, dict):
        stored = columns.fields(known.get("mcp_config"))
        opened = tool_servers.all_opened(servers, stored, same=("url", "command"))
        body = {**body, "mcp_config": opened}
        # What is masked in it now belongs to a server that has changed.
        known = {name: value for name, value in known.items() if name != "mcp_config"}
    if not model_keys.is_same_server(*(columns.fields(each.get("llm")) for each in (body, known))):
        known = {name: value for name, value in known.items() if name != "llm"}
    restored: dict[str, Any] = unmasked(body, known)
    return restored


def _profile(user_id: int, name: str) -> dict[str, Any]:
    try:
        # The name is of an address, and may be longer than any column.
        return user_documents.document(user_id, KIND, name[:100])
    except DocumentNotFound as error:
        raise Refused(404, {"detail": f"Agent profile {name!r} not found"}) from error


def _info(name: str, profile: dict[str, Any]) -> AgentProfileInfo:
    return AgentProfileInfo(
        id=profile["id"],
        name=name,
        agent_kind="openhands",
        revision=profile["revision"],
        llm_profile_ref=profile.get("llm_profile_ref"),
        mcp_server_refs=profile.get("mcp_server_refs"),
    )
