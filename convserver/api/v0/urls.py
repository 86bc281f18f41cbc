"""The addresses of the V0 REST door that no other wire has; none ends with a slash.

Those that the V1 wire has as well are in `v1/shared_origin`.
"""

from __future__ import annotations

from django.urls import re_path

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
    V0ConversationViewSet.route("v0-start", rf"{_ONE}/start$", post="start"),
    V0ConversationViewSet.route("v0-stop", rf"{_ONE}/stop$", post="stop"),
    re_path(rf"{_ONE}/exp-config$", ExperimentView.as_view(), name="v0-exp-config"),
    re_path(rf"{_ONE}/remember-prompt$", RememberPromptView.as_view(), name="v0-remember-prompt"),
    V0EventViewSet.route("v0-message", rf"{_ONE}/message$", post="create_message"),
    V0EventViewSet.route("v0-trajectory", rf"{_ONE}/trajectory$", get="trajectory"),
    FeedbackViewSet.route("v0-submit-feedback", rf"{_ONE}/submit-feedback$", post="create"),
    UploadViewSet.route("v0-upload-files", rf"{_ONE}/upload-files$", post="create"),
    *(
        V0WorkspaceViewSet.route(f"v0-{address.replace('/', '-')}", rf"{_ONE}/{address}$", get=action)
        for address, action in (
            ("config", "config"),
            ("microagents", "microagents"),
            ("web-hosts", "web_hosts"),
            ("vscode-url", "editor"),
            ("list-files", "list_files"),
            ("select-file", "select_file"),
            ("zip-directory", "zip_directory"),
        )
    ),
    MicroagentConversationViewSet.route(
        "v0-microagent-conversations", "microagent-management/conversations", get="list"
    ),
    OptionViewSet.route("v0-options-config", "options/config", get="config"),
    OptionViewSet.route("v0-options-models", "options/models", get="models"),
    OptionViewSet.route("v0-options-agents", "options/agents", get="agents"),
    OptionViewSet.route(
        "v0-options-security-analyzers", "options/security-analyzers", get="security_analyzers"
    ),
    V0SettingsViewSet.route("v0-reset-settings", "reset-settings", post="reset"),
    SecretViewSet.route("v0-secrets", "secrets", get="list", post="create"),
    SecretViewSet.route("v0-secret", r"^secrets/(?P<secret_id>[\s\S]+)\Z", put="update", delete="destroy"),
    GitProviderViewSet.route("v0-add-git-providers", "add-git-providers", post="add"),
    GitProviderViewSet.route("v0-unset-provider-tokens", "unset-provider-tokens", post="unset"),
    GitUserViewSet.route("v0-user", "user/info", get="retrieve"),
    GitUserViewSet.route("v0-installations", "user/installations", get="installations"),
    RepositoryViewSet.route("v0-repositories", "user/repositories", get="page"),
    RepositoryViewSet.route("v0-repository-search", "user/search/repositories", get="search"),
    RepositoryViewSet.route("v0-branch-search", "user/search/branches", get="search_branches"),
    GitUserViewSet.route("v0-suggested-tasks", "user/suggested-tasks", get="suggested_tasks"),
    RepositoryViewSet.route("v0-branches", "user/repository/branches", get="branches"),
    RepositoryViewSet.route(
        "v0-repository-microagent", rf"{_REPOSITORY}/microagents/content$", get="microagent"
    ),
    RepositoryViewSet.route("v0-repository-microagents", rf"{_REPOSITORY}/microagents$", get="microagents"),
]
