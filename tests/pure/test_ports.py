"""Ports for servers of tests: two that are about to start never get the same one."""

from __future__ import annotations

from tests.support.servers.ports import free_port


def test_a_port_that_was_given_lately_is_not_given_again_though_nobody_listens_there_yet() -> None:
    given = [free_port() for _ in range(300)]
    assert len(set(given)) == len(given)
