"""Conversations: the list, one conversation's facts, and what staff may do with it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Prefetch, Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404
from django.urls import URLPattern
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.http import require_GET, require_POST

from conversations import provisional_titles
from conversations.exceptions import InvalidConversationId
from conversations.models import Conversation, ConversationQuerySet, Version, normal_id
from convserver.admin import cells, filters, purging, repairs
from convserver.admin.base import ReadOnlyAdmin, StaffPages, may_purge, may_read, sections, staff_pages
from convserver.admin.cells import column, label
from convserver.admin.export import exported
from convserver.admin.parameters import as_text, shown_parameters
from convserver.admin.resources import events
from convserver.admin.resources.loops import LOOP_LABELS, agent_name
from convserver.admin.steering import SteeringAction, selected, steer_and_tell, steering_action
from convserver.web.conversations.usage import UNIT_WORDS, used_words
from sessions_app.agents import metering
from sessions_app.identity.authentication import lets_everybody_in
from sessions_app.live.state_words import WORDS, state_of_loop
from sessions_app.live.status import shown_in
from sessions_app.models import AgentLoop, Connection
from sessions_app.retention import limit

DELETED = "deleted"


BY_DELETION = {
    "yes": ConversationQuerySet.deleted,
    "no": ConversationQuerySet.active,
    "purged": ConversationQuerySet.purged,
}


@admin.register(Conversation)
class ConversationAdmin(ReadOnlyAdmin[Conversation]):
    """All conversations, the newest row first; deleted ones too."""

    list_display = (
        *("shown_as", "id_shown", "owner", "repository_shown", "event_count", "loop_label", "present"),
        *("last_message_in_list", "created_in_list"),
    )
    list_filter = (
        filters.form_of(
            owner=filters.text("Owner", "owner__username"),
            version=filters.choice("Version", Version.choices, "version"),
            trigger=filters.text("Trigger", lambda rows, value: rows.matching(trigger=value)),
            repository=filters.text("Repository", lambda rows, value: rows.matching(repository=value)),
            loop=filters.choice("Agent state", [*WORDS.items()], shown_in),
            deleted=filters.choice(
                "Deleted",
                [*filters.YES_OR_NO, ("purged", "Purged")],
                lambda rows, wanted: BY_DELETION[wanted](rows),
            ),
            since=filters.since("created_at", "Created from (UTC)"),
            until=filters.until("created_at", "Created through (UTC)"),
        ),
    )
    list_before_template = "admin/repairs.html"
    search_fields = ("title",)
    search_help_text = "ID or start of an ID, title or owner"
    actions = ("start", "stop", "hide", "restore", "purge", "reset_key", "export")
    change_form_outer_before_template = "admin/conversation_actions.html"
    fieldsets = (
        *sections(
            {
                "": (
                    *(("shown_as_whole", "id_whole"), ("owner", "version")),
                    *(("created", "updated"), ("deleted", "kept_until")),
                ),
                "Agent": (("loop_page", "loop_status"), ("waits", "starts"), ("present", "model_name")),
                "Log": (("event_count", "last_message_time"), "digest"),
                "Origin": (
                    ("trigger", "provider"),
                    ("repository", "branch"),
                    ("pull_requests", "tags_shown"),
                ),
                "Family": (("parent_page", "children_pages"), ("fork_of", "fork_pages")),
                "Cost": (("cost", "total"), ("prompt", "completion"), ("limits_of_turn", "limits")),
            }
        ),
        (
            "Creation parameters",
            {"fields": ("parameters",), "description": "Keys and replayed histories are not shown."},
        ),
    )

    def has_purge_permission(self, request: HttpRequest) -> bool:
        return may_purge(request)

    def has_export_permission(self, request: HttpRequest) -> bool:
        return may_read(request)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Conversation]:
        """Return the rows with what their list shows, in two queries whatever their number."""
        present = Prefetch("connections", Connection.objects.present(), to_attr="present_connections")
        rows: Any = super().get_queryset(request)
        named = provisional_titles.noted(rows.permanent().select_related("owner", "loop"))
        return named.prefetch_related(present)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Conversation], search_term: str
    ) -> tuple[QuerySet[Conversation], bool]:
        """Return the conversation with this id, otherwise the conversations with such a title or owner."""
        term = search_term.strip()
        if not term:
            return queryset, False
        if (public_id := _id_in(term)) and Conversation.objects.with_public_ids([public_id]).exists():
            return queryset.filter(public_id=public_id), False
        # A title that was made of messages is not searched: it could be guessed word by word.
        named = Q(title__icontains=term, is_title_made=False) | Q(owner__username__icontains=term)
        return queryset.filter(named | Q(public_id__startswith=term)), False

    def get_urls(self) -> list[URLPattern]:
        pages: StaffPages = {
            "<int:pk>/events/": ("events", events.events_page),
            "<int:pk>/events/<int:seq>/": ("event", events.event_page),
            "<int:pk>/events/<int:seq>/payload/": ("payload", events.payload_download),
            "<int:pk>/export/": ("export", export_one),
            "<int:pk>/do/": ("do", do),
            "purge/": ("purge", purging.purge_page),
        }
        return [*staff_pages(self, pages), *super().get_urls()]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        banner = repairs.banner() if request.method == "GET" else None
        return super().changelist_view(request, {**(extra_context or {}), "repairs": banner})

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **options: Any
    ) -> HttpResponse:
        allowed = {
            "may_steer": self.has_steer_permission(request),
            "may_read_events": may_read(request),
            "may_purge": self.has_purge_permission(request),
            "has_keys": not lets_everybody_in(),
        }
        return super().render_change_form(request, context | allowed, *args, **options)

    start = steering_action("Start the agent", SteeringAction.START)
    stop = steering_action("Stop the agent", SteeringAction.STOP)
    hide = steering_action("Delete (can be restored)", SteeringAction.HIDE)
    restore = steering_action("Restore", SteeringAction.RESTORE)
    reset_key = steering_action("Reset the access key", SteeringAction.RESET_KEY)

    @admin.action(description="Purge (cannot be undone)", permissions=["purge"])
    def purge(self, request: HttpRequest, queryset: QuerySet[Conversation]) -> HttpResponse | None:
        return purging.question(request, selected(request, queryset))

    @admin.action(description="Export as JSON", permissions=["export"])
    def export(self, request: HttpRequest, queryset: QuerySet[Conversation]) -> HttpResponseBase | None:
        rows = selected(request, queryset)
        if not rows:
            messages.warning(request, "There is nothing to export.")
            return None
        return exported(request, rows)

    shown_as = column("Title", cells.title_of, cells.narrow)
    shown_as_whole = column("Title", cells.title_of)
    id_shown = column("ID", "public_id", cells.shortened)
    id_whole = column("ID", "public_id", cells.code)
    repository_shown = column("Repository", "repository", cells.narrow)
    # A log has no holes, so that its next seq is its length.
    event_count = column("Events", "next_seq", cells.number)
    loop_status = column("Agent state", lambda row: _state(row)[1])
    present = column("Connected", lambda row: cells.number(len(getattr(row, "present_connections", ()))))
    last_message_in_list = column("Last message (UTC)", "last_message_at", cells.stacked)
    last_message_time = column("Last message (UTC)", "last_message_at", cells.moment)
    created_in_list = column("Created (UTC)", "created_at", cells.stacked)
    created = column("Created (UTC)", "created_at", cells.moment)
    updated = column("Changed (UTC)", "updated_at", cells.moment)
    deleted = column("Deleted (UTC)", "deleted_at", cells.moment)
    waits = column("Answer pending", "is_unanswered", cells.yes_or_no)
    starts = column("Starts of the agent so far", "loop_epoch")
    model_name = column("Model", "llm_model")
    digest = column("Checksum of the log", "head_digest", cells.code)
    pull_requests = column("Pull requests", lambda row: ", ".join(f"#{number}" for number in row.pr_number))
    tags_shown = column("Tags", lambda row: ", ".join(f"{name}: {value}" for name, value in row.tags.items()))
    parent_page = column("Started by", "parent", cells.link)
    children_pages = column("Sub-conversations", lambda row: _links(row.children.all()))
    fork_pages = column("Forks", lambda row: _links(row.forks.all()))
    cost = column("Cost (USD)", lambda row: f"{row.accumulated_cost:.4f}")
    limits_of_turn = column("Used in the newest turn, of its limits", lambda row: _limits(row, of_turn=True))
    limits = column("Used by the agent, of the limits", lambda row: _limits(row, of_turn=False))
    total = column("Total tokens", "total_tokens", cells.number)
    prompt = column("Input tokens", "prompt_tokens", cells.number)
    completion = column("Output tokens", "completion_tokens", cells.number)

    @label("Agent state", {**LOOP_LABELS, DELETED: "danger"})
    def loop_label(self, row: Conversation) -> tuple[str, str]:
        if row.purged_at:
            return DELETED, "Purged"
        return (DELETED, "Deleted") if row.deleted_at else _state(row)

    @admin.display(description="Can be restored until (UTC)")
    def kept_until(self, row: Conversation) -> SafeString | str | None:
        if row.deleted_at is None:
            return None
        if row.purged_at is not None:
            return "Purged"
        until = limit.kept_time().until(row.deleted_at)
        return "Without limit" if until is None else cells.moment(until)

    @admin.display(description="Agent loop")
    def loop_page(self, row: Conversation) -> SafeString | str:
        loop = _loop_of(row)
        return "Never started" if loop is None else cells.link(loop, agent_name(loop) or "Loop")

    @admin.display(description="Fork of")
    def fork_of(self, row: Conversation) -> SafeString | None:
        if row.forked_from is None:
            return None
        return format_html("{} up to event {}", cells.link(row.forked_from), row.forked_at)

    @admin.display(description="Parameters")
    def parameters(self, row: Conversation) -> SafeString | None:
        shown = shown_parameters(row)
        return format_html('<pre class="admin-json">{}</pre>', as_text(shown)) if shown else None


@require_GET
def export_one(request: HttpRequest, pk: int, *, admin: ConversationAdmin) -> HttpResponseBase:
    return exported(request, [events.opened(request, admin, pk)])


@require_POST
def do(request: HttpRequest, pk: int, *, admin: ConversationAdmin) -> HttpResponseBase:
    """Do what a button of the conversation's page asks for, and show the page again."""
    if not admin.has_steer_permission(request):
        raise PermissionDenied
    row = get_object_or_404(admin.get_queryset(request), pk=pk)
    action = request.POST.get("action")
    if action not in list(SteeringAction):
        raise Http404("This action is unknown.")
    steer_and_tell(request, SteeringAction(action), [row])
    return HttpResponseRedirect(cells.page_of(row))


def _loop_of(row: Conversation) -> AgentLoop | None:
    # A conversation whose agent never started has no row of a loop.
    return getattr(row, "loop", None)


def _state(row: Conversation) -> tuple[str, str]:
    state = state_of_loop(_loop_of(row) or AgentLoop())
    return state, WORDS[state]


def _links(rows: QuerySet[Conversation]) -> SafeString | None:
    """Return links to the newest of these conversations."""
    newest = rows.newest_first()  # type: ignore[attr-defined]
    found = list(provisional_titles.noted(newest)[: cells.LISTED_MAX + 1])
    if not found:
        return None
    more = ["…"] if len(found) > cells.LISTED_MAX else []
    links = (cells.link(row, cells.cut(cells.title_of(row))) for row in found[: cells.LISTED_MAX])
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
