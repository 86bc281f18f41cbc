"""The addresses of the V0 REST door that no other wire has; none ends with a slash.

Those that the V1 wire has as well are in `v1/shared_origin`.
"""

from __future__ import annotations

from django.urls import path, re_path

from convserver.api.v0.conversations import V0ConversationViewSet
from convserver.api.v0.events import V0EventViewSet
from convserver.api.v0.feedback import FeedbackViewSet
from convserver.api.v0.git.microagents import MicroagentConversationViewSet
from convserver.api.v0.git.tokens import GitProviderViewSet
from convserver.api.v0.git.user import GitUserViewSet, RepositoryViewSet
from convserver.api.v0.learning import ExperimentView, RememberPromptView
from convserver.api.v0.settings.options import OptionViewSet
from convserver.api.v0.settings.secrets import SecretViewSet
from convserver.api.v0.settings.views import V0SettingsViewSet
from convserver.api.v0.uploads import UploadViewSet
from convserver.api.v0.workspace import V0WorkspaceViewSet

_ONE = r"^conversations/(?P<conversation_id>[^/]+)"
# Names of repositories have slashes, and `.` would not match a line end, which is for the view to refuse.
_REPOSITORY = r"^user/repository/(?P<repository_name>[\s\S]+)"

urlpatterns = [
    re_path(rf"{_ONE}/start$", V0ConversationViewSet.as_view({"post": "start"}), name="v0-start"),
    re_path(rf"{_ONE}/stop$", V0ConversationViewSet.as_view({"post": "stop"}), name="v0-stop"),
    re_path(rf"{_ONE}/exp-config$", ExperimentView.as_view(), name="v0-exp-config"),
    re_path(rf"{_ONE}/remember-prompt$", RememberPromptView.as_view(), name="v0-remember-prompt"),
    re_path(rf"{_ONE}/message$", V0EventViewSet.as_view({"post": "create_message"}), name="v0-message"),
    re_path(rf"{_ONE}/trajectory$", V0EventViewSet.as_view({"get": "trajectory"}), name="v0-trajectory"),
    re_path(
        rf"{_ONE}/submit-feedback$", FeedbackViewSet.as_view({"post": "create"}), name="v0-submit-feedback"
    ),
    re_path(rf"{_ONE}/upload-files$", UploadViewSet.as_view({"post": "create"}), name="v0-upload-files"),
    *(
        re_path(
            rf"{_ONE}/{address}$",
            V0WorkspaceViewSet.as_view({"get": action}),
            name=f"v0-{address.replace('/', '-')}",
        )
        for address, action in (
            ("config", "config"),
            ("microagents", "microagents"),
            ("web-hosts", "web_hosts"),
            ("vscode-url", "editor"),
            ("list-files", "list_files"),
            ("select-file", "select_file"),
            ("zip-directory", "zip_directory"),
            ("git/changes", "changes"),
            ("git/diff", "diff"),
        )
    ),
    path(
        "microagent-management/conversations",
        MicroagentConversationViewSet.as_view({"get": "list"}),
        name="v0-microagent-conversations",
    ),
    path("options/config", OptionViewSet.as_view({"get": "config"}), name="v0-options-config"),
    path("options/models", OptionViewSet.as_view({"get": "models"}), name="v0-options-models"),
    path("options/agents", OptionViewSet.as_view({"get": "agents"}), name="v0-options-agents"),
    path(
        "options/security-analyzers",
        OptionViewSet.as_view({"get": "security_analyzers"}),
        name="v0-options-security-analyzers",
    ),
    path("reset-settings", V0SettingsViewSet.as_view({"post": "reset"}), name="v0-reset-settings"),
    path("secrets", SecretViewSet.as_view({"get": "list", "post": "create"}), name="v0-secrets"),
    re_path(
        r"^secrets/(?P<secret_id>[\s\S]+)\Z",
        SecretViewSet.as_view({"put": "update", "delete": "destroy"}),
        name="v0-secret",
    ),
    path("add-git-providers", GitProviderViewSet.as_view({"post": "add"}), name="v0-add-git-providers"),
    path(
        "unset-provider-tokens",
        GitProviderViewSet.as_view({"post": "unset"}),
        name="v0-unset-provider-tokens",
    ),
    path("user/info", GitUserViewSet.as_view({"get": "retrieve"}), name="v0-user"),
    path("user/installations", GitUserViewSet.as_view({"get": "installations"}), name="v0-installations"),
    path("user/repositories", RepositoryViewSet.as_view({"get": "page"}), name="v0-repositories"),
    path(
        "user/search/repositories", RepositoryViewSet.as_view({"get": "search"}), name="v0-repository-search"
    ),
    path(
        "user/search/branches", RepositoryViewSet.as_view({"get": "search_branches"}), name="v0-branch-search"
    ),
    path(
        "user/suggested-tasks", GitUserViewSet.as_view({"get": "suggested_tasks"}), name="v0-suggested-tasks"
    ),
    path("user/repository/branches", RepositoryViewSet.as_view({"get": "branches"}), name="v0-branches"),
    re_path(
        rf"{_REPOSITORY}/microagents/content$",
        RepositoryViewSet.as_view({"get": "microagent"}),
        name="v0-repository-microagent",
    ),
    re_path(
        rf"{_REPOSITORY}/microagents$",
        RepositoryViewSet.as_view({"get": "microagents"}),
        name="v0-repository-microagents",
    ),
]
