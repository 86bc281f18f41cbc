"""The pages as people use them: Chromium, and a server in a process of its own."""
