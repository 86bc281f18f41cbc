"""Models under names of the user's, as the app face shows them: the same as on the agent face."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from pydantic import BaseModel
from rest_framework.request import Request
from rest_framework.response import Response

from convserver.api.openhands.errors import Detail
from convserver.api.openhands.view import body_of, optional_body_of
from convserver.api.scopes import OF_THE_USER
from convserver.api.v1.agent.requests import ModelObject
from convserver.api.v1.agent.settings import document, profiles
from convserver.api.v1.agent.settings.document import AGENT
from convserver.api.v1.agent.settings.profiles import (
    KIND,
    REFUSED,
    NamedModel,
    NewName,
    Profile,
    ProfileChanged,
    changed,
)
from convserver.api.v1.agent.settings.view import checked_name
from convserver.api.v1.app.view import AppViewSet
from sessions_app.settings import model_keys, user_documents
from sessions_app.settings.setup_keys import MASK, masked, unmasked, without_keys


class NamedModelList(BaseModel):
    """The profiles, and which one was put into the settings last."""

    profiles: list[NamedModel]
    active_profile: str | None


class NewNamedModel(BaseModel):
    """The model of a profile; without one it is that of the settings."""

    include_secrets: bool = True
    llm: ModelObject | None = None
    preserve_existing_api_key: bool = False


class ModelActivated(ProfileChanged):
    """The profile that the settings have now."""

    model: str | None


class AppProfileViewSet(AppViewSet):
    """The models that the user has given names."""

    needs = OF_THE_USER
    is_named_by_method = False

    @extend_schema(responses={200: NamedModelList})
    def list(self, request: Request) -> Response:
        """Return all profiles, by name."""
        active = document.kept_of(self.user_id).get("active_profile")
        return Response({"profiles": profiles.named_models(self.user_id), "active_profile": active})

    @extend_schema(responses={200: Profile, **REFUSED})
    def retrieve(self, request: Request, name: str) -> Response:
        """Return one profile."""
        llm = profiles.profile(self.user_id, name)
        # This wire says by a flag alone that there is a key.
        shown = masked({**llm, "api_key": None})
        return Response({"name": name, "config": shown, "api_key_set": bool(llm.get("api_key"))})

    @extend_schema(request=NewNamedModel | None, responses={201: ProfileChanged, 400: Detail, **REFUSED})
    def create(self, request: Request, name: str) -> Response:
        """Store a profile, in place of the one of this name if there is one."""
        checked_name(name)
        body = optional_body_of(request, NewNamedModel) or NewNamedModel()
        before = user_documents.documents(self.user_id, KIND).get(name, {})
        given = body.llm
        if given is not None:
            llm = model_keys.with_stored_keys(self.user_id, given, profile=name)
        else:
            shown = document.shown(self.user_id)[AGENT]["llm"]
            with_keys = unmasked(shown, model_keys.of_settings(self.user_id))
            llm = {each: value for each, value in with_keys.items() if value is not None}
        if not body.include_secrets:
            llm = without_keys(llm)
        # A client of this wire is shown null for a key, and sends it back: only a blank clears one.
        is_left_out = given is not None and given.get("api_key") in (None, MASK)
        is_cleared = given is not None and given.get("api_key") == ""
        is_kept = body.preserve_existing_api_key or is_left_out
        # A key is sent to no other server than the one that it was entered for.
        if is_kept and before.get("api_key") and model_keys.is_same_server(llm, before):
            llm = {**llm, "api_key": before["api_key"]}
        elif body.preserve_existing_api_key or is_cleared:
            llm = {each: value for each, value in llm.items() if each != "api_key"}
        user_documents.store(self.user_id, KIND, llm, name=name)
        return changed(name, f"Profile '{name}' saved", status=201)

    @extend_schema(responses={200: ProfileChanged, **REFUSED})
    def destroy(self, request: Request, name: str) -> Response:
        """Delete a profile; also one that is gone is deleted."""
        profiles.remove(self.user_id, name)
        return changed(name, f"Profile '{name}' deleted")

    @extend_schema(request=NewName, responses={200: ProfileChanged, **REFUSED})
    def rename(self, request: Request, name: str) -> Response:
        """Give a profile another name."""
        new_name = body_of(request, NewName).new_name
        profiles.rename(self.user_id, name, new_name)
        return changed(new_name, f"Profile '{name}' renamed to '{new_name}'")

    @extend_schema(request=None, responses={200: ModelActivated, 400: Detail, **REFUSED})
    def activate(self, request: Request, name: str) -> Response:
        """Put the model of a profile into the settings."""
        llm = profiles.activate(self.user_id, name)
        words = f"Switched to profile '{name}'"
        return Response({"name": name, "message": words, "model": llm.get("model")})
