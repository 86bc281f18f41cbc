"""Where git finds a repository of each provider, and the user by which its token opens it."""

from __future__ import annotations

from typing import cast

import pytest

from sessions_app.git_providers.base import GitRepository, ProviderToken, ProviderType
from sessions_app.git_providers.client import PROVIDERS

REMOTES = [
    ("github", None, "t", "acme/site", "https://github.com/acme/site.git", "x-access-token"),
    ("github", "api.github.com", "t", "acme/site", "https://github.com/acme/site.git", "x-access-token"),
    ("github", "api.git.acme.org", "t", "a/b", "https://api.git.acme.org/a/b.git", "x-access-token"),
    ("gitlab", None, "t", "acme/web/site", "https://gitlab.com/acme/web/site.git", "oauth2"),
    ("bitbucket", None, "t", "acme/site", "https://bitbucket.org/acme/site.git", "x-token-auth"),
    ("bitbucket", None, "alice:t", "acme/site", "https://bitbucket.org/acme/site.git", "alice"),
    ("bitbucket", None, "a@b.org:t", "a/b", "https://bitbucket.org/a/b.git", "x-bitbucket-api-token-auth"),
    (
        "azure_devops",
        "dev.azure.com/acme",
        "t",
        "acme/web x/s",
        "https://dev.azure.com/acme/web%20x/_git/s",
        "token",
    ),
]


def test_each_provider_names_the_address_without_the_token(subtests: pytest.Subtests) -> None:
    for provider, host, token, name, url, user in REMOTES:
        with subtests.test(provider=provider, host=host, token=token):
            asked = PROVIDERS[ProviderType(provider)](ProviderToken(token=token, host=host))
            found = asked.remote(cast(GitRepository, {"full_name": name, "main_branch": "main"}))
            assert (found.url, found.user, found.password, found.main_branch) == (url, user, "t", "main")
            assert "password" not in repr(found)
