"""The addresses of the V0 REST door that no other wire has; none ends with a slash.

Those that the V1 wire has as well are in `v1/shared_origin`.
"""

from __future__ import annotations

from django.urls import path, re_path

from convserver.api.v0.conversations import ConversationViewSet
from convserver.api.v0.events import MessageView, TrajectoryView
from convserver.api.v0.feedback import FeedbackView
from convserver.api.v0.git.microagents import MicroagentManagementView
from convserver.api.v0.git.tokens import GitProvidersView, UnsetProvidersView
from convserver.api.v0.git.user import (
    BranchesView,
    BranchSearchView,
    GitUserView,
    InstallationsView,
    RepositoriesView,
    RepositoryMicroagentsView,
    RepositoryMicroagentView,
    RepositorySearchView,
    SuggestedTasksView,
)
from convserver.api.v0.learning import ExperimentView, RememberPromptView
from convserver.api.v0.settings.options import (
    AgentsView,
    ModelsView,
    SecurityAnalyzersView,
    ServerConfigView,
)
from convserver.api.v0.settings.secrets import SecretsView, SecretView
from convserver.api.v0.settings.views import ResetSettingsView, SettingsView
from convserver.api.v0.uploads import UploadView
from convserver.api.v0.workspace import (
    ArchiveView,
    ChangesView,
    ConfigView,
    DiffView,
    EditorView,
    FileListView,
    FileView,
    MicroagentsView,
    WebHostsView,
)

_ONE = r"^conversations/(?P<conversation_id>[^/]+)"
_REPOSITORY = r"^user/repository/(?P<repository_name>[\s\S]+)"

urlpatterns = [
    re_path(rf"{_ONE}/start$", ConversationViewSet.as_view({"post": "start"}), name="v0-start"),
    re_path(rf"{_ONE}/stop$", ConversationViewSet.as_view({"post": "stop"}), name="v0-stop"),
    re_path(rf"{_ONE}/exp-config$", ExperimentView.as_view(), name="v0-exp-config"),
    re_path(rf"{_ONE}/remember-prompt$", RememberPromptView.as_view(), name="v0-remember-prompt"),
    re_path(rf"{_ONE}/message$", MessageView.as_view(), name="v0-message"),
    re_path(rf"{_ONE}/trajectory$", TrajectoryView.as_view(), name="v0-trajectory"),
    re_path(rf"{_ONE}/config$", ConfigView.as_view(), name="v0-config"),
    re_path(rf"{_ONE}/microagents$", MicroagentsView.as_view(), name="v0-microagents"),
    re_path(rf"{_ONE}/submit-feedback$", FeedbackView.as_view(), name="v0-submit-feedback"),
    re_path(rf"{_ONE}/upload-files$", UploadView.as_view(), name="v0-upload-files"),
    re_path(rf"{_ONE}/web-hosts$", WebHostsView.as_view(), name="v0-web-hosts"),
    re_path(rf"{_ONE}/vscode-url$", EditorView.as_view(), name="v0-vscode-url"),
    re_path(rf"{_ONE}/list-files$", FileListView.as_view(), name="v0-list-files"),
    re_path(rf"{_ONE}/select-file$", FileView.as_view(), name="v0-select-file"),
    re_path(rf"{_ONE}/zip-directory$", ArchiveView.as_view(), name="v0-zip-directory"),
    re_path(rf"{_ONE}/git/changes$", ChangesView.as_view(), name="v0-git-changes"),
    re_path(rf"{_ONE}/git/diff$", DiffView.as_view(), name="v0-git-diff"),
    path(
        "microagent-management/conversations",
        MicroagentManagementView.as_view(),
        name="v0-microagent-conversations",
    ),
    path("options/config", ServerConfigView.as_view(), name="v0-options-config"),
    path("options/models", ModelsView.as_view(), name="v0-options-models"),
    path("options/agents", AgentsView.as_view(), name="v0-options-agents"),
    path("options/security-analyzers", SecurityAnalyzersView.as_view(), name="v0-options-security-analyzers"),
    path("settings", SettingsView.as_view(), name="v0-settings"),
    path("reset-settings", ResetSettingsView.as_view(), name="v0-reset-settings"),
    path("secrets", SecretsView.as_view(), name="v0-secrets"),
    re_path(r"^secrets/(?P<secret_id>[\s\S]+)\Z", SecretView.as_view(), name="v0-secret"),
    path("add-git-providers", GitProvidersView.as_view(), name="v0-add-git-providers"),
    path("unset-provider-tokens", UnsetProvidersView.as_view(), name="v0-unset-provider-tokens"),
    path("user/info", GitUserView.as_view(), name="v0-user"),
    path("user/installations", InstallationsView.as_view(), name="v0-installations"),
    path("user/repositories", RepositoriesView.as_view(), name="v0-repositories"),
    path("user/search/repositories", RepositorySearchView.as_view(), name="v0-repository-search"),
    path("user/search/branches", BranchSearchView.as_view(), name="v0-branch-search"),
    path("user/suggested-tasks", SuggestedTasksView.as_view(), name="v0-suggested-tasks"),
    path("user/repository/branches", BranchesView.as_view(), name="v0-branches"),
    re_path(
        rf"{_REPOSITORY}/microagents/content$",
        RepositoryMicroagentView.as_view(),
        name="v0-repository-microagent",
    ),
    re_path(
        rf"{_REPOSITORY}/microagents$",
        RepositoryMicroagentsView.as_view(),
        name="v0-repository-microagents",
    ),
]
