"""Data of the user's git providers on the app face, as far as their tokens allow."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

from drf_spectacular.utils import extend_schema
from pydantic import AfterValidator, BaseModel, Field
from rest_framework.request import Request
from rest_framework.response import Response

from convserver.api.openhands.errors import Detail, Refused, ValidationProblems
from convserver.api.openhands.text import storable
from convserver.api.openhands.view import query_of
from convserver.api.scopes import WRITES
from convserver.api.v1.app.settings.lists import NameQuery, page_of
from convserver.api.v1.app.view import AppViewSet, app_response, described
from convserver.event_loop import in_loop
from convserver.pagination import PAGE_MAX
from convserver.serving.admission import Lane, in_lane
from sessions_app.git_providers.base import (
    GitAuthenticationError,
    GitBranch,
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

NO_PROVIDER = "Git provider token required (such as GitHub)."
NOT_CONNECTED = "Git provider not connected"
NO_ORDER = "sort_order needs a query: a user's own repositories come by their last push."
FIRST_PAGE_ALONE = "A search of branches has one page. Leave the query out to page through all."
PAGE_NUMBER_MAX = 10_000

Words = Annotated[str, Field(max_length=1000), AfterValidator(storable)]


class SortOrder(StrEnum):
    """An order of repositories."""

    STARS_DESC = "stars-desc"
    STARS_ASC = "stars-asc"
    FORKS_DESC = "forks-desc"
    FORKS_ASC = "forks-asc"
    UPDATED_DESC = "updated-desc"
    UPDATED_ASC = "updated-asc"


class NumberedPage(BaseModel):
    """Which page to return: `page_id` is its number."""

    page_id: Annotated[int, Field(ge=1, le=PAGE_NUMBER_MAX)] | None = None
    limit: int = Field(default=PAGE_MAX, ge=1, le=PAGE_MAX)

    @property
    def number(self) -> int:
        """The page's number, from 1."""
        return self.page_id or 1


class InstallationQuery(NameQuery):
    """Which installations to return."""

    provider: ProviderType


class RepositoryQuery(NumberedPage):
    """Which repositories to return; without a query the user's own."""

    provider: ProviderType
    query: Words | None = None
    installation_id: Words | None = None
    sort_order: SortOrder | None = None


class BranchQuery(NumberedPage):
    """Which branches to return."""

    provider: ProviderType
    repository: Words
    query: Words = ""
    limit: int = Field(default=30, ge=1, le=PAGE_MAX)


class TaskQuery(NumberedPage):
    """Which tasks to return."""

    limit: int = Field(default=30, ge=1, le=PAGE_MAX)


class InstallationPage(BaseModel):
    """One page of installations, workspaces or organisations."""

    items: list[str]
    next_page_id: str | None


class RepositoryPage(BaseModel):
    """One page of repositories."""

    items: list[GitRepository]
    next_page_id: str | None


class BranchPage(BaseModel):
    """One page of branches."""

    items: list[GitBranch]
    next_page_id: str | None


class TaskPage(BaseModel):
    """One page of pull requests with problems, and of open issues that are the user's."""

    items: list[GitTask]
    next_page_id: str | None


REFUSED: dict[int, Any] = {400: Detail, 403: Detail, 404: Detail, 422: ValidationProblems, 502: Detail}


@in_lane(Lane.ABROAD)
class AppGitViewSet(AppViewSet):
    """What the user's git providers know."""

    needs = WRITES

    def get_exception_handler(self) -> Callable[..., Any]:
        return _git_response

    def _providers(self, refusal: str = NO_PROVIDER) -> GitProviders:
        """Return the providers that the user has tokens of. Raise Refused where there is none."""
        tokens = user_settings.provider_tokens(self.user_id)
        if not tokens:
            # Not 401, at which web clients log out.
            raise Refused(403, {"detail": refusal})
        return GitProviders(tokens)

    @extend_schema(responses={200: GitUserInfo, **REFUSED})
    def user(self, request: Request) -> Response:
        """Return the user's profile from the first provider that has one."""
        return Response(in_loop(self._providers(NOT_CONNECTED).user))

    @extend_schema(parameters=described(InstallationQuery), responses={200: InstallationPage, **REFUSED})
    def installations(self, request: Request) -> Response:
        """Return a page of the installations, workspaces or organisations of one provider."""
        query = query_of(request, InstallationQuery)
        providers = self._providers()
        if query.provider not in WITH_INSTALLATIONS:
            raise NotOffered(f"Provider {query.provider} doesn't support installations")
        items, next_page_id = page_of(
            sorted(in_loop(providers.installations, query.provider)), query, lambda each: each
        )
        return Response({"items": items, "next_page_id": next_page_id})

    @extend_schema(parameters=described(RepositoryQuery), responses={200: RepositoryPage, **REFUSED})
    def repositories(self, request: Request) -> Response:
        """Return a page of the user's repositories, or the ones that match a query."""
        query = query_of(request, RepositoryQuery)
        providers = self._providers()
        if query.query:
            sort, _, order = (query.sort_order or SortOrder.STARS_DESC).rpartition("-")
            found = in_loop(
                providers.search_repositories,
                query.query,
                per_page=query.limit,
                sort=sort,
                order=order,
                provider=query.provider,
            )
            return Response({"items": found, "next_page_id": None})
        if query.sort_order is not None:
            raise Refused(400, {"detail": NO_ORDER})
        found = in_loop(
            providers.repositories,
            sort="pushed",
            provider=query.provider,
            page=query.number,
            per_page=query.limit,
            installation_id=query.installation_id,
        )
        # The header is GitHub's; pages of other providers get one in its form.
        has_next = bool(found) and 'rel="next"' in (found[0]["link_header"] or "")
        return Response({"items": found, "next_page_id": _next(query, has_next=has_next)})

    @extend_schema(parameters=described(BranchQuery), responses={200: BranchPage, **REFUSED})
    def branches(self, request: Request) -> Response:
        """Return a page of the branches of a repository, or the ones whose names contain a text."""
        query = query_of(request, BranchQuery)
        providers = self._providers()
        if not query.query:
            page = in_loop(
                providers.branches,
                query.repository,
                page=query.number,
                per_page=query.limit,
                provider=query.provider,
            )
            next_page_id = _next(query, has_next=page["has_next_page"])
            return Response({"items": page["branches"], "next_page_id": next_page_id})
        if query.number > 1:
            raise Refused(400, {"detail": FIRST_PAGE_ALONE})
        found = in_loop(
            providers.search_branches,
            query.repository,
            query.query,
            per_page=query.limit,
            provider=query.provider,
        )
        return Response({"items": found, "next_page_id": None})

    @extend_schema(parameters=described(TaskQuery), responses={200: TaskPage, **REFUSED})
    def suggested_tasks(self, request: Request) -> Response:
        """Return a page of pull requests with problems, and open issues assigned to the user."""
        query = query_of(request, TaskQuery)
        found = in_loop(self._providers().suggested_tasks)
        first = (query.number - 1) * query.limit
        has_next = first + query.limit < len(found)
        page = found[first : first + query.limit]
        return Response({"items": page, "next_page_id": _next(query, has_next=has_next)})


def _next(query: NumberedPage, *, has_next: bool) -> str | None:
    return str(query.number + 1) if has_next else None


def _git_response(error: Exception, context: dict[str, Any]) -> Response | None:
    match error:
        case NotOffered() | InvalidName():
            return Response({"detail": str(error)}, status=400)
        case GitNotFound():
            return Response({"detail": str(error)}, status=404)
        # Not 401, at which web clients log out.
        case GitAuthenticationError():
            return Response({"detail": str(error)}, status=403)
        case GitProviderError():
            logger.warning("A git provider failed: %s", error)
            return Response({"detail": str(error)}, status=502)
    return app_response(error, context)
