"""What git says of a workspace. It runs in a sandbox: a repository runs programs by its configuration."""
