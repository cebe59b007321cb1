"""The rules of the HTTP API and the console, and the tests that show each; `test_rows.py` checks that they exist."""

from tests.security.rows import Row

API = "security/test_http_api.py::"
HTTP = "integration/test_http_api.py::"
GUARDS = "integration/test_http_guards.py::"
LIMITS = "integration/test_http_limits.py::"
MATRIX = "integration/test_http_matrix.py::"
LEASES = "integration/test_http_leases.py::"
PUBLISHING = "integration/test_http_publishing.py::"
STREAMS = "integration/test_http_streams.py::"
JOBS = "integration/test_jobs.py::"
JOB_RIGHTS = "integration/test_job_rights.py::"
DOORS = "integration/test_audit_doors.py::"
PAGES = "browser/test_every_page.py::"
SITE = "unit/web/console/test_site.py::"
SESSIONS = "unit/web/api/test_sessions.py::"
GUARDRAILS = "unit/web/api/guardrails/"


def _row(rule: str, *tests: str, measured: tuple[str, ...] = (), but: str = "") -> Row:
    return Row(rule, tests, measured, but)


HTTP_ROWS: dict[str, Row] = {
    "H1": _row(
        "Every endpoint for every kind of user, on own, foreign and missing queues.",
        MATRIX + "test_every_endpoint_for_every_user",
        MATRIX + "test_nobody_passes_without_a_login",
        MATRIX + "test_foreign_and_missing_queues_cannot_be_told_apart",
        measured=("bench/logins/http_timing.py",),
        but="A test compares their answers by status, text and headers; how long they take is measured.",
    ),
    "H2": _row(
        "Lists, groups, sums, history, streams, exports and jobs never name a foreign queue.",
        HTTP + "test_a_limited_user_sees_the_own_queues_only",
        STREAMS + "test_each_sees_what_it_may",
        "integration/test_figures.py::test_users_are_told_of_their_queues_only",
        "integration/test_figures.py::test_the_history_goes_on_after_a_restart_and_nobody_sees_that_of_others",
        "integration/test_dead_letter_index.py::test_a_limited_user_sees_the_letters_of_the_queues_that_it_may_inspect",
        "integration/test_http_arguments.py::test_definitions_are_those_of_queues_that_may_be_inspected",
        JOB_RIGHTS + "test_a_job_is_shown_to_those_who_may_look_into_every_queue_that_it_names",
        "browser/test_incident.py::test_a_limited_user_sees_its_queues_and_no_button_that_would_be_refused",
    ),
    "H3": _row(
        "A job acts with the rights of its maker at every step; who has its name is not its maker.",
        JOB_RIGHTS + "test_a_job_needs_what_its_work_needs",
        JOB_RIGHTS + "test_a_job_ends_with_the_rights_of_its_maker",
        JOB_RIGHTS + "test_who_has_gone_before_a_restart_has_no_job_after_it",
        JOB_RIGHTS + "test_a_new_user_of_the_same_name_has_no_job_of_the_old_one",
        JOB_RIGHTS + "test_a_user_of_the_settings_has_no_job_of_a_stored_one_of_the_same_name",
        HTTP + "test_a_connection_is_closed_by_its_user_and_by_nobody_who_may_not",
    ),
    "H4": _row(
        "No page of another site changes anything, with or without Sec-Fetch-Site.",
        API + "test_no_page_of_another_site_changes_anything",
        API + "test_a_form_is_no_json",
        GUARDRAILS + "test_origin.py::test_refused",
        GUARDRAILS + "test_origin.py::test_the_page_of_the_other_scheme_is_another_origin",
        GUARDRAILS + "test_origin.py::test_no_form_can_send_a_body",
    ),
    "H5": _row(
        "An open broker answers to its own names only.",
        API + "test_an_open_broker_answers_to_its_own_names_only",
        API + "test_with_users_any_name_will_do_unless_the_settings_narrow_it",
        GUARDRAILS + "test_clients.py::test_other_names_are_refused",
        "unit/web/test_hosts.py::test_a_port_is_a_number",
    ),
    "H6": _row(
        "Beyond loopback an open broker has neither API nor console.",
        API + "test_beyond_this_machine_an_open_broker_has_no_api",
        GUARDRAILS + "test_clients.py::test_beyond_this_machine_an_open_broker_is_closed",
        SITE + "test_a_broker_that_is_open_to_all_closes_its_console_where_its_api_is_closed",
    ),
    "H7": _row("A cookie beside a bad credential is not used.", API + "test_a_cookie_is_no_second_chance"),
    "H8": _row(
        "A session is new at the login, marked as its transport allows, and dead after its end; its streams too.",
        API + "test_a_session_from_its_login_to_its_end",
        API + "test_behind_tls_the_cookie_is_secure",
        API + "test_only_a_trusted_proxy_makes_it_secure",
        API + "test_log_out_everywhere",
        SESSIONS + "test_it_ends_when_it_is_idle",
        SESSIONS + "test_it_ends_after_its_longest_time_however_busy",
        STREAMS + "test_a_stream_ends_with_its_session",
    ),
    "H9": _row(
        "Guessed cookies find no session; of too many sessions the one that was idle longest ends.",
        SESSIONS + "test_guessing_cookies_finds_none",
        SESSIONS + "test_only_the_hash_is_kept",
        SESSIONS + "test_of_too_many_the_one_that_was_idle_longest_ends",
        SESSIONS + "test_a_user_has_few",
    ),
    "H10": _row(
        "All doors share one back-off, and many logins keep nobody waiting.",
        API + "test_guesses_count_whatever_the_door",
        API + "test_many_logins_keep_nobody_waiting",
        GUARDS + "test_guesses_wait_longer_and_longer_and_are_written_down",
        measured=("bench/logins/__main__.py",),
        but="What a flood of logins costs others in time is measured, over the native protocol.",
    ),
    "H11": _row(
        "Users cannot be told from nobody.",
        API + "test_users_cannot_be_told_from_nobody",
        measured=("bench/logins/timing.py", "bench/logins/http_timing.py"),
    ),
    "H12": _row(
        "Hostile texts are text on every page and in every dialog.",
        PAGES + "test_hostile_texts_are_text_and_every_page_is_accessible_and_fits",
        PAGES + "test_hostile_texts_are_text_in_dialogs",
    ),
    "H13": _row(
        "No text becomes markup, and every page has the strictest policy.",
        PAGES + "test_no_text_becomes_markup_whoever_tries",
        SITE + "test_every_page_is_there_with_its_module_and_the_strictest_policy",
    ),
    "H14": _row(
        "No other site shows the console in a frame.",
        PAGES + "test_no_page_of_another_site_shows_the_console_in_a_frame",
        API + "test_headers_of_every_answer",
    ),
    "H15": _row(
        "Bodies are files in which nothing runs.",
        STREAMS + "test_bodies_are_files_that_nothing_runs_in",
        PAGES + "test_a_body_that_is_opened_in_a_tab_is_a_file_in_which_nothing_runs",
        API + "test_headers_of_every_answer",
    ),
    "H16": _row(
        "No name, id or cursor becomes a header.",
        API + "test_no_header_is_injected",
        STREAMS + "test_bodies_are_files_that_nothing_runs_in",
        "unit/web/api/streams/test_frames.py::test_no_text_ends_an_event",
    ),
    "H17": _row("Nothing but pages and assets is served.", SITE + "test_nothing_but_pages_and_assets_is_served"),
    "H18": _row(
        "Queues with odd names are reached, changed and deleted by page, API and command.",
        HTTP + "test_every_name_is_reached",
        HTTP + "test_a_slash_or_a_control_character_makes_no_name",
        PAGES + "test_queues_with_odd_names_are_reached_purged_and_deleted_from_their_pages",
        "integration/cli_online/test_queues.py::test_odd_names_behind_two_hyphens_are_names",
    ),
    "H19": _row(
        "A packed body is opened as far as was asked, and no further than its limit, in a thread and in less than "
        "twice the memory of the limit.",
        STREAMS + "test_packed_bodies_and_bombs",
        "integration/test_looking_at_messages.py::test_a_bomb_is_opened_as_far_as_is_asked_for",
    ),
    "H20": _row(
        "Odd JSON is refused in words.",
        HTTP + "test_odd_bodies_are_refused",
        HTTP + "test_odd_values_are_refused_wherever_they_may_stand",
        HTTP + "test_what_is_published_comes_back_digit_for_digit",
        HTTP + "test_a_body_is_bounded",
        GUARDS + "test_bodies_are_small_and_have_few_values",
        GUARDRAILS + "test_json_shapes.py::test_many_values_are_refused_before_they_are_read",
    ),
    "H21": _row(
        "A bad line is named, and the others are confirmed.",
        PUBLISHING + "test_a_bad_line_is_named_and_the_others_are_confirmed",
    ),
    "H22": _row(
        "Cursors and leases are worth nothing to others, changed, or after a restart.",
        HTTP + "test_a_cursor_belongs_to_its_list_user_and_run",
        LEASES + "test_a_lease_is_worth_nothing_to_others_nor_after_a_restart",
    ),
    "H23": _row(
        "One of many changes wins, and no more is dropped than was shown.",
        HTTP + "test_one_of_many_changes_wins",
        HTTP + "test_more_than_was_shown_is_not_dropped",
        HTTP + "test_a_queue_that_was_made_anew_has_another_tag",
    ),
    "H24": _row(
        "One Idempotency-Key is carried out once.",
        HTTP + "test_the_same_key_is_carried_out_once",
        PUBLISHING + "test_a_key_is_carried_out_once",
        PUBLISHING + "test_a_key_survives_a_restart_within_the_window",
        "integration/test_http_keys.py::test_a_job_is_started_once_and_said_so_once",
        JOBS + "test_one_key_is_one_job",
        GUARDS + "test_an_answer_is_kept_for_those_who_may_still_ask_for_it",
    ),
    "H25": _row(
        "No secret is in an answer, a page, a log or the audit.",
        API + "test_no_secret_is_told",
        "integration/test_audit.py::test_no_secret_is_in_any_log",
        "integration/test_operator_lists.py::test_settings_are_shown_without_secrets",
    ),
    "H26": _row(
        "Each change through each door is in the audit log once; what cannot be recorded alarms, or is refused.",
        DOORS + "test_who_came_in_and_what_changed_by_every_door",
        DOORS + "test_a_file_that_cannot_be_written_alarms_and_strict_refuses_what_frees_no_space",
        HTTP + "test_every_change_leaves_one_line",
        HTTP + "test_the_line_of_an_edit_has_the_hashes_of_both_bodies_and_nothing_of_them",
    ),
    "H27": _row(
        "Ambiguous, too long and too slow requests end their connection and harm nobody.",
        API + "test_ambiguous_requests_end_the_connection",
        API + "test_a_body_that_comes_too_slowly_ends_with_its_connection",
        LIMITS + "test_heads_that_are_refused_end_the_connection",
        LIMITS + "test_a_header_has_a_deadline_that_single_bytes_do_not_move",
        "unit/web/test_heads.py::test_what_can_be_read_in_two_ways",
        "unit/web/test_chunks.py::test_what_two_readers_could_read_in_two_ways_is_refused",
    ),
    "H28": _row(
        "Silent connections, half requests and streams that nobody reads keep nobody out, and take little memory.",
        API + "test_silent_and_half_requests_keep_nobody_out",
        LIMITS + "test_silent_connections_take_no_probe_away",
        STREAMS + "test_a_reader_that_reads_nothing_is_cut_off",
        STREAMS + "test_streams_are_limited",
        measured=("bench/web/hostile.py",),
        but="What a flood costs in throughput of publishers is measured; a test counts the memory that Python has "
        "allocated.",
    ),
    "H29": _row(
        "Rates are exact, and Retry-After is true.",
        GUARDRAILS + "test_rates.py::test_the_rate_is_exact_and_the_wait_is_true",
        "integration/test_http_clocks.py::test_limits_of_requests_are_exact_and_retry_after_is_true",
        API + "test_who_asks_too_often_waits_and_nobody_else_does",
    ),
    "H30": _row(
        "Hidden bodies are in no answer, stream, export or search.",
        HTTP + "test_hidden_bodies_are_in_no_answer",
        HTTP + "test_a_dry_run_does_not_tell_whether_a_hidden_body_was_guessed",
        "browser/test_hidden_bodies.py::test_what_is_hidden_is_not_said_to_be_empty_or_too_large",
        STREAMS + "test_what_is_in_messages_can_be_hidden",
        GUARDS + "test_what_is_hidden_cannot_be_searched_for",
        "integration/test_job_exports.py::test_http_gives_the_file_to_those_who_may_see_bodies",
    ),
    "H31": _row(
        "The API answers as it is described, whatever it is asked.",
        "integration/test_http_schema.py::test_the_api_is_as_it_is_described",
        measured=("tests/integration/http_schema.py",),
    ),
    "H32": _row(
        "What is not in the contract is 404, a method that is not 405, and the older pages change nothing.",
        HTTP + "test_what_is_not_in_the_contract",
        SITE + "test_pages_can_only_be_read",
        "security/test_http.py::test_nothing_is_changed_over_http",
    ),
}
