"""The files of a workspace as they were at earlier events, in a repository that only the server uses."""
