"""The catalogue of faults, FI-01 to FI-45: what is broken, what must hold, and where that is tried."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One kind of fault."""

    id: str
    broken: str
    holds: str
    tests: tuple[str, ...] = ()
    """Tests by their files and names; `make test` runs all of them on every engine that they are about."""
    commands: tuple[str, ...] = ()
    """Commands that try it: those of the Makefile, and of the server."""
    elsewhere: str = ""
    """Where the rest of it is tried, or why a part of it cannot occur here."""

    @property
    def is_applicable(self) -> bool:
        """Whether it can occur here."""
        return bool(self.tests or self.commands)


SUITE = "make faults"
CLUSTER = "make cluster"
BENCH = "make bench"

ROWS = (
    Row(
        id="FI-01",
        broken="a turn dies in a conversation of 1,000 events; its state is polled 1,000 times",
        holds="all events stay, no read writes, the stale state is cleared once",
        tests=(
            "tests/processes/test_status_polls.py::test_a_thousand_messages_outlive_a_thousand_polls_and_restarts",
            "tests/processes/test_status_polls.py::test_saved_metadata_outlive_stubs_that_are_saved_again",
            "tests/store/test_saves.py::test_a_stub_that_is_saved_again_and_again_takes_nothing_away",
        ),
    ),
    Row(
        id="FI-02",
        broken="every GET, list, search and export, with the statements recorded",
        holds="no INSERT, UPDATE or DELETE",
        tests=(
            "tests/store/test_saves.py::test_many_looks_at_the_state_write_nothing",
            "tests/store/test_saves.py::test_hundreds_of_reads_by_rest_write_nothing",
            "tests/store/test_read_statements.py::test_a_read_takes_two_statements_at_most",
            "tests/processes/test_status_polls.py::test_a_thousand_messages_outlive_a_thousand_polls_and_restarts",
        ),
    ),
    Row(
        id="FI-03",
        broken="kill -9 at any moment of turns, and an immediate restart",
        holds="nothing acknowledged is lost, each turn ends once, the next one is accepted",
        tests=(
            "tests/processes/test_interruption.py::test_interrupted_turns_end_once_and_their_next_messages_are_answered",
            "tests/processes/test_interruption.py::test_a_turn_that_nobody_goes_on_with_is_ended_as_soon_as_the_server_is_back",
            "tests/processes/test_killed_calls.py::test_a_server_that_is_killed_at_any_point_of_a_call_runs_nothing_twice",
        ),
        commands=(SUITE, CLUSTER),
    ),
    Row(
        id="FI-04",
        broken="kill -9 while an answer is written",
        holds="what a client saw of it is stored under the turn, and marked once",
        tests=(
            "tests/processes/test_interruption.py::test_an_answer_cut_off_in_the_middle_is_kept_as_late_readers_saw_it_and_marked",
            "tests/browser/test_connection.py::test_a_server_killed_in_mid_answer_loses_and_doubles_nothing",
        ),
    ),
    Row(
        id="FI-05",
        broken="power loss: all that was not synced is gone",
        holds="nothing acknowledged is lost",
        tests=(
            "tests/store/test_durability.py::test_the_settings_of_this_project_are_durable",
            "tests/store/test_verification.py::test_a_missing_end_is_found",
            "tests/store/test_verification_runs.py::test_a_start_verifies_what_changed_since_it_last_found_nothing",
        ),
        commands=(SUITE,),
    ),
    Row(
        id="FI-06",
        broken="the disk is full, or the files are read-only, at each write",
        holds="an error, nothing half-written, and service once there is room",
        tests=(
            "tests/processes/test_database_files.py::test_with_a_full_disk_the_server_says_so_and_goes_on_once_there_is_room",
            "tests/processes/test_database_files.py::test_a_start_on_a_full_disk_says_so",
            "tests/processes/test_database_files.py::test_read_only_files_are_told_and_everything_goes_on_once_they_can_be_written",
        ),
        commands=(SUITE,),
    ),
    Row(
        id="FI-07",
        broken="two servers on one store, both about to run turns of one conversation",
        holds="one has the lease; no acknowledged turn is lost",
        tests=(
            "tests/processes/test_second_server.py::test_a_second_server_is_refused_with_what_to_do_and_starts_once_the_first_is_killed",
            "tests/store/test_leases.py::test_of_ten_claims_at_once_one_wins",
        ),
        commands=(SUITE, CLUSTER),
    ),
    Row(
        id="FI-08",
        broken="threads and processes that append to one conversation at once",
        holds="every event is stored, once",
        tests=("tests/store/test_append.py::test_sixteen_writers_leave_no_gap_and_no_repeat",),
        commands=(SUITE,),
    ),
    Row(
        id="FI-09",
        broken="a worker is stopped past its lease, a new one takes its turn, and the old one wakes up",
        holds="what the old one writes is refused",
        tests=(
            "tests/processes/test_fence.py::test_a_loop_stopped_past_its_lease_and_replaced_writes_nothing_when_it_wakes_up",
            "tests/store/test_leases.py::test_a_loop_that_was_replaced_can_do_nothing",
        ),
        commands=(SUITE, CLUSTER),
    ),
    Row(
        id="FI-10",
        broken="a stop at every point of a turn, and twice",
        holds="the message and the part of the answer are stored, one end, the next turn is accepted",
        tests=(
            "tests/store/test_manager.py::test_a_stop_keeps_what_was_said_and_marks_it_as_interrupted",
            "tests/store/test_manager.py::test_stopping_twice_at_once_is_stopping_once",
            "tests/store/test_manager.py::test_a_stop_that_comes_as_the_turn_ends_leaves_one_end",
            "tests/store/test_manager.py::test_a_message_that_comes_while_the_agent_is_being_stopped_is_answered",
            "tests/store/test_llm_tools.py::test_no_program_is_left_when_a_turn_is_ended_in_a_call",
        ),
    ),
    Row(
        id="FI-11",
        broken="the model's provider fails, hangs, or answers with nothing",
        holds="prompt, partial answer and error are stored, and it can be tried again",
        tests=(
            "tests/store/test_llm_agent.py::test_an_answer_that_broke_off_is_kept_and_continued",
            "tests/store/test_llm_agent.py::test_a_passing_failure_is_not_seen",
            "tests/store/test_llm_agent.py::test_a_request_that_hangs_is_ended_by_a_stop",
            "tests/store/test_llm_agent.py::test_a_message_that_is_sent_again_after_a_failure_is_told_to_the_model_once",
        ),
    ),
    Row(
        id="FI-12",
        broken="one request twice, at once and after it was answered, with one key",
        holds="it is carried out once, and both get the same answer",
        tests=(
            "tests/doors/native/test_idempotency.py::test_of_two_at_once_one_creates_and_both_get_its_answer",
            "tests/doors/native/test_idempotency.py::test_the_first_message_of_a_repeated_request_is_stored_once",
            "tests/processes/test_lost_commits.py::test_a_creation_under_a_key_whose_commit_is_lost_is_answered_as_stored",
            "tests/store/test_append.py::test_repeating_an_event_returns_its_first_place_and_adds_nothing",
        ),
        commands=(SUITE,),
    ),
    Row(
        id="FI-13",
        broken="the same text is sent three times on purpose",
        holds="it is three messages",
        tests=(
            "tests/processes/test_status_polls.py::test_the_same_text_sent_three_times_is_three_messages",
        ),
    ),
    Row(
        id="FI-14",
        broken="a tab changes what another one has changed since",
        holds="it is told, and the other's change stays",
        tests=(
            "tests/doors/native/test_etags.py::test_a_conversation_with_another_etag_is_not_changed_and_answered_as_it_is",
            "tests/doors/native/test_drafts.py::test_a_draft_that_was_written_elsewhere_meanwhile_is_not_replaced",
        ),
        elsewhere='events are never changed, truncated or cleared: "Edit and send again" begins a branch, which leaves its origin alone',
    ),
    Row(
        id="FI-15",
        broken="every change with a stale version",
        holds="it is refused, and nothing is changed",
        tests=(
            "tests/doors/native/test_etags.py::test_a_conversation_with_another_etag_is_not_deleted",
            "tests/doors/native/test_etags.py::test_of_two_changes_at_once_with_one_etag_only_one_is_made",
        ),
    ),
    Row(
        id="FI-16",
        broken="a conversation is deleted while a turn runs, which ends later",
        holds="it stays deleted, and the turn's writes are refused",
        tests=(
            "tests/store/test_manager.py::test_a_working_loop_ends_when_its_conversation_is_deleted_and_does_not_bring_it_back",
            "tests/store/test_append.py::test_a_deleted_conversation_takes_no_events",
            "tests/store/test_purge.py::test_what_goes_while_a_turn_runs_stays_gone",
            "tests/store/test_purge.py::test_what_somebody_wrote_after_a_purge_is_swept_away",
            "tests/store/test_retention.py::test_nothing_is_added_between_the_last_look_of_a_policy_and_its_deletion",
        ),
    ),
    Row(
        id="FI-17",
        broken="a deletion, then a restart, a rebuilt index, an older backup, and an import of the source",
        holds="it stays deleted, or comes back by an explicit act",
        tests=(
            "tests/doors/native/test_native_rest.py::test_a_deleted_conversation_is_gone_until_it_is_restored_whole",
            "tests/pure/test_hermes.py::test_a_deleted_conversation_stays_deleted",
            "tests/store/test_search.py::test_a_deleted_conversation_is_not_found_until_it_is_restored",
            "tests/store/test_purge.py::test_a_purge_that_was_begun_cannot_be_taken_back",
            "tests/processes/test_backups.py::test_a_restore_needs_an_empty_place_and_serves_the_backup_there",
        ),
        elsewhere="to restore an older backup is an explicit act, which brings back all that was there then",
    ),
    Row(
        id="FI-18",
        broken="undo, edit and clear; then a crash, a restart, and a new turn",
        holds="what was removed is nowhere but in the history",
        elsewhere='not applicable: branches are conversations of their own; "Undo" concerns archiving, labels and deletion only',
    ),
    Row(
        id="FI-19",
        broken="a phrase is looked for everywhere after deletion and purge",
        holds="it is not found",
        tests=(
            "tests/store/test_guards.py::test_a_running_purge_lets_the_events_of_its_conversation_go_and_no_others",
            "tests/store/test_purge.py::test_after_a_purge_the_word_is_nowhere",
            "tests/store/test_purge.py::test_no_row_of_a_purged_conversation_is_left",
            "tests/store/test_purge.py::test_every_table_says_what_a_purge_does_to_it",
            "tests/store/test_purge.py::test_a_purge_goes_on_where_it_was_interrupted",
            "tests/store/test_search.py::test_a_purge_takes_the_words_along",
            "tests/processes/test_purge_killed.py::test_a_purge_that_is_killed_goes_on_where_it_was",
        ),
        elsewhere="forks, and backups that were made before, keep what they have until they are removed themselves",
    ),
    Row(
        id="FI-20",
        broken="a condensation is killed at every step, or its model fails",
        holds="the same conversation with the whole log, and a usable view for the model",
        tests=(
            "tests/store/test_condensing.py::test_the_older_part_becomes_a_summary_with_which_the_history_begins",
            "tests/doors/v1/test_v1_runs.py::test_a_condensation_is_stored_with_the_agents_summary_and_removes_nothing",
            "tests/store/test_llm_agent.py::test_a_long_conversation_that_cannot_be_condensed_is_cut_and_the_user_is_told_once",
        ),
    ),
    Row(
        id="FI-21",
        broken="a condensation while another tab writes, twice, and in a fork",
        holds="the message is stored in the same conversation and answered",
        tests=(
            "tests/doors/v1/test_v1_runs.py::test_a_condensation_forgets_only_what_the_one_before_has_left",
            "tests/store/test_condensing.py::test_a_pause_takes_effect_while_the_model_sums_up",
        ),
    ),
    Row(
        id="FI-22",
        broken="a fork at every event",
        holds="it has what was chosen, and its origin is unchanged",
        tests=(
            "tests/store/test_fork.py::test_a_fork_has_the_events_up_to_the_place_as_they_were",
            "tests/store/test_fork.py::test_a_fork_proves_its_log_like_any_other",
            "tests/store/test_fork.py::test_what_follows_in_one_of_them_is_not_in_the_other",
        ),
    ),
    Row(
        id="FI-23",
        broken="readers come back with any cursor: none, exact, older, beyond the end, of another history, garbage",
        holds="no gap and nothing twice, or an error that says to begin anew",
        tests=(
            "tests/doors/native/test_native_socket.py::test_a_join_replays_what_is_after_its_cursor",
            "tests/doors/native/test_native_socket.py::test_a_cursor_beyond_the_end_is_told_so_and_goes_on_live",
            "tests/doors/native/test_native_socket.py::test_a_cursor_of_another_history_is_told_so_and_goes_on_live",
            "tests/store/test_histories.py::test_any_text_is_a_place_in_a_log_or_refused",
            "tests/processes/test_replaced_databases.py::test_a_reader_of_a_log_that_was_put_back_is_told_so_however_long_it_has_become",
        ),
        commands=(SUITE,),
    ),
    Row(
        id="FI-24",
        broken="ten writers at once; commits in another order than they began; hints that are lost",
        holds="no reader misses a number",
        tests=(
            "tests/processes/test_v0_clients.py::test_four_clients_that_join_a_busy_conversation_miss_nothing_and_get_nothing_twice",
            "tests/doors/native/test_native_socket.py::test_an_event_committed_during_replay_arrives_once",
            "tests/processes/test_hints.py::test_a_forged_event_is_not_shown_in_place_of_the_stored_one",
        ),
        commands=(SUITE,),
    ),
    Row(
        id="FI-25",
        broken="many readers of one conversation, some slow and some dead",
        holds="memory is bounded, and others do not notice",
        tests=(
            "tests/processes/test_shutdown.py::test_clients_that_do_not_read_cost_neither_others_nor_the_memory",
            "tests/processes/test_shutdown.py::test_a_client_that_never_reads_is_not_kept_for_ever",
            "tests/doors/native/test_native_socket.py::test_hints_that_wait_for_a_slow_reader_keep_few_events",
        ),
        commands=(SUITE,),
    ),
    Row(
        id="FI-26",
        broken="a page goes from one conversation to the other while both are written",
        holds="no event is shown in the wrong one",
        tests=("tests/browser/test_two_tabs.py::test_two_tabs_show_the_same",),
        elsewhere="each page is a document of its own with a socket of its own: there is no view that changes its conversation",
    ),
    Row(
        id="FI-27",
        broken="a draft on two devices; reload, send, crash",
        holds="nothing typed is replaced without a copy, and a draft changes no message",
        tests=(
            "tests/doors/native/test_drafts.py::test_of_two_devices_that_write_at_the_same_time_one_is_told",
            "tests/doors/native/test_drafts.py::test_a_draft_that_was_written_elsewhere_meanwhile_is_not_replaced",
            "tests/doors/native/test_drafts.py::test_a_sent_draft_is_an_empty_one_of_the_next_version",
        ),
    ),
    Row(
        id="FI-28",
        broken="three messages are written offline; the page is loaded again, or the server restarted",
        holds="each is stored once, in order, in its conversation",
        tests=(
            "tests/browser/test_message_queue.py::test_messages_written_offline_go_out_once_in_order",
            "tests/browser/test_message_queue.py::test_messages_written_offline_outlive_their_page",
            "tests/browser/test_message_queue.py::test_a_message_whose_ack_was_lost_is_stored_once",
        ),
    ),
    Row(
        id="FI-29",
        broken="the result of a call arrives late, twice, during a restart, or for a deleted conversation",
        holds="it is stored once, or refused",
        tests=(
            "tests/store/test_tool_runs.py::test_a_result_is_stored_once_however_often_it_comes",
            "tests/processes/test_killed_replay.py::test_a_call_that_a_crash_cut_off_gets_its_result_and_nothing_comes_twice",
            "tests/processes/test_remote_agent.py::test_a_program_that_is_killed_goes_on_with_its_turn_and_doubles_nothing",
        ),
    ),
    Row(
        id="FI-30",
        broken="the clock jumps; several events in one microsecond; events from the future are imported",
        holds="the order stays",
        tests=(
            "tests/store/test_append.py::test_every_event_is_later_than_the_one_before",
            "tests/doors/native/test_list_cursors.py::test_a_change_under_a_clock_that_has_jumped_back_is_told",
            "tests/processes/test_fence.py::test_a_step_of_the_clock_makes_no_process_gone",
        ),
        commands=(SUITE,),
    ),
    Row(
        id="FI-31",
        broken="one row, one page of an index, or one line of a source is damaged",
        holds="the rest is read, the damage is named, derived data are made anew",
        tests=(
            "tests/processes/test_database_files.py::test_of_a_file_that_is_overwritten_everybody_is_told",
            "tests/store/test_imports.py::test_a_damaged_line_is_kept_byte_for_byte",
            "tests/store/test_guards.py::test_what_would_lose_history_is_refused_from_outside",
            "tests/store/test_verification.py::test_a_changed_byte_of_a_payload_is_found",
            "tests/store/test_verification.py::test_a_missing_event_is_found",
            "tests/store/test_verification.py::test_an_event_at_a_taken_place_is_found",
            "tests/store/test_verification.py::test_a_missing_guard_is_found_until_it_is_back",
            "tests/store/test_verification.py::test_a_lost_entry_of_the_search_index_is_found_and_rebuilt",
            "tests/store/test_verification.py::test_a_rewritten_chain_is_found_by_the_checkpoint",
            "tests/store/test_verification_runs.py::test_indexes_are_rebuilt_on_request_and_events_are_not_touched",
            "tests/doors/test_damage.py::test_the_conversation_and_its_events_say_where_they_are_damaged",
            "tests/doors/test_damage.py::test_a_socket_is_told_when_damage_is_found_and_when_it_joins",
            "tests/pure/test_backups.py::test_a_backup_of_which_any_byte_was_changed_is_refused",
            "tests/processes/test_backups.py::test_a_backup_that_is_damaged_is_refused_and_nothing_is_touched",
            "tests/processes/test_backups.py::test_a_damaged_store_is_backed_up_and_its_backup_is_refused_by_the_place_of_the_damage",
        ),
        commands=(SUITE,),
    ),
    Row(
        id="FI-32",
        broken="the database fails, is locked, hangs, has no connection, or is read-only",
        holds="an error, never an empty list, and service once it is back",
        tests=(
            "tests/processes/test_failing_database.py::test_what_fails_is_told_at_every_door_with_the_moment_to_come_again_and_logged_once",
            "tests/processes/test_exhausted_database.py::test_without_connections_all_are_told_and_served_again_soon_after_one_is_free",
            "tests/processes/test_frozen_database.py::test_probes_answer_while_the_database_hangs_and_the_server_goes_on_once_it_is_back",
            "tests/processes/test_locked_conversations.py::test_whoever_waits_for_a_lock_too_long_is_told_to_try_again",
            "tests/processes/test_database_files.py::test_nothing_is_acknowledged_that_is_not_in_the_file_under_the_path",
        ),
        commands=(SUITE,),
    ),
    Row(
        id="FI-33",
        broken="a failure between an event and the counters that follow from it",
        holds="neither is stored",
        tests=("tests/store/test_append.py::test_what_also_raises_undoes_the_append",),
        commands=(SUITE,),
    ),
    Row(
        id="FI-34",
        broken="lists and totals after any sequence of operations, compared with a recount",
        holds="they are equal",
        tests=(
            "tests/store/test_usage_recount.py::test_usage_by_user_model_and_day_equals_a_recount_after_any_sequence",
            "tests/store/test_title_index.py::test_the_index_finds_what_reading_every_title_finds",
            "tests/store/test_verification.py::test_a_wrong_counter_is_found",
            "tests/store/test_purge.py::test_two_purgers_at_once_count_everything_once",
        ),
    ),
    Row(
        id="FI-35",
        broken="results of a provider that are repeated, and partial ones by the thousand",
        holds="one event for each item, and limits of size that are told",
        tests=(
            "tests/store/test_llm_agent.py::test_an_answer_of_many_chunks_is_shown_as_it_comes_and_stored_as_one_message",
            "tests/store/test_llm_tools.py::test_a_megabyte_of_arguments_ends_the_turn_with_a_sentence",
        ),
    ),
    Row(
        id="FI-36",
        broken="conversations of 100 to 200,000 events",
        holds="an append, a status, a page and the list cost the same",
        tests=(
            "tests/store/test_list_costs.py::test_a_list_costs_the_same_however_long_it_is",
            "tests/doors/v0/test_v0_lists.py::test_a_page_of_events_costs_the_same_number_of_queries_at_10_and_at_1000_events",
            "tests/store/test_append.py::test_an_append_is_two_round_trips",
        ),
        commands=(BENCH,),
    ),
    Row(
        id="FI-37",
        broken="the disk after 1,000 turns of one conversation",
        holds="it grows with what was said, not with its square",
        tests=(
            "tests/store/test_masking.py::test_size_digest_text_and_last_message_are_those_of_what_is_stored",
        ),
        elsewhere="an event is a row that is written once; `docs/scale.md` has bytes for each event at 10 to 300 million",
    ),
    Row(
        id="FI-38",
        broken="text that looks like markup, tags, commands or calls",
        holds="it is stored and shown as it is",
        tests=(
            "tests/store/test_agent.py::test_words_that_are_commands_elsewhere_are_answered_like_any_others",
            "tests/pure/test_previews.py::test_hostile_answers_stay_balanced_and_bounded",
        ),
    ),
    Row(
        id="FI-39",
        broken="control messages and wake-ups",
        holds="they are never shown as a user's words, nor told to a model twice",
        tests=(
            "tests/store/test_while_working.py::test_every_message_is_dealt_with_exactly_once_whatever_happens_when",
            "tests/processes/test_cluster.py::test_each_message_is_a_job_and_what_agents_say_is_none",
        ),
    ),
    Row(
        id="FI-40",
        broken="imports twice, at once, killed in the middle, of damaged sources",
        holds="the same result, nothing twice, and an unchanged source",
        tests=(
            "tests/store/test_imports.py::test_an_import_that_is_repeated_adds_nothing",
            "tests/store/test_imports.py::test_two_imports_at_once_store_the_same_as_one",
            "tests/store/test_imports.py::test_the_source_is_never_changed",
            "tests/processes/test_recordings.py::test_recordings_arrive_whole_through_a_server_that_is_killed_again_and_again",
            "tests/processes/test_follow.py::test_an_import_that_is_killed_goes_on_where_it_was",
        ),
    ),
    Row(
        id="FI-41",
        broken="a new release on old data, kills during the upgrade or a restore, an empty database in place of a used one",
        holds="nothing is lost, and the start says so",
        tests=(
            "tests/processes/test_upgrades.py::test_kills_at_any_moment_harm_no_later_start",
            "tests/processes/test_backups.py::test_a_restore_that_is_killed_leaves_nothing_and_the_next_one_succeeds",
            "tests/processes/test_backups.py::test_what_was_acknowledged_before_a_backup_under_load_is_served_elsewhere_afterwards",
            "tests/processes/test_replaced_databases.py::test_a_start_on_an_empty_database_where_one_was_used_says_so_and_tells_its_readers",
        ),
        commands=(SUITE,),
    ),
    Row(
        id="FI-42",
        broken="an orderly end during turns",
        holds="turns are marked or handed over within a bound; what was acknowledged is stored",
        tests=(
            "tests/processes/test_shutdown.py::test_sigterm_keeps_what_the_agent_had_said_and_ends_its_turn",
            "tests/processes/test_cluster.py::test_a_worker_that_is_stopped_hands_its_turn_over_at_once",
        ),
        commands=(SUITE,),
    ),
    Row(
        id="FI-43",
        broken="numbers that are negative, huge, missing, or none",
        holds="they are refused, and nothing is changed",
        tests=(
            "tests/doors/test_schemathesis.py::test_the_owner_is_answered_as_the_document_says",
            "tests/pure/test_cursors.py::test_a_place_beyond_the_numbers_of_the_database_is_refused",
        ),
    ),
    Row(
        id="FI-44",
        broken="a user names a conversation while its title is made",
        holds="the user's title stays",
        tests=(
            "tests/store/test_titles.py::test_a_title_that_somebody_chose_while_one_is_made_stays_whatever_it_is",
            "tests/store/test_titles.py::test_conversations_that_begin_with_the_same_command_have_titles_that_differ",
        ),
    ),
    Row(
        id="FI-45",
        broken="two uploads of one name",
        holds="both are kept",
        tests=(
            "tests/doors/v0/test_v0_workspace.py::test_uploads_at_the_same_time_keep_all_files_under_names_of_their_own",
        ),
    ),
)
