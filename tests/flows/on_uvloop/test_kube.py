# ruff: noqa: F401 - tests are collected, and fixtures found, by their names
"""What of the Kubernetes client depends on the event loop: TLS, proxies, connections that break, streams."""

import asyncio

from tests.flows.kube.conftest import client, namespace, through
from tests.flows.kube.test_client import (
    test_a_large_object_goes_both_ways,
    test_list_gives_all_pages_at_one_version,
    test_the_next_page_is_asked_for_before_this_one_is_complete,
)
from tests.flows.kube.test_informer import (
    test_a_connection_that_ends_within_a_line_is_resumed,
    test_a_connection_that_falls_silent_is_given_up,
    test_a_refused_reconnect_is_tried_again,
    test_a_store_follows_the_server,
)
from tests.flows.kube.test_stream import test_a_command_in_a_pod_that_was_not_placed
from tests.flows.kube.test_transport import (
    test_a_connection_that_broke_while_it_rested_is_replaced_for_reading_only,
    test_a_renewed_certificate_is_shown_on_new_connections,
    test_a_server_of_another_authority_is_not_trusted,
    test_an_answer_that_comes_twice_is_taken_once,
    test_no_answer_is_unreachable,
    test_requests_and_watches_go_through_a_proxy,
)


async def test_this_is_uvloop() -> None:
    assert type(asyncio.get_running_loop()).__module__ == "uvloop"
