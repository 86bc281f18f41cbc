"""What a model reads of the repository in its workspace: its clone, its skills, its setup."""
