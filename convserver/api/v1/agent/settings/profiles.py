"""Models under names of the user's: stored with their keys, and put into the settings or a conversation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from drf_spectacular.utils import extend_schema
from pydantic import BaseModel
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.dialects import columns
from convserver.api.openhands.errors import Detail, Refused, ValidationProblems
from convserver.api.openhands.view import body_of
from convserver.api.scopes import OF_THE_USER
from convserver.api.v1.agent.requests import ModelObject
from convserver.api.v1.agent.settings import document
from convserver.api.v1.agent.settings.document import AGENT
from convserver.api.v1.agent.settings.view import OfUserViewSet, ProfileName, checked_name
from convserver.event_loop import in_loop
from convserver.serving.admission import Lane, in_lane
from sessions_app.models import DocumentKind
from sessions_app.outbound.model_trial import ModelSetup, TrialUnderWay, try_model
from sessions_app.settings import model_keys, model_notes, model_providers, placeholder_keys, user_documents
from sessions_app.settings.setup_keys import MASK, masked, without_keys
from sessions_app.settings.user_documents import DocumentNotFound

KIND = DocumentKind.MODEL_PROFILE
NO_MODEL = "Profile {name!r} is a provider and names no model. Store one in it, or choose it in the pages."
REFUSED = {404: Detail, 409: Detail, 422: ValidationProblems}


class NamedModel(BaseModel):
    """The visible part of a profile, in a list."""

    name: str
    model: str | None
    base_url: str | None
    api_key_set: bool


class ProfileInfo(NamedModel):
    """The same, as newer clients of the agent face know it."""

    provider_connection_id: None = None
    provider_connection_broken: bool = False


class ProfileList(BaseModel):
    """The profiles, and which one was put into the settings last."""

    profiles: list[ProfileInfo]
    active_profile: str | None


class Profile(BaseModel):
    """A profile; keys are shown as asterisks."""

    name: str
    config: dict[str, Any]
    api_key_set: bool


class ProfileChanged(BaseModel):
    """What was done with a profile."""

    name: str
    message: str


class ProfileActivated(ProfileChanged):
    """The profile that the settings have now."""

    llm_applied: bool


class NewProfile(BaseModel):
    """The model of a profile; without `include_secrets` its keys are not stored.

    A key that is masked or left out stays as it is stored; null or a blank clears it.
    """

    llm: ModelObject
    include_secrets: bool = True


class NewName(BaseModel):
    """The body that renames."""

    new_name: ProfileName


class TrialProblem(BaseModel):
    """Why a model does not answer."""

    type: str
    message: str


class ProfileTrial(BaseModel):
    """Whether a model answers."""

    valid: bool
    error: TrialProblem | None = None


class ProfileViewSet(OfUserViewSet):
    """The models that the user has given names."""

    needs = OF_THE_USER

    @extend_schema(responses={200: ProfileList})
    def list(self, request: Request) -> Response:
        """Return all profiles, by name."""
        infos = [ProfileInfo(**each) for each in named_models(self.user_id)]
        active = document.kept_of(self.user_id).get("active_profile")
        return Response(ProfileList(profiles=infos, active_profile=active).model_dump())

    @extend_schema(responses={200: Profile, **REFUSED})
    def retrieve(self, request: Request, name: str) -> Response:
        """Return one profile."""
        llm = profile(self.user_id, name)
        shown = Profile(name=name, config=masked(llm), api_key_set=bool(llm.get("api_key")))
        return Response(shown.model_dump())

    @extend_schema(request=NewProfile, responses={201: ProfileChanged, 400: Detail, **REFUSED})
    def create(self, request: Request, name: str) -> Response:
        """Store a profile, in place of the one of this name if there is one."""
        checked_name(name)
        body = body_of(request, NewProfile)
        llm = model_keys.with_stored_keys(self.user_id, body.llm, profile=name)
        if not body.llm.get("api_key", MASK):
            llm["api_key"] = None
        if not body.include_secrets:
            llm = without_keys(llm)
        user_documents.store(self.user_id, KIND, llm, name=name)
        return changed(name, _with_note(f"Profile {name!r} saved", llm), status=201)

    @extend_schema(responses={200: ProfileChanged, **REFUSED})
    def destroy(self, request: Request, name: str) -> Response:
        """Delete a profile; also one that is gone is deleted."""
        remove(self.user_id, name)
        return changed(name, f"Profile {name!r} deleted")

    @extend_schema(request=NewName, responses={200: ProfileChanged, **REFUSED})
    def rename(self, request: Request, name: str) -> Response:
        """Give a profile another name."""
        new_name = body_of(request, NewName).new_name
        rename(self.user_id, name, new_name)
        return changed(new_name, f"Profile {name!r} renamed to {new_name!r}")

    @extend_schema(request=None, responses={200: ProfileActivated, 400: Detail, **REFUSED})
    def activate(self, request: Request, name: str) -> Response:
        """Put the model of a profile into the settings."""
        llm = activate(self.user_id, name)
        words = _with_note(f"Profile {name!r} activated and applied to current settings", llm)
        return Response({"name": name, "message": words, "llm_applied": True})

    @in_lane(Lane.ABROAD)
    @extend_schema(request=NewProfile, responses={200: ProfileTrial, **REFUSED})
    def validate(self, request: Request, name: str) -> Response:
        """Ask the model of the body for one token."""
        llm = model_keys.with_stored_keys(self.user_id, body_of(request, NewProfile).llm, profile=name)
        setup = ModelSetup(
            model=llm["model"], base_url=llm.get("base_url") or "", key=llm.get("api_key") or ""
        )
        try:
            finding = in_loop(try_model, self.user_id, setup)
        except TrialUnderWay as error:
            raise Refused(409, {"detail": str(error)}) from error
        problem = TrialProblem(type="LLMError", message=finding.text) if finding.is_fault else None
        return Response(ProfileTrial(valid=problem is None, error=problem).model_dump())


def profile(user_id: int, name: str) -> dict[str, Any]:
    """Return the model of a profile, with its keys. Raise Refused."""
    try:
        # The name is of an address, and may be longer than any column.
        return user_documents.document(user_id, KIND, name[:100])
    except DocumentNotFound as error:
        raise Refused(404, {"detail": f"Profile {name!r} not found"}) from error


def model_for_conversation(user_id: int, name: str) -> dict[str, Any]:
    """Return the model of a profile, with the key of its server if it has none itself. Raise Refused."""
    return model_keys.with_stored_keys(user_id, _with_model(user_id, name), profile=name)


def model_for_settings(user_id: int, name: str) -> dict[str, Any]:
    """Return the change of the settings' `llm` that puts a profile there. Raise Refused."""
    llm = model_keys.with_stored_keys(user_id, _with_model(user_id, name))
    before = document.kept_of(user_id).get(AGENT, {}).get("llm", {})
    # Null for each member of the model before, so that none of it is left beside the new one.
    return {**dict.fromkeys(before), "base_url": None, "api_key": None, **llm}


def _with_model(user_id: int, name: str) -> dict[str, Any]:
    """Return the model of a profile. Raise Refused, also for a provider that was entered without one."""
    llm = profile(user_id, name)
    if not llm.get("model"):
        raise Refused(409, {"detail": NO_MODEL.format(name=name)})
    return llm


def activate(user_id: int, name: str) -> dict[str, Any]:
    """Put the model of a profile into the settings, and return the change of their `llm`. Raise Refused."""
    llm = model_for_settings(user_id, name)
    document.change(user_id, {AGENT: {"llm": llm}}, pointers={"active_profile": name})
    return llm


def remove(user_id: int, name: str) -> None:
    """Delete a profile, if it is there."""
    if model_providers.remove(user_id, name):
        _repoint(user_id, name, None)


@transaction.atomic
def rename(user_id: int, name: str, new_name: str) -> None:
    """Give a profile another name, also where agent profiles name it. Raise Refused, or what refuses it."""
    profile(user_id, name)
    user_documents.rename(user_id, KIND, name, new_name=new_name)
    model_notes.forget_provider(user_id, name)  # or a new one of the old name would have its prices
    agents = user_documents.documents(user_id, DocumentKind.AGENT_PROFILE)
    for agent_name, agent in agents.items():
        # Else a rename would leave agent profiles that name no model.
        if agent.get("llm_profile_ref") == name:
            changed = {**agent, "llm_profile_ref": new_name, "revision": agent["revision"] + 1}
            user_documents.store(user_id, DocumentKind.AGENT_PROFILE, changed, name=agent_name)
    _repoint(user_id, name, new_name)


def _repoint(user_id: int, name: str, new_name: str | None) -> None:
    if document.kept_of(user_id).get("active_profile") == name:
        document.change(user_id, {}, pointers={"active_profile": new_name})


def note_on(llm: object) -> str:
    """Return the note on a key in a sent `llm` that is not masked in events; empty if it is masked."""
    return placeholder_keys.note_on(columns.first_text(columns.fields(llm).get("api_key")))


def _with_note(message: str, llm: Mapping[str, Any]) -> str:
    note = note_on(llm)
    return f"{message}. {note}" if note else message


def require_pointers(user_id: int, pointers: Mapping[str, Any]) -> None:
    """Make sure that the profiles exist to which the settings are to point. Raise Refused."""
    if name := pointers.get("active_profile"):
        profile(user_id, name)
    if (wanted := pointers.get("active_agent_profile_id")) is not None:
        stored = user_documents.documents(user_id, DocumentKind.AGENT_PROFILE).values()
        if not any(each.get("id") == wanted for each in stored):
            raise Refused(404, {"detail": f"Agent profile with id {wanted!r} not found"})
    if name := pointers.get("active_meta_profile"):
        raise Refused(404, {"detail": f"Meta-profile {name!r} not found"})


def named_models(user_id: int) -> list[dict[str, Any]]:
    """Return the members of NamedModel for each profile, by name."""
    return [
        {
            "name": name,
            "model": llm.get("model"),
            "base_url": llm.get("base_url"),
            "api_key_set": bool(llm.get("api_key")),
        }
        for name, llm in user_documents.documents(user_id, KIND).items()
    ]


def changed(name: str, message: str, *, status: int = 200) -> Response:
    """Return the answer to a change of a profile."""
    return Response({"name": name, "message": message}, status=status)
