"""What real clients of EventMesh, from 1.2.0 to 1.12.0, were seen to pass or to fail against the real server of their
age, and for each the tests that show that VibeMQ passes it.

`ages` has a test for each of the three dialects of TCP; `java` and `http java` are the real SDK.
"""

import pytest

from tests.named_tests import assert_runs, functions_of

AGES = "integration/test_eventmesh_ages.py::"
JAVA = "interop/test_eventmesh_java.py::"
HTTP_JAVA = "interop/test_eventmesh_http_java.py::"
TCP = "integration/test_eventmesh_tcp.py::"
HTTP = "integration/test_eventmesh_http.py::"
PUSH = "integration/test_eventmesh_push.py::"
LIFE = "integration/test_eventmesh_http_life.py::"

ROWS: dict[str, tuple[str, ...]] = {
    # What the real server passes, too.
    "publish, acknowledgement, delivery": (
        AGES + "test_messages_of_a_group_come_in_order",
        TCP + "test_recorded_clients_of_every_age",
        TCP + "test_pipelined_publishes_are_acknowledged_once_each",
        JAVA + "test_publish_and_push_in_order",
    ),
    "groups": (
        AGES + "test_each_group_gets_each_message_with_its_properties",
        TCP + "test_groups_of_all_ages",
        JAVA + "test_groups_and_broadcasting",
    ),
    "properties": (
        AGES + "test_each_group_gets_each_message_with_its_properties",
        TCP + "test_events_and_messages_in_the_form_that_a_session_shows",
        JAVA + "test_both_forms_on_one_topic_with_native",
    ),
    "unsubscribe": (
        AGES + "test_who_has_unsubscribed_gets_nothing_more",
        JAVA + "test_unsubscribed_members_get_nothing_more",
    ),
    "a request whose answer is not waited for (asyncRR)": (
        JAVA + "test_answers_that_are_not_waited_for_and_that_never_come",
    ),
    "a request that nobody answers": (
        TCP + "test_a_request_that_nobody_answers",
        PUSH + "test_a_request_that_nobody_answers",
        JAVA + "test_answers_that_are_not_waited_for_and_that_never_come",
    ),
    "HTTP: pushes of what clients of each age publish": (
        HTTP + "test_recorded_requests_of_the_java_client",
        HTTP + "test_clients_of_the_first_age",
        HTTP_JAVA + "test_publish_push_heartbeat_unsubscribe_and_a_kill",
    ),
    "HTTP: retries": (
        PUSH + "test_what_answers_mean",
        PUSH + "test_who_never_takes_a_message_finds_it_in_the_dlq",
    ),
    "HTTP: groups": (PUSH + "test_two_urls_of_a_group_share_and_two_groups_get_all",),
    "HTTP: unsubscribe": (
        PUSH + "test_two_urls_of_a_group_share_and_two_groups_get_all",
        HTTP_JAVA + "test_publish_push_heartbeat_unsubscribe_and_a_kill",
    ),
    # What it fails, for clients of some ages or for all.
    "CLUSTERING: 50 messages in order": (
        AGES + "test_messages_of_a_group_come_in_order",
        JAVA + "test_publish_and_push_in_order",
    ),
    "BROADCASTING to all members": (
        AGES + "test_broadcasts_reach_all_members_of_a_group",
        JAVA + "test_groups_and_broadcasting",
    ),
    "request and reply": (
        AGES + "test_requests_are_answered",
        TCP + "test_replies_find_their_requests",
        JAVA + "test_request_and_reply",
    ),
    "a second topic after LISTEN": (
        AGES + "test_a_topic_that_is_added_after_listen_is_served",
        JAVA + "test_a_topic_that_is_added_after_listen_and_a_text_of_64_kib",
    ),
    "a slow consumer, 250 ms for each message": (
        AGES + "test_a_slow_reader_gets_all_and_each_once",
        JAVA + "test_slow_members_get_all_though_one_of_them_leaves",
    ),
    "messages of a member that leaves go to another": (
        AGES + "test_what_a_leaving_member_has_not_acknowledged_goes_to_another",
        JAVA + "test_slow_members_get_all_though_one_of_them_leaves",
        JAVA + "test_a_killed_member_leaves_its_messages_to_another",
    ),
    "a text of 64 KiB": (
        AGES + "test_a_text_of_64_kib_is_taken",
        JAVA + "test_a_topic_that_is_added_after_listen_and_a_text_of_64_kib",
    ),
    # Clients of messages do not reconnect: that is the SDK's.
    "reconnection after a restart": (
        JAVA + "test_messages_survive_a_killed_broker",
        JAVA + "test_a_subscriber_of_events_comes_back_by_itself",
    ),
    "HTTP: a text that is not ASCII": (HTTP_JAVA + "test_publish_push_heartbeat_unsubscribe_and_a_kill",),
    "HTTP: two URLs of one group share": (
        PUSH + "test_two_urls_of_a_group_share_and_two_groups_get_all",
        HTTP_JAVA + "test_clients_of_both_doors_understand_each_other",
    ),
    # The SDK cannot read the answer, so that a client of our own asks.
    "HTTP: a request to a replier of TCP": (HTTP_JAVA + "test_clients_of_both_doors_understand_each_other",),
    "messages from TCP to HTTP": (
        LIFE + "test_tcp_and_http_on_one_topic",
        HTTP_JAVA + "test_clients_of_both_doors_understand_each_other",
    ),
    "messages from HTTP to TCP": (
        LIFE + "test_tcp_and_http_on_one_topic",
        HTTP_JAVA + "test_clients_of_both_doors_understand_each_other",
    ),
    "CloudEvents from HTTP to TCP": (
        LIFE + "test_tcp_and_http_on_one_topic",
        HTTP_JAVA + "test_clients_of_both_doors_understand_each_other",
    ),
}
"""Row -> tests."""


@pytest.mark.parametrize("row", ROWS)
def test_each_row_has_tests_that_run(row: str) -> None:
    assert ROWS[row], "no test shows it"
    for test in ROWS[row]:
        assert_runs(test, long=True)


def test_every_test_of_the_real_sdk_and_of_the_dialects_stands_in_a_row() -> None:
    """But for what no row is about."""
    others = {
        JAVA + "test_native_requester_and_java_replier",
        JAVA + "test_java_requester_and_native_replier",
        JAVA + "test_the_program_of_the_documentation",
        JAVA + "test_what_others_have_written_ends_no_connection",
    }
    files = [file.removesuffix("::") for file in (AGES, JAVA, HTTP_JAVA)]
    here = {f"{file}::{name}" for file in files for name in functions_of(file) if name.startswith("test_")}
    assert here - others == {test for tests in ROWS.values() for test in tests if test.partition("::")[0] in files}
