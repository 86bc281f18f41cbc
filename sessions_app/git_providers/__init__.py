"""Where a user's repositories are: GitHub, GitLab, Bitbucket and Azure DevOps, asked over HTTP."""
