"""Conversations: the list, one conversation's facts, and what staff may do with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Prefetch, Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.http import require_GET, require_POST

from conversations import provisional_titles
from conversations.exceptions import InvalidConversationId
from conversations.models import Conversation, ConversationQuerySet, Version, normal_id
from convserver.admin import cells, purging, repairs
from convserver.admin.base import ReadOnlyAdmin, may_change
from convserver.admin.export import exported
from convserver.admin.filters import ANY, YES_OR_NO, FormFilter, choice_field, date_field, text_field
from convserver.admin.parameters import as_text, shown_parameters
from convserver.admin.periods import in_period
from convserver.admin.resources import events
from convserver.admin.resources.loops import LOOP_LABELS, agent_name
from convserver.admin.steering import Action, selected, steer_and_tell
from convserver.admin.widgets import label
from convserver.web.conversations.usage import UNIT_WORDS, used_words
from sessions_app.agents import metering
from sessions_app.identity.authentication import lets_everybody_in
from sessions_app.live.state_words import WORDS, state_of_loop
from sessions_app.live.status import shown_in
from sessions_app.models import AgentLoop, Connection
from sessions_app.retention import limit

RELATED_SHOWN = 20
DELETED = "deleted"


class ConversationFilterForm(forms.Form):
    """What conversations can be looked for by; texts are compared whole."""

    owner = text_field("Owner")
    version = choice_field("Version", [ANY, *Version.choices])
    trigger = text_field("Trigger")
    repository = text_field("Repository")
    loop = choice_field("Agent state", [ANY, *WORDS.items()])
    deleted = choice_field("Deleted", [*YES_OR_NO, ("purged", "Purged")])
    since = date_field("Created from (UTC)")
    until = date_field("Created through (UTC)")


class ConversationFilter(FormFilter[ConversationQuerySet]):
    """Conversations by their facts."""

    form_class = ConversationFilterForm

    def narrowed(self, rows: ConversationQuerySet, wanted: dict[str, Any]) -> ConversationQuerySet:
        """Return the conversations with the wanted facts."""
        rows = rows.matching(repository=wanted.get("repository"), trigger=wanted.get("trigger"))
        if "owner" in wanted:
            rows = rows.filter(owner__username=wanted["owner"])
        if "version" in wanted:
            rows = rows.filter(version=wanted["version"])
        if "loop" in wanted:
            rows = shown_in(rows, wanted["loop"])
        if "deleted" in wanted:
            kinds = {"yes": rows.deleted, "no": rows.active, "purged": rows.purged}
            rows = kinds[wanted["deleted"]]()
        return in_period(rows, "created_at", wanted)


@admin.register(Conversation)
class ConversationAdmin(ReadOnlyAdmin[Conversation]):
    """All conversations, the newest row first; deleted ones too."""

    list_display = (
        "shown_as",
        "id_shown",
        "owner",
        "repository_shown",
        "event_count",
        "loop_label",
        "present",
        "last_message_in_list",
        "created_in_list",
    )
    list_filter = (ConversationFilter,)
    list_before_template = "admin/repairs.html"
    search_fields = ("title",)
    search_help_text = "ID or start of an ID, title or owner"
    actions = ("start", "stop", "hide", "restore", "purge", "reset_key", "export")
    change_form_outer_before_template = "admin/conversation_actions.html"
    fieldsets = (
        (
            None,
            {
                "fields": (
                    ("shown_as_whole", "id_whole"),
                    ("owner", "version"),
                    ("created", "updated"),
                    ("deleted", "kept_until"),
                )
            },
        ),
        (
            "Agent",
            {"fields": (("loop_page", "loop_status"), ("waits", "starts"), ("present", "model_name"))},
        ),
        ("Log", {"fields": (("event_count", "last_message_time"), "digest")}),
        (
            "Origin",
            {"fields": (("trigger", "provider"), ("repository", "branch"), ("pull_requests", "tags_shown"))},
        ),
        ("Family", {"fields": (("parent_page", "children_pages"), ("fork_of", "fork_pages"))}),
        ("Cost", {"fields": (("cost", "total"), ("prompt", "completion"), ("limits_of_turn", "limits"))}),
        (
            "Creation parameters",
            {"fields": ("parameters",), "description": "Keys and replayed histories are not shown."},
        ),
    )

    # Who may what

    def has_steer_permission(self, request: HttpRequest) -> bool:
        """Say whether the visitor may start, stop, hide, restore and reset access keys."""
        return may_change(request, Conversation)

    def has_purge_permission(self, request: HttpRequest) -> bool:
        """Say whether the visitor may remove deleted conversations for good."""
        return purging.may_purge(request)

    def has_export_permission(self, request: HttpRequest) -> bool:
        """Say whether the visitor may take conversations away, with all that was said."""
        return events.may_read(request)

    # What is read

    def get_queryset(self, request: HttpRequest) -> QuerySet[Conversation]:
        """Return the rows with what their list shows, in two queries whatever their number."""
        present = Prefetch("connections", Connection.objects.present(), to_attr="present_connections")
        rows: Any = super().get_queryset(request)
        named = provisional_titles.noted(rows.select_related("owner", "loop"))
        return named.prefetch_related(present)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Conversation], search_term: str
    ) -> tuple[QuerySet[Conversation], bool]:
        """Return the conversation with this id if there is one, otherwise those with such a title or owner.

        A title that was made of messages is not searched: it would be guessed word by word.
        """
        term = search_term.strip()
        if not term:
            return queryset, False
        if (public_id := _id_in(term)) and Conversation.objects.with_public_ids([public_id]).exists():
            return queryset.filter(public_id=public_id), False
        named = Q(title__icontains=term, is_title_made=False) | Q(owner__username__icontains=term)
        return queryset.filter(named | Q(public_id__startswith=term)), False

    def get_urls(self) -> list[URLPattern]:
        """Add the pages of events, the export and the buttons."""
        return [
            self._path("<int:pk>/events/", "events", events.events_page),
            self._path("<int:pk>/events/<int:seq>/", "event", events.event_page),
            self._path("<int:pk>/events/<int:seq>/payload/", "payload", events.payload_download),
            self._path("<int:pk>/export/", "export", export_one),
            self._path("<int:pk>/do/", "do", do),
            self._path("purge/", "purge", purging.purge_page),
            *super().get_urls(),
        ]

    def _path(self, route: str, name: str, view: Callable[..., HttpResponseBase]) -> URLPattern:
        """Return an address below one conversation's, for staff only, as all of the admin's are."""
        guarded = self.admin_site.admin_view(partial(view, admin=self))
        return path(route, guarded, name=f"conversations_conversation_{name}")

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the list, below what is to be said about interrupted turns."""
        banner = repairs.banner() if request.method == "GET" else None
        return super().changelist_view(request, {**(extra_context or {}), "repairs": banner})

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        """Show one conversation with the buttons that the visitor may use."""
        allowed = {
            "may_steer": self.has_steer_permission(request),
            "may_read_events": events.may_read(request),
            "may_purge": self.has_purge_permission(request),
            "has_keys": not lets_everybody_in(),
        }
        return super().changeform_view(request, object_id, form_url, {**(extra_context or {}), **allowed})

    # What is done with the chosen rows of the list

    @admin.action(description="Start the agent", permissions=["steer"])
    def start(self, request: HttpRequest, queryset: QuerySet[Conversation]) -> None:
        """Start the agents of the chosen conversations."""
        steer_and_tell(request, Action.START, selected(request, queryset))

    @admin.action(description="Stop the agent", permissions=["steer"])
    def stop(self, request: HttpRequest, queryset: QuerySet[Conversation]) -> None:
        """Stop the agents of the chosen conversations."""
        steer_and_tell(request, Action.STOP, selected(request, queryset))

    @admin.action(description="Delete (can be restored)", permissions=["steer"])
    def hide(self, request: HttpRequest, queryset: QuerySet[Conversation]) -> None:
        """Delete the chosen conversations for all who look; every event stays."""
        steer_and_tell(request, Action.HIDE, selected(request, queryset))

    @admin.action(description="Restore", permissions=["steer"])
    def restore(self, request: HttpRequest, queryset: QuerySet[Conversation]) -> None:
        """Bring the chosen conversations back."""
        steer_and_tell(request, Action.RESTORE, selected(request, queryset))

    @admin.action(description="Purge (cannot be undone)", permissions=["purge"])
    def purge(self, request: HttpRequest, queryset: QuerySet[Conversation]) -> HttpResponse | None:
        """Ask whether the deleted ones among the chosen conversations are to go for good."""
        return purging.question(request, selected(request, queryset))

    @admin.action(description="Reset the access key", permissions=["steer"])
    def reset_key(self, request: HttpRequest, queryset: QuerySet[Conversation]) -> None:
        """Rotate the access keys of the chosen conversations; staff are shown neither old nor new ones."""
        steer_and_tell(request, Action.RESET_KEY, selected(request, queryset))

    @admin.action(description="Export as JSON", permissions=["export"])
    def export(self, request: HttpRequest, queryset: QuerySet[Conversation]) -> HttpResponseBase | None:
        """Download the chosen conversations."""
        rows = selected(request, queryset)
        if not rows:
            messages.warning(request, "There is nothing to export.")
            return None
        return exported(request, rows)

    # Columns and facts

    @admin.display(description="Title")
    def shown_as(self, row: Conversation) -> SafeString | None:
        """What it is called, on one line."""
        return cells.narrow(cells.title_of(row))

    @admin.display(description="Title")
    def shown_as_whole(self, row: Conversation) -> str:
        """What it is called."""
        return cells.title_of(row)

    @admin.display(description="ID")
    def id_shown(self, row: Conversation) -> SafeString:
        """The beginning of its id."""
        return cells.shortened(row.public_id)

    @admin.display(description="ID")
    def id_whole(self, row: Conversation) -> SafeString:
        """Its id."""
        return cells.code(row.public_id)

    @admin.display(description="Repository")
    def repository_shown(self, row: Conversation) -> SafeString | None:
        """What it works on, on one line."""
        return cells.narrow(row.repository)

    @admin.display(description="Events")
    def event_count(self, row: Conversation) -> str:
        """How long its log is: seqs have no holes."""
        return cells.number(row.next_seq)

    @label("Agent state", {**LOOP_LABELS, DELETED: "danger"})
    def loop_label(self, row: Conversation) -> tuple[str, str]:
        """What its agent does; nothing where the conversation is deleted."""
        if row.purged_at:
            return DELETED, "Purged"
        return (DELETED, "Deleted") if row.deleted_at else self._state(row)

    def _state(self, row: Conversation) -> tuple[str, str]:
        state = state_of_loop(_loop_of(row) or AgentLoop())
        return state, WORDS[state]

    @admin.display(description="Agent state")
    def loop_status(self, row: Conversation) -> str:
        """What its agent does, in words."""
        return self._state(row)[1]

    @admin.display(description="Connected")
    def present(self, row: Conversation) -> str:
        """How many connections are present."""
        return cells.number(len(getattr(row, "present_connections", ())))

    @admin.display(description="Last message (UTC)")
    def last_message_in_list(self, row: Conversation) -> SafeString | None:
        """When somebody last said something."""
        return cells.stacked(row.last_message_at)

    @admin.display(description="Created (UTC)")
    def created_in_list(self, row: Conversation) -> SafeString | None:
        """When it began."""
        return cells.stacked(row.created_at)

    @admin.display(description="Last message (UTC)")
    def last_message_time(self, row: Conversation) -> SafeString | None:
        """When somebody last said something."""
        return cells.moment(row.last_message_at)

    @admin.display(description="Created (UTC)")
    def created(self, row: Conversation) -> SafeString | None:
        """When it began."""
        return cells.moment(row.created_at)

    @admin.display(description="Changed (UTC)")
    def updated(self, row: Conversation) -> SafeString | None:
        """When something was last added to it."""
        return cells.moment(row.updated_at)

    @admin.display(description="Deleted (UTC)")
    def deleted(self, row: Conversation) -> SafeString | None:
        """When it was hidden."""
        return cells.moment(row.deleted_at)

    @admin.display(description="Can be restored until (UTC)")
    def kept_until(self, row: Conversation) -> SafeString | str | None:
        """When it is purged; nothing where it is not deleted."""
        if row.deleted_at is None:
            return None
        if row.purged_at is not None:
            return "Purged"
        until = limit.kept_time().until(row.deleted_at)
        return "For ever" if until is None else cells.moment(until)

    @admin.display(description="Agent loop")
    def loop_page(self, row: Conversation) -> SafeString | str:
        """The way to its loop."""
        loop = _loop_of(row)
        return "Never started" if loop is None else cells.link(loop, agent_name(loop) or "Loop")

    @admin.display(description="Answer pending")
    def waits(self, row: Conversation) -> str:
        """Whether the agent owes an answer."""
        return cells.yes_or_no(row.is_unanswered)

    @admin.display(description="Starts of the agent so far")
    def starts(self, row: Conversation) -> int:
        """How often a process has started its agent."""
        return row.loop_epoch

    @admin.display(description="Model")
    def model_name(self, row: Conversation) -> str | None:
        """Which model answers, where that is known."""
        return row.llm_model

    @admin.display(description="Checksum of the log")
    def digest(self, row: Conversation) -> SafeString:
        """What proves that nothing was changed or left out."""
        return cells.code(row.head_digest)

    @admin.display(description="Pull requests")
    def pull_requests(self, row: Conversation) -> str:
        """Their numbers."""
        return ", ".join(f"#{number}" for number in row.pr_number)

    @admin.display(description="Tags")
    def tags_shown(self, row: Conversation) -> str:
        """Its tags."""
        return ", ".join(f"{name}: {value}" for name, value in row.tags.items())

    @admin.display(description="Started by")
    def parent_page(self, row: Conversation) -> SafeString | None:
        """The conversation that started it."""
        return cells.link(row.parent) if row.parent else None

    @admin.display(description="Sub-conversations")
    def children_pages(self, row: Conversation) -> SafeString | None:
        """The conversations that it started."""
        return _links(row.children.all())

    @admin.display(description="Fork of")
    def fork_of(self, row: Conversation) -> SafeString | None:
        """The conversation whose beginning it has, and how far."""
        if row.forked_from is None:
            return None
        return format_html("{} up to event {}", cells.link(row.forked_from), row.forked_at)

    @admin.display(description="Forks")
    def fork_pages(self, row: Conversation) -> SafeString | None:
        """The conversations that began as a copy of it."""
        return _links(row.forks.all())

    @admin.display(description="Cost (USD)")
    def cost(self, row: Conversation) -> str:
        """What its model has cost."""
        return f"{row.accumulated_cost:.4f}"

    @admin.display(description="Used in the newest turn, of its limits")
    def limits_of_turn(self, row: Conversation) -> SafeString:
        """What the newest turn has used of its limits."""
        return _limits(row, of_turn=True)

    @admin.display(description="Used by the agent, of the limits")
    def limits(self, row: Conversation) -> SafeString:
        """What the conversation has used of its limits."""
        return _limits(row, of_turn=False)

    @admin.display(description="Total tokens")
    def total(self, row: Conversation) -> str:
        """How much its model has read and written."""
        return cells.number(row.total_tokens)

    @admin.display(description="Input tokens")
    def prompt(self, row: Conversation) -> str:
        """How much its model has read."""
        return cells.number(row.prompt_tokens)

    @admin.display(description="Output tokens")
    def completion(self, row: Conversation) -> str:
        """How much its model has written."""
        return cells.number(row.completion_tokens)

    @admin.display(description="Parameters")
    def parameters(self, row: Conversation) -> SafeString | None:
        """What it was created with, without keys."""
        shown = shown_parameters(row)
        return format_html('<pre class="admin-json">{}</pre>', as_text(shown)) if shown else None


@require_GET
def export_one(request: HttpRequest, pk: int, *, admin: ConversationAdmin) -> HttpResponseBase:
    """Download one conversation."""
    return exported(request, [events.opened(request, admin, pk)])


@require_POST
def do(request: HttpRequest, pk: int, *, admin: ConversationAdmin) -> HttpResponseBase:
    """Do what a button of the conversation's page asks for, and show the page again."""
    if not admin.has_steer_permission(request):
        raise PermissionDenied
    row = admin.get_queryset(request).filter(pk=pk).first()
    action = request.POST.get("action")
    if row is None or action not in list(Action):
        raise Http404("Conversation not found, or this action is unknown.")
    steer_and_tell(request, Action(action), [row])
    return HttpResponseRedirect(cells.page_of(row))


def _loop_of(row: Conversation) -> AgentLoop | None:
    return getattr(row, "loop", None)


def _links(rows: QuerySet[Conversation]) -> SafeString | None:
    """Return links to the newest of these conversations."""
    newest = rows.newest_first()  # type: ignore[attr-defined]
    found = list(provisional_titles.noted(newest)[: RELATED_SHOWN + 1])
    if not found:
        return None
    more = ["…"] if len(found) > RELATED_SHOWN else []
    links = (cells.link(row, cells.cut(cells.title_of(row))) for row in found[:RELATED_SHOWN])
    return format_html_join(", ", "{}", ([each] for each in [*links, *more]))


def _id_in(term: str) -> str | None:
    try:
        return normal_id(term)
    except InvalidConversationId:
        return None


def _limits(row: Conversation, *, of_turn: bool) -> SafeString:
    states = (state for state in metering.states_of(row.ref) if state.is_of_turn == of_turn)
    lines = ((f"{used_words(state)}{UNIT_WORDS[state.unit]}",) for state in states)
    return format_html_join(mark_safe("<br>"), "{}", lines)
