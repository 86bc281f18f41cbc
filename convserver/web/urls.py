"""The addresses of pages."""

from __future__ import annotations

from django.urls import path, re_path

from convserver.web import batch, device, home, restoring, rows, search, theme, trash
from convserver.web.conversations import (
    access_keys,
    actions,
    again,
    agent,
    answer,
    branching,
    changes,
    decisions,
    export,
    files,
    labels,
    limits,
    options,
    usage,
)
from convserver.web.conversations import (
    page as conversation,
)
from convserver.web.conversations.model_menu import page as model_menu
from convserver.web.events import output, previews
from convserver.web.opinions import rating
from convserver.web.settings_pages import (
    account,
    imports,
    instructions,
    model,
    page,
    providers,
    run_limits,
    secrets,
    tokens,
    tool_servers,
)

# At least 20 letters: `settings/import/follow` is no id.
_IMPORT = "settings/import/(?P<import_id>[A-Za-z0-9]{20,64})"

urlpatterns = [
    path("", home.home, name="home"),
    path("new", home.new, name="new"),
    path("begin", home.begin, name="begin"),
    path("c/<str:conversation_id>", conversation.conversation, name="conversation"),
    path("c/<str:conversation_id>/events", conversation.events, name="conversation-events"),
    path("c/<str:conversation_id>/answer", answer.answer, name="conversation-answer"),
    path("c/<str:conversation_id>/usage", usage.usage, name="conversation-usage"),
    path("c/<str:conversation_id>/agent", agent.agent, name="conversation-agent"),
    path("c/<str:conversation_id>/models", model_menu.models, name="conversation-models"),
    path("c/<str:conversation_id>/files", files.files, name="conversation-files"),
    path("c/<str:conversation_id>/changes", changes.changes, name="conversation-changes"),
    path("c/<str:conversation_id>/changed-files", restoring.changed, name="conversation-changed-files"),
    path("c/<str:conversation_id>/restore-files", restoring.restore_files, name="conversation-restore-files"),
    path("c/<str:conversation_id>/file", files.download, name="conversation-file"),
    path("c/<str:conversation_id>/limits", limits.limits, name="conversation-limits"),
    path("c/<str:conversation_id>/network", options.network, name="conversation-network"),
    path("c/<str:conversation_id>/events/<int:seq>/output", output.download, name="event-output"),
    re_path(
        r"^c/(?P<conversation_id>[^/]+)/events/(?P<seq>\d{1,18})/preview/(?P<digest>[0-9a-f]{16}|)$",
        previews.preview,
        name="event-preview",
    ),
    re_path(
        r"^c/(?P<conversation_id>[^/]+)/export\.(?P<format>jsonl|md|html)$", export.export, name="export"
    ),
    re_path(
        r"^c/(?P<conversation_id>[^/]+)/export\.(?P<layout>openhands-v[01])\.zip$",
        export.export_layout,
        name="export-layout",
    ),
    path("c/<str:conversation_id>/messages", conversation.post_message, name="conversation-messages"),
    path("c/<str:conversation_id>/decision", decisions.decide, name="conversation-decision"),
    path("c/<str:conversation_id>/reset-key", access_keys.reset, name="conversation-reset-key"),
    path("device", device.device, name="device"),
    path("search", search.search, name="search"),
    path("deleted", trash.trash, name="deleted"),
    path("settings", page.settings, name="settings"),
    path("settings/export", export.export_all, name="settings-export"),
    path("settings/import", imports.imports, name="settings-import"),
    path("settings/import/follow", imports.follow, name="settings-import-follow"),
    re_path(rf"^{_IMPORT}$", imports.import_run, name="settings-import-run"),
    re_path(rf"^{_IMPORT}/remove$", imports.remove, name="settings-import-remove"),
    path("settings/theme", theme.choose, name="theme"),
    path("settings/model", model.change, name="settings-model"),
    path("settings/instructions", instructions.change, name="settings-instructions"),
    path("settings/providers", providers.add, name="settings-providers"),
    path("settings/providers/change", providers.change, name="settings-providers-change"),
    path("settings/limits", run_limits.change, name="settings-limits"),
    path("settings/tools", tool_servers.add, name="settings-tools"),
    path("settings/tools/remove", tool_servers.remove, name="settings-tools-remove"),
    path("settings/tools/test", tool_servers.try_connection, name="settings-tools-test"),
    path("settings/tools/ask", tool_servers.ask_again, name="settings-tools-ask"),
    path("settings/approval", tool_servers.ask_for_approval, name="settings-approval"),
    path("settings/secrets", secrets.add, name="settings-secrets"),
    path("settings/secrets/change", secrets.change, name="settings-secrets-change"),
    path("settings/tokens", tokens.create, name="settings-tokens"),
    path("settings/tokens/revoke", tokens.revoke, name="settings-tokens-revoke"),
    path("settings/keys", access_keys.reset_all, name="settings-keys"),
    path("settings/password", account.change_password, name="settings-password"),
    path("c/<str:conversation_id>/branch", branching.branch, name="conversation-branch"),
    path("c/<str:conversation_id>/again", again.again, name="conversation-again"),
    path("c/<str:conversation_id>/feedback", rating.rating, name="conversation-feedback"),
    path("c/<str:conversation_id>/rename", actions.rename, name="conversation-rename"),
    path("c/<str:conversation_id>/labels", labels.labels, name="conversation-labels"),
    path("c/<str:conversation_id>/pin", actions.pin, name="conversation-pin"),
    path("c/<str:conversation_id>/archive", actions.archive, name="conversation-archive"),
    path(
        "c/<str:conversation_id>/while-working",
        actions.choose_while_working,
        name="conversation-while-working",
    ),
    path("c/<str:conversation_id>/temporary", actions.settle_temporary, name="conversation-temporary"),
    path("c/<str:conversation_id>/delete", actions.delete, name="conversation-delete"),
    path("c/<str:conversation_id>/restore", actions.restore, name="conversation-restore"),
    path("c/<str:conversation_id>/purge", trash.purge, name="conversation-purge"),
    path("rows", rows.rows, name="rows"),
    path("batch", batch.batch, name="batch"),
    path("export", export.export_some, name="export-some"),
    path("labels", labels.known, name="labels"),
]
