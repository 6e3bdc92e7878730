"""Which of dask's tests ask for something else than the result of a shuffle, and for what."""

from __future__ import annotations

INTERNALS = "calls functions of dask's own shuffle"
NAMES = "waits for tasks, plugins or log lines of dask's own shuffle"
GPU = "needs cudf"
WORDS = "asks for the words of dask's error; ours is InvalidArgument with the column's name (tests/flight_shuffle)"
DELAYED = "dask itself: an array of a frame made by from_delayed is cancelled on a cluster"
THREADS = "asks that no thread is left; the plugin of a worker's process lives as long as that"
OTHER = "set_index, sort_values, drop_duplicates and merge choose among dask's own shuffles"
RANDOM = "its partitions are random, and the expected ones are computed apart: to_delayed alone gives others, too"

_TESTS: dict[str, str] = {
    GPU: "test_basic_cudf_support",
    DELAYED: "test_shuffle_with_array_conversion",
    WORDS: "test_raise_on_incompatible_partitions test_wrong_meta_provided",
    THREADS: "test_tail",
    RANDOM: "test_reconcile_partitions",
    OTHER: """test_set_index test_shuffle_with_existing_index test_set_index_with_existing_index
        test_sort_values_with_existing_divisions test_drop_duplicates_stable_ordering""",
    INTERNALS: """test_bad_disk test_processing_chain test_split_by_worker test_split_by_worker_empty
        test_split_by_worker_many_workers test_split_by_partition test_basic_lowlevel_shuffle test_error_offload
        test_error_send test_error_receive test_meaningful_out_of_disk_error test_exception_on_close_cleans_up
        test_fail_fetch_race test_flaky_broadcast test_flaky_connect_fails_without_retry
        test_flaky_connect_recover_with_retry test_get_or_create_from_dangling_transfer test_heartbeat
        test_replace_stale_shuffle test_shuffle_run_consistency test_workers_do_not_spam_get_requests""",
    NAMES: """test_barrier_handles_stale_resumed_transfer test_clean_after_close test_clean_after_forgotten_early
        test_closed_bystanding_worker_during_shuffle test_closed_input_only_worker_during_transfer
        test_closed_other_worker_during_barrier test_closed_worker_during_barrier test_closed_worker_during_transfer
        test_closed_worker_during_unpack test_crashed_input_only_worker_during_transfer
        test_crashed_other_worker_during_barrier test_crashed_worker_after_shuffle
        test_crashed_worker_after_shuffle_persisted test_crashed_worker_during_transfer
        test_crashed_worker_during_unpack test_deduplicate_stale_transfer test_dont_downscale_participating_workers
        test_erred_task_before_p2p_does_not_log_event test_handle_stale_barrier test_new_worker
        test_restarting_does_not_deadlock test_restarting_does_not_log_p2p_failed
        test_restarting_during_barrier_raises_killed_worker test_restarting_during_transfer_raises_killed_worker
        test_restarting_during_unpack_raises_killed_worker
        test_unpack_gets_rescheduled_from_non_participating_worker""",
}
NOT_APPLICABLE: dict[str, str] = {name: reason for reason, names in _TESTS.items() for name in names.split()}
