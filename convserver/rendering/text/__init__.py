"""Text as HTML: Markdown, code, excerpts, and answers that are still coming."""
