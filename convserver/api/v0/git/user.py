"""Data of the user's git providers, as far as their tokens allow (spec V0 §1.11)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Annotated, Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import AfterValidator, BaseModel, Field
from rest_framework.request import Request
from rest_framework.response import Response

from convserver.api.openhands.errors import Detail, ValidationProblems, v0_response
from convserver.api.openhands.text import storable
from convserver.api.openhands.view import query_of
from convserver.api.scopes import WRITES
from convserver.api.v0.view import V0ViewSet
from convserver.event_loop import in_loop
from convserver.serving.admission import Lane, in_lane
from sessions_app.git_providers.base import (
    GitAuthenticationError,
    GitBranch,
    GitBranchPage,
    GitMicroagent,
    GitMicroagentContent,
    GitNotFound,
    GitProviderError,
    GitRepository,
    GitTask,
    GitUserInfo,
    InvalidName,
    NotOffered,
    ProviderType,
)
from sessions_app.git_providers.client import WITH_INSTALLATIONS, GitProviders
from sessions_app.settings import user_settings

logger = logging.getLogger(__name__)

Words = Annotated[str, Field(max_length=1000), AfterValidator(storable)]
Number = Annotated[int, Field(ge=-(2**31), lt=2**31)]
"""Numbers outside a provider's limits are corrected."""

_REPOSITORY_NAME = OpenApiParameter(
    "repository_name",
    OpenApiTypes.STR,
    OpenApiParameter.PATH,
    description="The whole name: `owner/name`, or longer.",
)


def _asked(answer: Any, *parameters: Any) -> dict[str, Any]:
    """Return the API document of a route with these parameters."""
    refusals = {400: str, 401: Detail | str, 404: str | Detail, 422: ValidationProblems, 500: str}
    return {"parameters": list(parameters), "responses": {200: answer, **refusals}}


class InstallationsQuery(BaseModel):
    """Which installations to return."""

    provider: ProviderType


class RepositoriesQuery(BaseModel):
    """Which repositories to return, and which page of them."""

    sort: Words = "pushed"
    selected_provider: ProviderType | None = None
    page: Number | None = None
    per_page: Number | None = None
    installation_id: Words | None = None


class RepositorySearch(BaseModel):
    """Which repositories to find, by a part of their names."""

    query: Words
    per_page: Number = 5
    sort: Words = "stars"
    order: Words = "desc"
    selected_provider: ProviderType | None = None


class BranchesQuery(BaseModel):
    """Which branches to return, and which page of them."""

    repository: Words
    page: Number = 1
    per_page: Number = 30


class BranchSearch(BaseModel):
    """Which branches to find, by a part of their names."""

    repository: Words
    query: Words
    per_page: Number = 30
    selected_provider: ProviderType | None = None


class ContentQuery(BaseModel):
    """Which file to return."""

    file_path: Words


@in_lane(Lane.ABROAD)
class GitViewSet(V0ViewSet):
    """A resource at the user's providers; errors are plain text on this wire."""

    def get_exception_handler(self) -> Callable[..., Any]:
        return _git_response

    def _providers(self) -> GitProviders:
        return GitProviders(user_settings.provider_tokens(self.user_id))


class GitUserViewSet(GitViewSet):
    """The user at the providers."""

    needs = WRITES

    @extend_schema(**_asked(GitUserInfo))
    def retrieve(self, request: Request) -> Response:
        """Return the user's profile from the first provider that has one."""
        return Response(in_loop(self._providers().user))

    @extend_schema(**_asked(list[str], InstallationsQuery))
    def installations(self, request: Request) -> Response:
        """Return the installations, workspaces or organisations of one provider."""
        provider = query_of(request, InstallationsQuery).provider
        tokens = user_settings.provider_tokens(self.user_id)
        # Without any token, the 401 for that comes first.
        if tokens and provider not in WITH_INSTALLATIONS:
            raise NotOffered(f"Provider {provider} has no installations.")
        return Response(in_loop(GitProviders(tokens).installations, provider))

    @extend_schema(**_asked(list[GitTask]))
    def suggested_tasks(self, request: Request) -> Response:
        """Return pull requests with problems, and open issues assigned to the user."""
        return Response(in_loop(self._providers().suggested_tasks))


class RepositoryViewSet(GitViewSet):
    """The user's repositories, their branches and their instructions for agents."""

    needs = WRITES

    @extend_schema(**_asked(list[GitRepository], RepositoriesQuery))
    def page(self, request: Request) -> Response:
        """Return a page of them; the first one's `link_header` says whether there is a next page."""
        query = query_of(request, RepositoriesQuery)
        found = in_loop(
            self._providers().repositories,
            sort=query.sort,
            provider=query.selected_provider,
            page=query.page,
            per_page=query.per_page,
            installation_id=query.installation_id,
        )
        return Response(found)

    @extend_schema(**_asked(list[GitRepository], RepositorySearch))
    def search(self, request: Request) -> Response:
        """Return the repositories that match a name or a web address."""
        query = query_of(request, RepositorySearch)
        found = in_loop(
            self._providers().search_repositories,
            query.query,
            per_page=query.per_page,
            sort=query.sort,
            order=query.order,
            provider=query.selected_provider,
        )
        return Response(found)

    @extend_schema(**_asked(GitBranchPage, BranchesQuery))
    def branches(self, request: Request) -> Response:
        """Return a page of them."""
        query = query_of(request, BranchesQuery)
        found = in_loop(
            self._providers().branches, query.repository, page=query.page, per_page=query.per_page
        )
        return Response(found)

    @extend_schema(**_asked(list[GitBranch], BranchSearch))
    def search_branches(self, request: Request) -> Response:
        """Return the branches of a repository whose names contain a text."""
        query = query_of(request, BranchSearch)
        found = in_loop(
            self._providers().search_branches,
            query.repository,
            query.query,
            per_page=query.per_page,
            provider=query.selected_provider,
        )
        return Response(found)

    @extend_schema(**_asked(list[GitMicroagent], _REPOSITORY_NAME))
    def microagents(self, request: Request, repository_name: str) -> Response:
        """Return their names; none if there is no folder for them."""
        return Response(in_loop(self._providers().microagents, repository_name))

    @extend_schema(**_asked(GitMicroagentContent, _REPOSITORY_NAME, ContentQuery))
    def microagent(self, request: Request, repository_name: str) -> Response:
        """Return it without its front matter, and the triggers in that."""
        query = query_of(request, ContentQuery)
        return Response(in_loop(self._providers().microagent_content, repository_name, query.file_path))


def _git_response(error: Exception, context: dict[str, Any]) -> Response | None:
    match error:
        case NotOffered() | InvalidName():
            return Response(str(error), status=400)
        case GitNotFound():
            return Response(str(error), status=404)
        # What a provider answered goes to the client, as on this wire; the log has it for the operator.
        case GitProviderError() if not isinstance(error, GitAuthenticationError):
            logger.warning("A git provider failed: %s", error)
            return Response(str(error), status=500)
    return v0_response(error, context)
