"""The rules of security that VibeMQ keeps, and for each the tests that show it, where an attacker meets the broker.

`test_rows.py` checks that every row has tests and that each of them exists. What a row does not keep is said in `but`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    rule: str
    tests: tuple[str, ...]
    """`file::test`, below `tests/`."""
    measured: tuple[str, ...] = ()
    """Modules that measure it, run by hand."""
    but: str = ""
    """What is not kept, and what stands in its place."""


ROWS: dict[str, Row] = {
    "S1": Row(
        "Before a login: small plain frames, little memory, a deadline, and a bounded number of connections.",
        (
            "security/test_strangers.py::test_strangers_cost_little_memory",
            "security/test_strangers.py::test_a_stranger_with_a_bomb_is_hung_up_on",
            "integration/test_server_broker.py::test_a_silent_stranger_is_sent_away",
            "integration/test_http_limits.py::test_silent_connections_take_no_probe_away",
            "unit/protocols/native/test_handshake.py::test_before_connect_frames_are_small_and_plain",
            "unit/protocols/native/test_handshake.py::"
            "test_a_stranger_cannot_fill_memory_while_its_credentials_are_checked",
            "unit/protocols/eventmesh/tcp/test_tcp_session.py::test_before_the_login_frames_are_small",
            "unit/protocols/eventmesh/tcp/test_tcp_session.py::"
            "test_a_stranger_cannot_fill_memory_while_its_credentials_are_checked",
            "unit/protocols/blazingmq/test_handshake.py::test_before_the_login_events_are_small",
            "unit/protocols/blazingmq/test_handshake.py::test_before_the_login_nothing_is_decompressed",
            "unit/protocols/blazingmq/test_handshake.py::"
            "test_a_stranger_cannot_fill_memory_while_its_credentials_are_checked",
            "unit/server/access/test_newcomers.py::test_the_address_with_the_most_makes_room_for_one_with_few",
            "unit/proof/test_fuzz_sessions.py::test_decompression_before_the_login_is_found",
        ),
        measured=("tests/proof/idle.py",),
    ),
    "S2": Row(
        "A length is checked before it is read, and decompression has a limit.",
        (
            "integration/test_bad_peers.py::test_garbage_and_bombs_disturb_nobody",
            "unit/protocols/native/test_native_codec.py::test_bombs_cost_no_more_than_the_limit",
            "unit/protocols/native/test_native_codec.py::test_a_stream_of_bombs_runs_out_of_credit",
            "integration/test_omq_broker.py::test_endless_input_ends_with_an_error",
            "unit/protocols/eventmesh/tcp/test_tcp_frames.py::test_nothing_is_kept_for_a_length_alone",
        ),
    ),
    "S3": Row(
        "Every command of every protocol is admitted by one table, refused by default, and no refusal tells whether a "
        "queue exists.",
        (
            "integration/test_http_matrix.py::test_every_endpoint_for_every_user",
            "integration/test_http_matrix.py::test_foreign_and_missing_queues_cannot_be_told_apart",
            "integration/test_permissions.py::test_every_operation",
            "integration/test_permissions.py::test_every_command",
            "integration/test_permissions.py::"
            "test_no_operation_reaches_what_belongs_to_others_or_tells_whether_it_is_there",
            "integration/test_permissions.py::test_no_command_reaches_what_belongs_to_others_or_tells_whether_it_is_there",
            "integration/test_permissions.py::test_a_topic_needs_subscribe",
            "integration/test_permissions.py::test_no_command_passes_after_a_revocation",
            "integration/test_permissions.py::test_no_topic_is_served_after_a_revocation",
            "integration/test_job_rights.py::test_a_job_needs_what_its_work_needs",
            "integration/test_job_exports.py::test_a_file_is_for_those_who_may_see_the_letters",
            "integration/test_job_rights.py::test_a_job_ends_with_the_rights_of_its_maker",
            "integration/test_job_rights.py::test_who_has_gone_before_a_restart_has_no_job_after_it",
            "unit/auth/test_policy.py::test_the_servers_own_words_are_nobodys",
            "unit/auth/test_policy.py::test_nobody_has_a_right_to_a_queue_of_the_brokers_own",
            "integration/test_own_queues.py::test_no_protocol_reaches_a_queue_of_the_brokers_own",
            "unit/operations/test_registry.py::test_an_operation_without_a_row_cannot_be_declared",
        ),
    ),
    "S4": Row(
        "Nothing is accepted before the login, and a second login takes no rights by force.",
        (
            "security/test_http_api.py::test_a_login_that_ends_while_the_body_comes_has_nothing_done",
            "security/test_http_api.py::test_whoever_changes_the_own_password_stays",
            "security/test_http_api.py::test_an_old_password_opens_nothing_once_it_was_changed",
            "security/test_http_api.py::test_a_stream_with_a_leaked_password_ends_when_the_user_changes_it",
            "unit/operations/test_users.py::test_who_has_lost_the_right_while_the_request_waited_has_nothing_changed",
            "security/test_http_api.py::test_log_out_everywhere",
            "security/test_http_api.py::test_a_cookie_is_no_second_chance",
            "security/test_http_api.py::test_a_token_of_the_pages_opens_the_api_of_a_broker_without_users",
            "integration/test_http_matrix.py::test_nobody_passes_without_a_login",
            "security/test_http_api.py::test_a_session_from_its_login_to_its_end",
            "security/test_http_api.py::test_a_session_ends_with_what_it_logged_in_with",
            "security/test_http_api.py::test_beyond_this_machine_an_open_broker_has_no_api",
            "security/test_strangers.py::test_no_frame_is_carried_out_before_the_login",
            "security/test_strangers.py::test_no_word_is_carried_out_before_connect",
            "security/test_strangers.py::test_a_second_login_that_fails_gives_nothing",
            "unit/protocols/eventmesh/tcp/test_tcp_session.py::test_before_the_login_nothing_is_carried_out",
            "unit/protocols/eventmesh/tcp/test_tcp_session.py::test_a_second_hello_gives_no_other_rights",
            "unit/protocols/blazingmq/test_handshake.py::test_before_the_login_nothing_is_carried_out",
            "unit/protocols/blazingmq/test_handshake.py::test_what_comes_behind_the_credentials_waits_for_their_check",
            "unit/protocols/blazingmq/test_handshake.py::test_a_second_login_gives_no_other_rights",
            "integration/test_ownership.py::test_a_second_connect_with_fewer_rights_ends_what_it_may_not",
            "unit/protocols/native/test_handshake.py::test_a_failed_second_connect_leaves_the_session_as_it_was",
        ),
    ),
    "S5": Row(
        "Passwords are argon2id, two are hashed at a time, guessing is slowed down by address and name, and an unknown "
        "user costs what a known one does.",
        (
            "security/test_http_api.py::test_many_logins_keep_nobody_waiting",
            "security/test_http_api.py::test_users_cannot_be_told_from_nobody",
            "security/test_logins.py::test_new_passwords_are_argon2id",
            "unit/server/access/test_guessing.py::test_at_most_ten_guesses_a_minute_from_one_address",
            "unit/server/access/test_guessing.py::test_a_name_under_attack_is_open_to_its_owner",
            "unit/server/access/test_authenticator.py::test_an_unknown_name_costs_one_check_as_a_known_one",
            "unit/server/access/test_authenticator.py::"
            "test_a_thousand_wrong_logins_a_second_cost_few_checks_and_the_owner_gets_in",
        ),
        measured=("bench/logins/timing.py", "bench/logins/__main__.py"),
    ),
    "S6": Row(
        "Names come from an allow-list of characters and never become paths.",
        (
            "security/test_names.py::test_no_name_becomes_a_path",
            "security/test_names.py::test_hostile_names_are_refused",
            "security/test_names.py::test_hostile_topics_are_refused",
            "unit/model/test_options.py::test_bad_names",
            "integration/test_cli_access.py::test_names_that_no_user_can_have",
        ),
        but="Letters and digits of every script are allowed in the names of queues, and names are compared exactly.",
    ),
    "S7": Row(
        "The HTTP port takes no ambiguous request, sends no header that opens it to other sites, and bounds headers "
        "and time. Its pages only read; its API changes something for nobody but its own origin and programs.",
        (
            "security/test_http_api.py::test_the_api_of_a_broker_that_stops_takes_no_changes",
            "security/test_http_api.py::test_with_users_any_name_will_do_unless_the_settings_narrow_it",
            "security/test_http_api.py::test_an_open_broker_answers_to_its_own_names_only",
            "security/test_http_api.py::test_no_page_of_another_site_changes_anything",
            "security/test_http_api.py::test_a_form_is_no_json",
            "security/test_http_api.py::test_headers_of_every_answer",
            "security/test_http_api.py::test_no_header_is_injected",
            "security/test_http_api.py::test_ambiguous_requests_end_the_connection",
            "unit/web/api/guardrails/test_origin.py::test_refused",
            "security/test_http.py::test_ambiguous_requests_are_refused",
            "security/test_http.py::test_nothing_is_changed_over_http",
            "security/test_http.py::test_every_answer_forbids_other_sites",
            "security/test_http.py::test_a_name_that_is_not_the_brokers_reads_nothing",
            "unit/web/test_hosts.py::test_a_loopback_listener_without_a_token_answers_to_names_of_the_machine",
            "integration/test_http_limits.py::test_a_header_has_a_deadline_that_single_bytes_do_not_move",
            "integration/test_server_process.py::test_a_token_protects_everything_but_the_probes",
        ),
        but="On a listener of the network the header Host is checked only where http.allowed_hosts is set: a page that "
        "rebinds its name to the broker reads metrics there if http.token is not set.",
    ),
    "S8": Row(
        "What comes from peers is never shown as markup.",
        (
            "security/test_http.py::test_no_answer_is_a_page",
            "unit/server/monitoring/test_prometheus.py::test_a_name_is_escaped",
            "unit/cli/test_output.py::test_names_with_brackets_are_no_markup",
            "unit/server/logs/test_formats.py::test_hostile_values_stay_within_their_record",
            "unit/web/console/test_static_rules.py::test_no_file_has_what_is_forbidden",
            "unit/web/console/test_site.py::test_every_page_is_there_with_its_module_and_the_strictest_policy",
            "browser/test_every_page.py::test_hostile_texts_are_text_and_every_page_is_accessible_and_fits",
            "browser/test_every_page.py::test_no_text_becomes_markup_whoever_tries",
        ),
        but="The tests in a browser are skipped on a machine without Chromium.",
    ),
    "S9": Row(
        "The broker opens no connection to an address that a peer names, but to URLs of subscribers that have passed "
        "its guard.",
        (
            "security/test_source.py::test_the_broker_connects_to_nobody",
            "security/test_outbound_calls.py::test_the_text_alone_is_refused",
            "security/test_outbound_calls.py::test_addresses_that_are_not_public_are_refused_plainly_and_behind_names",
            "security/test_outbound_calls.py::test_public_addresses_pass",
            "security/test_outbound_calls.py::test_localhost_by_its_name_is_refused",
            "security/test_outbound_calls.py::test_only_the_listed_network_is_opened",
            "security/test_outbound_calls.py::test_a_name_that_changes_between_check_and_call_is_refused",
            "security/test_outbound_calls.py::test_the_checked_address_is_the_one_that_is_called_and_the_name_is_looked_up_once",
            "security/test_outbound_calls.py::test_redirects_inward_are_answers_and_nothing_more",
            "security/test_outbound_calls.py::test_proxies_of_the_environment_are_not_asked",
            "security/test_outbound_calls.py::test_a_header_cannot_smuggle_another_one",
            "security/test_outbound_calls.py::test_answers_that_are_none_fail_and_end_the_connection",
            "security/test_outbound_calls.py::test_a_server_that_says_nothing_is_given_up",
            "security/test_outbound_calls.py::test_the_certificate_counts_and_is_checked_against_the_name",
            "security/test_outbound_calls.py::test_what_is_called_is_what_was_read",
            "integration/test_eventmesh_push.py::test_the_guard_speaks_at_subscribe",
            "security/test_outbound_calls.py::test_an_endless_answer_fails_and_is_read_in_turns",
            "security/test_outbound_calls.py::test_calls_that_begin_together_read_the_system_s_certificates_once",
            "security/test_outbound_calls.py::test_certificates_that_could_not_be_read_are_read_again",
            "security/test_outbound_calls.py::test_some_interim_answers_may_come_before_the_answer",
            "security/test_outbound_calls.py::test_kept_connections_to_very_many_servers_are_few",
            "security/test_outbound_calls.py::test_names_that_hang_hold_up_no_other_users_calls",
        ),
    ),
    "S10": Row(
        "TLS 1.2 or newer, certificates of both sides checked, files reloaded while it runs, stalled handshakes ended.",
        (
            "unit/server/net/test_acceptor.py::test_silent_handshakes_of_one_address_take_no_place_of_others",
            "security/test_http_api.py::test_only_a_trusted_proxy_makes_it_secure",
            "security/test_http_api.py::test_behind_tls_the_cookie_is_secure",
            "security/test_tls_attacks.py::test_an_old_version_of_tls_is_refused",
            "security/test_tls_attacks.py::test_a_handshake_that_stalls_is_ended",
            "security/test_tls_attacks.py::test_an_expired_certificate_is_refused",
            "integration/test_tls.py::test_a_broker_that_asks_for_certificates",
            "integration/test_tls.py::test_a_certificate_that_is_not_accepted",
            "integration/test_tls.py::test_a_client_without_tls_on_a_tls_port",
            "integration/test_reload.py::test_a_renewed_certificate_is_shown_and_nobody_is_cut_off",
            "integration/test_certificate_logins.py::test_a_certificate_logs_its_user_in",
            "integration/test_certificate_logins.py::test_a_certificate_is_no_password",
        ),
    ),
    "S11": Row(
        "No secret stands in a log, an error, a metric or a representation of an object.",
        (
            "security/test_http_api.py::test_no_secret_is_told",
            "integration/test_audit.py::test_no_secret_is_in_any_log",
            "unit/server/access/test_audit.py::"
            "test_whole_tokens_in_the_place_of_names_are_written_without_their_secret",
            "unit/server/logs/test_formats.py::test_secrets_of_tokens_are_in_no_line",
            "security/test_secrets.py::test_no_object_shows_its_secrets",
            "security/test_secrets.py::test_no_answer_and_no_metric_holds_a_secret",
            "security/test_secrets.py::test_no_traceback_of_a_failed_login_holds_a_secret",
            "unit/auth/test_users.py::test_a_hash_that_cannot_be_checked_is_refused_without_repeating_it",
        ),
    ),
    "S12": Row(
        "Connections, logins and messages are limited by address and by connection, in bounded tables.",
        (
            "security/test_http_api.py::test_who_asks_too_often_waits_and_nobody_else_does",
            "security/test_http_api.py::test_silent_and_half_requests_keep_nobody_out",
            "security/test_http_api.py::test_guesses_count_whatever_the_door",
            "unit/server/access/test_limits.py::test_each_address_has_its_own_limit",
            "unit/auth/test_addresses.py::test_loopback_is_exempt_and_a_v6_network_counts_as_one_peer",
            "unit/server/access/test_limits.py::test_the_table_forgets_the_least_recently_seen",
            "unit/server/access/test_guessing.py::test_a_million_failures_are_one_wait_and_bounded_tables",
            "integration/test_server_broker.py::test_a_rate_limit_counts_operations_of_every_kind",
        ),
        measured=("bench/logins/__main__.py",),
    ),
    "S13": Row(
        "What is parsed is bounded in depth and size, and costs linear time.",
        (
            "unit/protocols/native/test_native_hot_path.py::test_depth_is_bounded",
            "unit/protocols/native/test_native_hot_path.py::test_header_limits_count_utf16_units",
            "unit/protocols/omq/test_omq_sexp.py::test_the_deepest_value_fits_and_one_level_more_does_not",
            "unit/protocols/omq/test_omq_sexp.py::test_cost_is_linear_when_bytes_come_one_by_one",
            "unit/auth/test_policy.py::test_no_pattern_makes_a_long_name_expensive",
        ),
        measured=("tests/proof/fuzz.py",),
    ),
    "S14": Row(
        "Nothing that a peer or a store holds is executed.",
        (
            "security/test_source.py::test_nothing_is_executed_that_was_read",
            "security/test_source.py::test_the_look_at_the_source_sees_what_it_is_for",
        ),
    ),
    "S15": Row(
        "Files of a data directory are their owner's alone, whatever the umask is; the image runs without privileges.",
        (
            "security/test_files.py::test_every_file_is_its_owners_alone",
            "unit/storage/local/test_modes.py::test_in_a_shared_folder_only_the_store_becomes_private",
            "docker/test_docker.py::test_it_runs_as_nobody_special_on_a_read_only_root",
        ),
    ),
    "S16": Row(
        "Few dependencies, all of them known and with a licence that allows their use.",
        ("security/test_dependencies.py::test_every_dependency_is_known",),
        but="Packages are not pinned by hash, and no list of known vulnerabilities is asked.",
    ),
    "S17": Row(
        "Who changed what, from where and with what result is in the audit log or the broker's log.",
        (
            "integration/test_audit.py::test_who_changed_what_from_where_and_what_became_of_it",
            "security/test_source.py::test_every_operation_that_changes_something_for_others_is_logged",
            "security/test_source.py::test_every_command_that_changes_or_removes_what_others_have_is_logged",
            "unit/server/access/test_audit.py::test_a_change_is_always_written",
            "unit/server/access/test_audit.py::test_a_record_is_small_whatever_its_arguments",
            "unit/server/net/test_operation_runner.py::"
            "test_what_users_change_of_themselves_without_any_right_is_limited",
            "integration/test_audit_doors.py::test_who_came_in_and_what_changed_by_every_door",
            "integration/test_audit_doors.py::"
            "test_a_file_that_cannot_be_written_alarms_and_strict_refuses_what_frees_no_space",
            "integration/test_blazingmq_users.py::test_only_what_a_client_has_changed_is_audited",
            "unit/server/access/test_audit_writer.py::test_a_full_disk_is_told_and_caught_up_with",
        ),
        but="What changes nothing is not recorded. A power cut may take the last second of the audit file.",
    ),
    "S18": Row(
        "No protocol has a way in without a login on a broker that asks for one.",
        (
            "security/test_strangers.py::test_no_protocol_lets_a_nameless_peer_in",
            "security/test_source.py::test_only_these_protocols_are_spoken",
            "integration/test_omq_broker.py::test_credentials_in_the_id",
            "integration/test_eventmesh_tcp.py::test_logins_and_permissions",
            "integration/test_blazingmq_users.py::test_who_sends_no_credentials_is_told_so",
            "integration/test_blazingmq_users.py::test_wrong_credentials_are_refused",
        ),
    ),
}

BAD_INPUT: dict[str, Row] = {
    "names": Row(
        "Names with control characters, too long, or of others.",
        (
            "security/test_names.py::test_hostile_names_are_refused",
            "integration/test_cli_access.py::test_names_that_no_user_can_have",
            "unit/server/access/test_audit.py::test_names_of_strangers_are_short_and_on_one_line",
        ),
    ),
    "passwords": Row(
        "Passwords of megabytes.",
        (
            "security/test_bad_users.py::test_a_password_of_megabytes_is_refused",
            "integration/test_cli_access.py::test_what_cannot_be_a_password_is_refused",
        ),
    ),
    "leases": Row(
        "What was fetched over HTTP is settled by who fetched it and nobody else, while it is held, and not after a "
        "restart of the broker.",
        (
            "integration/test_http_leases.py::test_a_lease_is_worth_nothing_to_others_nor_after_a_restart",
            "integration/test_http_leases.py::test_a_script_that_dies_lets_its_time_run_out",
            "unit/web/api/messages/test_leases.py::test_a_changed_one_is_refused",
        ),
    ),
    "the console": Row(
        "Its files are read by name from a table, so no path leads outside; it is closed where the API is; its log-in "
        "leads to its own pages alone; a link for one login works once, within a minute, on the broker's machine.",
        (
            "unit/web/console/test_site.py::test_nothing_but_pages_and_assets_is_served",
            "unit/web/console/test_site.py::"
            "test_a_broker_that_is_open_to_all_closes_its_console_where_its_api_is_closed",
            "unit/web/console/test_vendored.py::test_every_vendored_file_has_the_recorded_sum",
            "unit/web/api/guardrails/test_login_codes.py::test_a_code_is_worth_one_login",
            "unit/web/api/guardrails/test_login_codes.py::test_a_code_ends_after_a_minute",
            "browser/test_login.py::test_the_login_goes_to_pages_of_the_console_alone",
            "browser/test_login.py::test_the_command_line_opens_a_browser_that_is_logged_in_once",
        ),
    ),
    "bodies over HTTP": Row(
        "What is in messages is sent as JSON text or as a file that no browser runs, is opened within bounds, and is "
        "kept from whom http.show_bodies says. Nobody learns of queues that are not theirs from a stream.",
        (
            "integration/test_http_streams.py::test_bodies_are_files_that_nothing_runs_in",
            "integration/test_http_streams.py::test_packed_bodies_and_bombs",
            "integration/test_http_streams.py::test_what_is_in_messages_can_be_hidden",
            "integration/test_job_exports.py::test_http_gives_the_file_to_those_who_may_see_bodies",
            "integration/test_job_exports.py::test_a_download_ends_with_what_allowed_it",
            "integration/test_http_streams.py::test_each_sees_what_it_may",
            "integration/test_http_streams.py::test_a_stream_is_told_nothing_that_was_asked_for_with_other_rights",
            "integration/test_http_streams.py::test_a_stream_ends_with_its_session",
            "integration/test_looking_at_messages.py::test_a_bomb_is_opened_as_far_as_is_asked_for",
        ),
        but="A consumer gets its messages over HTTP whatever http.show_bodies says.",
    ),
    "messages over HTTP": Row(
        "Hostile messages, lines and settlements are refused one by one with a sentence, before reading them takes "
        "long; clients that read nothing are cut off.",
        (
            "integration/test_http_publishing.py::test_a_bad_line_is_named_and_the_others_are_confirmed",
            "integration/test_http_leases.py::test_settlements_that_are_no_good",
            "integration/test_http_streams.py::test_a_reader_that_reads_nothing_is_cut_off",
            "unit/web/api/messages/test_publishing.py::test_a_line_that_would_take_long_to_read_is_not_read",
        ),
    ),
    "patterns": Row(
        "Patterns that match everything by accident.",
        (
            "security/test_bad_users.py::test_no_pattern_matches_everything_by_accident",
            "security/test_bad_users.py::test_a_pattern_means_what_it_says",
            "unit/auth/test_policy.py::test_patterns_fit_as_their_regular_expressions_do",
        ),
    ),
    "hashes": Row(
        "Hashes with parameters that would cost a check its memory or its time.",
        (
            "security/test_bad_users.py::test_a_hash_that_is_a_bomb_is_refused",
            "unit/auth/test_users.py::test_a_hash_that_cannot_be_checked_is_refused_without_repeating_it",
        ),
    ),
    "operations": Row(
        "Operations and arguments that there are not.",
        ("security/test_bad_users.py::test_unknown_operations_and_arguments_are_answered",),
    ),
    "settings": Row(
        "Users of the settings, changed over the wire.",
        (
            "security/test_bad_users.py::test_users_of_the_settings_are_not_changed_over_the_wire",
            "integration/test_cli_access.py::test_users_of_the_settings_are_shown_and_not_changed",
        ),
    ),
    "old store": Row(
        "A store from before there were users.",
        ("unit/storage/test_migrate.py::test_a_kept_store_of_version_4_gets_room_for_users",),
    ),
    "tokens": Row(
        "Tokens of users who are gone.",
        ("security/test_bad_users.py::test_a_token_of_a_deleted_user_is_dead_for_a_later_one_too",),
    ),
    "clocks": Row(
        "A clock that jumps over an expiry.",
        ("unit/operations/test_tokens.py::test_a_clock_that_jumps_over_an_expiry_ends_the_token_once",),
    ),
}
"""What somebody sends by mistake or on purpose, about users: a clear answer, no crash, nobody locked out."""
