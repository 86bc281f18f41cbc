"""Tasks that a git provider's state suggests, and the agent's instructions (spec V0 §1.1)."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, field_validator

from convserver.api.openhands.text import StorableText
from sessions_app.git_providers.base import ProviderType


class TaskType(StrEnum):
    """The kinds of tasks."""

    MERGE_CONFLICTS = "MERGE_CONFLICTS"
    FAILING_CHECKS = "FAILING_CHECKS"
    UNRESOLVED_COMMENTS = "UNRESOLVED_COMMENTS"
    OPEN_ISSUE = "OPEN_ISSUE"
    OPEN_PR = "OPEN_PR"
    CREATE_MICROAGENT = "CREATE_MICROAGENT"


_PROMPTS = {
    TaskType.MERGE_CONFLICTS: (
        "The branch of {request} #{number} in {repo} conflicts with the branch that it is to be merged "
        "into. Read the {request} first, with the {provider} API and the token in {token}, so that you "
        "know what it is for. Then merge the target branch into it, resolve every conflict so that the "
        "intent of both sides is kept, run the tests, and push to the same branch. Do not open another "
        "{request}."
    ),
    TaskType.FAILING_CHECKS: (
        "Checks of {request} #{number} in {repo} fail. Find out with the {provider} API and the token in "
        "{token} which ones and why, reproduce each failure locally where that is possible, mend its "
        "cause and not the check, and push to the same branch. Go on until all checks pass. Do not open "
        "another {request}."
    ),
    TaskType.UNRESOLVED_COMMENTS: (
        "Reviewers of {request} #{number} in {repo} have left comments that nobody has settled. Read them "
        "with the {provider} API and the token in {token}. Change the code where a comment is right, "
        "answer where you disagree or need to know more, and push to the same branch. Do not open another "
        "{request}."
    ),
    TaskType.OPEN_ISSUE: (
        "Work on issue #{number} of {repo}. Read it and its comments with the {provider} API and the "
        "token in {token}, find the cause in the code, mend it on a new branch with a test that fails "
        "without the change, and open a draft {request} that names the issue."
    ),
}
_PROVIDER_NAMES = {
    ProviderType.GITHUB: ("GitHub", "pull request", "GITHUB_TOKEN"),
    ProviderType.GITLAB: ("GitLab", "merge request", "GITLAB_TOKEN"),
    ProviderType.BITBUCKET: ("Bitbucket", "pull request", "BITBUCKET_TOKEN"),
    ProviderType.AZURE_DEVOPS: ("Azure DevOps", "pull request", "AZURE_DEVOPS_TOKEN"),
}


class SuggestedTask(BaseModel):
    """A task that the user chose from the suggestions."""

    git_provider: ProviderType
    task_type: TaskType
    repo: StorableText
    issue_number: int
    title: StorableText

    @field_validator("git_provider")
    @classmethod
    def _has_words(cls, provider: ProviderType) -> ProviderType:
        # A 422 here, where the reference fails with a 500 (spec V0 §7.5, A7).
        if provider not in _PROVIDER_NAMES:
            raise ValueError(f"there are no tasks for {provider.value}")
        return provider

    @field_validator("task_type")
    @classmethod
    def _has_prompt(cls, task_type: TaskType) -> TaskType:
        if task_type not in _PROMPTS:
            raise ValueError(f"{task_type.value} is no task that an agent can be told to do")
        return task_type

    def prompt(self) -> str:
        """Return the agent's instructions, in the provider's own terms."""
        provider, request, token = _PROVIDER_NAMES[self.git_provider]
        return _PROMPTS[self.task_type].format(
            request=request, number=self.issue_number, repo=self.repo, provider=provider, token=token
        )
