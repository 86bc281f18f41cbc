"""A user's repositories at GitHub, GitLab, Bitbucket and Azure DevOps, over HTTP."""
