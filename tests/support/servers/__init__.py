"""Servers, proxies and programs that tests start beside the one under test."""
