"""Where each case that other simulators got wrong is tested: the public report, and the tests that exclude its kind.

The names are checked, so that the table holds. Reports are `project#number`; those without a number were never filed.
"""

import ast
from functools import cache
from pathlib import Path

import pytest
from scenario_text import scenario

from simserve.spec.errors import ScenarioError

HERE = Path(__file__).parent
CASES: dict[str, tuple[str, ...]] = {
    # Clock, work conservation, queueing
    "inference-sim#319, #325, #326, #330: nothing happens until the next arrival": (
        "test_correctness_clock::test_319_the_second_of_two_starts_when_the_first_is_done",
        "test_laws::test_the_engine_idles_only_while_nobody_is_there",
        "test_theory::test_each_wait_is_that_of_lindleys_recursion",
        "test_theory::test_mean_wait_of_one_seat_is_pollaczek_khinchine",
        "test_theory::test_mean_wait_of_several_seats_at_90_percent_is_that_of_the_slotted_queue",
    ),
    "inference-sim#480, #482: no host time between steps": (
        "test_correctness_clock::test_480_host_overhead_lengthens_every_step_by_itself",
        "test_cost_step::test_host_time_enters_the_step_of_a_synchronous_engine_whole",
    ),
    "LLMServingSim#40: diverges as soon as somebody waits": (
        "test_correctness_clock::test_40_overload_serves_at_the_saturated_rate_while_the_queue_grows",
        "test_theory::test_overloaded_queue_grows_as_the_excess",
    ),
    "semantic-router#2890, #2900: a preempted request completes twice": (
        "test_correctness_clock::test_2900_a_preempted_request_completes_once",
        "test_conservation::test_requests_tokens_and_blocks_are_conserved_after_every_event",
    ),
    "fleet-sim: n slots with a service time divided by n": (
        "test_correctness_clock::test_a_fleet_of_slots_has_the_capacity_of_its_slots",
        "test_theory::test_saturated_throughput_is_seats_over_service_time",
        "test_theory::test_mean_wait_of_four_seats_is_that_of_the_slotted_queue",
    ),
    # Conservation, termination, drops
    "inference-sim#349: a list changed while walked over": (
        "test_correctness_clock::test_349_kv_for_two_of_three_sequences_takes_one_preemption",
    ),
    "inference-sim#183, #237, #498: requests lost, arrivals beyond the horizon counted": (
        "test_correctness_clock::test_183_whoever_arrived_is_counted_and_nobody_else",
        "test_conservation::test_requests_tokens_and_blocks_are_conserved_after_every_event",
        "test_laws::test_every_run_ends_with_everyone_served_or_rejected",
        "test_impatient::test_nothing_stays_behind_who_gives_up",
        "test_impatient::test_every_request_ends_once_and_its_attempts_follow_each_other",
        "test_metrics::test_a_request_that_never_came_is_not_counted",
    ),
    "inference-sim#1057, #1079: a preempted request starts from nothing, again and again": (
        "test_correctness_clock::test_1057_what_a_preempted_request_computed_can_be_hit_again",
        "test_correctness_scheduling::test_1057_a_run_that_gets_nowhere_says_so",
        "test_conservation::test_requests_tokens_and_blocks_are_conserved_after_every_event",
    ),
    "inference-sim#200, #963, #1061, #1065: blocks lost in a failed allocation": (
        "test_correctness_clock::test_1061_a_failed_admission_changes_nothing",
        "test_conservation::test_an_accountant_finds_a_lost_block",
        "test_block_pool::test_long_lives",
    ),
    "inference-sim#926, #927: no metrics when nothing completed": (
        "test_summary::test_nothing_completed",
        "test_table::test_what_does_not_exist_is_not_a_number",
    ),
    "inference-sim#1160, aiconfigurator#509: weights that do not fit": (
        "test_memory::test_weights_that_do_not_fit_are_an_error_with_their_bytes",
    ),
    # Metrics
    "llm-d-inference-sim#266: TTFT without the queue": (
        "test_metrics::test_ttft_includes_the_queue_and_its_parts_add_up",
    ),
    "aisimulate#288, vllm#54101: TTFT of the client or of the server": (
        "test_correctness_clock::test_288_client_and_server_differ_by_network_and_front_end",
        "test_metrics::test_client_and_engine_differ_by_the_front_end_exactly",
    ),
    "aisimulate#289: missing times read as 0, budgets rounded to pages": (
        "test_traces::test_289_a_trace_without_times_needs_arrivals_beside_it",
        "test_correctness_clock::test_289_the_budget_is_tokens_not_blocks",
    ),
    "aisimulate#289: acceptance counters that disagree with the tokens": (
        "test_speculation::test_289_counters_add_up_to_the_tokens_given",
    ),
    "inference-sim#1381: quadratic statistics": (
        "test_correctness_clock::test_1381_twice_the_requests_take_twice_the_work",
        "test_laws::test_work_is_linear",
    ),
    "LLMServingSim: throughput 0 at another log interval": (
        "test_correctness_clock::test_watching_a_run_changes_nothing",
        "test_skipping::test_runs_equal_steps",
    ),
    # Prefix cache
    "inference-sim#196, LLMServingSim: hashes not chained, or wrong under chunks": (
        "test_correctness_cache::test_196_a_block_is_known_by_all_that_comes_before_it",
        "test_correctness_cache::test_196_chunks_leave_the_same_blocks_in_the_cache",
        "test_prompts_trie::test_hits_are_the_longest_common_prefix",
    ),
    "LLMServingSim#49, vllm#44431: hits counted more than once": (
        "test_correctness_cache::test_49_every_request_counts_once",
        "test_metrics::test_hit_rate_counts_each_admitted_request_once",
    ),
    "aiconfigurator#1070: a hit rate that is not realised": (
        "test_correctness_cache::test_1070_the_hit_rate_asked_for_is_the_one_that_comes_and_is_printed",
    ),
    "inference-sim#1167, #1317: shared blocks charged more than once": (
        "test_correctness_cache::test_1167_blocks_shared_by_many_are_charged_once",
        "test_correctness_cache::test_1317_caching_never_takes_more_blocks_for_the_same_batch",
    ),
    # Scheduling and preemption
    "dynamo#9718, vllm#18115: over-admission with chunked prefill": (
        "test_correctness_scheduling::test_9718_a_long_prompt_is_let_in_when_all_of_it_fits",
        "test_correctness_scheduling::test_9718_a_step_that_preempts_admits_nobody",
        "test_correctness_scheduling::test_9718_a_blocked_head_waits_and_so_do_those_behind_it",
        "test_correctness_scheduling::test_9718_a_prompt_larger_than_the_pool_is_rejected",
    ),
    "dynamo#12884, aisimulate#120: prefill-first taken for mixed": (
        "test_correctness_scheduling::test_12884_decodes_go_on_beside_a_long_prompt",
        "test_prefill_first::test_a_step_takes_prompts_or_decodes",
        "test_prefill_first::test_decodes_wait_while_prompts_come",
    ),
    "Vidur, TokenSim: prefill and decode never mixed, last come first served": (
        "test_correctness_scheduling::test_first_come_first_served_and_the_preempted_first_of_all",
        "test_correctness_scheduling::test_requests_of_one_priority_start_in_order_whatever_the_pool",
        "test_replica::test_a_long_prompt_goes_in_chunks_beside_decodes",
    ),
    "LLMServingSim#55, #61, #62, #64, #65, #66, #68: double completions and hangs under parallelism": (
        "test_correctness_scheduling::test_62_every_request_completes_once_however_the_model_is_cut",
        "test_correctness_scheduling::test_62_data_parallelism_inside_an_engine_is_refused",
    ),
    "LLMServingSim: preemption frees nothing": (
        "test_correctness_scheduling::test_preemption_frees_what_the_victim_alone_holds",
    ),
    # Memory and cost
    "aiconfigurator#912, #1537, #1539: MLA taken for GQA, windows charged in full": (
        "test_memory::test_window_layers_are_charged_their_window",
        "test_memory::test_kv_bytes_of_a_token_on_one_gpu",
        "test_cost_step::test_mla_reads_its_latent",
        "test_cost_step::test_window_layers_read_their_window_only",
    ),
    "aiconfigurator#619, #1228: memory counted twice": (
        "test_memory::test_lines_add_up_to_the_card",
        "test_memory::test_activations_that_do_not_fit_are_named",
    ),
    "LLMServingSim: KV size that is not the server's": (
        "test_memory::test_num_gpu_blocks_of_a_real_server_override_the_ledger",
    ),
    "inference-sim#930, #931, #962, #1510, #1511, #1512: latencies under disaggregation": (
        "test_disaggregation::test_930_idle_pools_and_a_free_link_are_one_replica",
        "test_disaggregation::test_930_a_transfer_shifts_the_first_gap_and_the_end_by_itself",
        "test_disaggregation::test_930_asynchronous_scheduling_cannot_hide_the_host_of_a_step_that_waits_for_its_prompt",
        "test_disaggregation::test_930_a_busy_prefill_pool_delays_no_token_after_the_first",
        "test_disaggregation::test_pools_off_change_nothing",
        "test_disaggregation_laws::test_every_request_is_served_once_or_rejected",
    ),
    "LLMServingSim: Q sent with K and V": (
        "test_disaggregation::test_bytes_are_those_of_whole_blocks_of_keys_and_values",
        "test_disaggregation::test_a_latent_is_sent_in_place_of_keys_and_values",
        "test_disaggregation::test_of_window_layers_only_the_window_is_sent",
        "test_disaggregation::test_what_the_decode_replica_has_cached_is_not_sent",
    ),
    "inference-sim#489: one step time for 1 and 2,048 prefill tokens": (
        "test_cost_step::test_step_time_grows_with_prefill_tokens",
        "test_cost_step::test_step_time_is_positive_and_monotone",
    ),
    "inference-sim#559, #1663: all experts read, communication free": (
        "test_cost_step::test_expert_bytes_read_are_those_of_experts_touched",
        "test_cost_step::test_two_gpus_take_more_than_half_the_time_of_one",
    ),
    "Splitwise: decode time without context": ("test_cost_step::test_doubling_context_adds_the_time_to_read_its_kv",),
    "Frontier#15: zeros are valid, caches stale": (
        "test_cost_step::test_a_step_that_takes_no_time_is_refused",
        "test_sweep::test_key_follows_all_that_a_run_depends_on",
        "test_hardware::test_the_hash_changes_with_any_number_and_with_no_word",
    ),
    "vidur#72: a profile of other software": ("test_hardware::test_every_group_of_numbers_states_its_source",),
    # Routing, scaling, workload
    "inference-sim#507, #1077: a router that knows the future, or nothing of the present": (
        "test_correctness_scheduling::test_507_a_burst_is_spread_by_what_was_just_sent",
        "test_correctness_scheduling::test_507_a_router_knows_no_more_than_has_happened",
        "test_replica::test_a_request_is_outstanding_until_after_the_tick_of_its_last_token",
    ),
    "inference-sim#1032, #1184, #1201: replay is not run": (
        "test_laws::test_1032_run_is_replay",
        "test_laws::test_the_arrivals_of_a_closed_loop_can_be_replayed",
        "test_workload::test_1032_a_saved_workload_replays_as_the_very_same_requests",
    ),
    "inference-sim#515, #516, #517: rounds of a chat": (
        "test_sessions::test_515_a_prompt_is_the_previous_prompt_its_answer_and_the_new_turn",
        "test_correctness_cache::test_515_a_round_hits_all_but_the_new_part",
        "test_clients::test_a_turn_comes_after_the_answer_to_the_one_before",
    ),
    "inference-sim#1299: the client's count of tokens taken for the server's": (
        "test_correctness_tokens::test_1299_a_trace_keeps_both_counts",
        "test_correctness_tokens::test_1299_the_servers_count_is_simulated",
        "test_correctness_tokens::test_1299_the_report_says_whose_count_it_was",
        "test_correctness_tokens::test_1299_a_measured_benchmark_is_replayed_with_the_servers_count",
    ),
    "Vidur: KV of all layers on every pipeline stage": (
        "test_pipeline::test_stages_share_the_weights_and_multiply_the_cache",
    ),
}

NOT_MODELLED_YET: dict[str, str] = {
    "LLMServingSim#48, #50: tiers of storage are free": "engine.kv_offloading_size=10 GB",
    "llm-d-inference-sim#277, #441: adapters share KV": "engine.enable_lora=true",
    "inference-sim#994, #1109: scaling": "cluster.autoscaling={}",
    "inference-sim#1522: mixed pools": "cluster.gpu=[h100-sxm-80gb, l4-24gb]",
    "inference-sim#1077: stale routers": "cluster.router_staleness=1 s",
}
"""Cases of what is not there yet, and a key that would ask for it: such a scenario is refused, never half obeyed."""


@cache
def names_in(file: str) -> set[str]:
    tree = ast.parse((HERE / f"{file}.py").read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("case", CASES)
def test_every_case_has_its_tests(case: str) -> None:
    assert CASES[case]
    for test in CASES[case]:
        file, _, name = test.partition("::")
        assert name in names_in(file), test


@pytest.mark.parametrize("case", NOT_MODELLED_YET)
def test_what_is_not_there_is_refused(case: str) -> None:
    with pytest.raises(ScenarioError) as error:
        scenario(NOT_MODELLED_YET[case])
    assert NOT_MODELLED_YET[case].partition("=")[0] in str(error.value)
