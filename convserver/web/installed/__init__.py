"""The pages as an app of the device: its manifest, its service worker, its page without a server."""
