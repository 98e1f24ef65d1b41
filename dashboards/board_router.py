"""board_router.py - the panels of muster-router.json: where requests wait and go, what caches save, and who sends
them.
"""

from kinds import (BAD, Dashboard, GOOD, NO_COLLECTOR, Panel, ROUTED, ROUTER, ROUTERS, Row, SERVICE, SERVICES, WARN,
                   gained, quantiles, rate)

OK = 'outcome="ok",'
ROUTER_BOARD = Dashboard(
    "muster-router", "Muster / Router",
    "Where do requests wait, where do they go, what do caches save, and who sends them?",
    [SERVICES, ROUTERS],
    [
        Row("Requests", [
            Panel("Requests by outcome", "How many requests a second end, and how?", "reqps",
                  [(rate("muster_router_requests_total", ROUTED, "outcome"), "{{outcome}}")], stack=True, low=0),
            Panel("In flight and held", "How many requests are at engines, and how many wait in routers?", "short",
                  [(f"sum by (instance) (muster_router_in_flight_requests{{{ROUTER}}})", "{{instance}} in flight"),
                   (f"sum by (instance) (muster_router_held_requests{{{ROUTER}}})", "{{instance}} held")], low=0,
                  runbook="MusterNoReadyInstance"),
            Panel("Use of the bounds", "How near is each router to its bounds? At 100 % it refuses requests, or "
                  "forgets blocks of its index.", "percentunit",
                  [(f"sum by (instance) (muster_router_in_flight_requests{{{ROUTER}}})"
                    f" / sum by (instance) (muster_router_in_flight_requests_max{{{ROUTER}}})",
                    "{{instance}} in flight"),
                   (f"sum by (instance) (muster_router_held_requests{{{ROUTER}}})"
                    f" / sum by (instance) (muster_router_held_requests_max{{{ROUTER}}})", "{{instance}} held"),
                   (f"sum by (instance) (muster_router_index_blocks{{{ROUTER}}})"
                    f" / sum by (instance) (muster_router_index_blocks_max{{{ROUTER}}})", "{{instance}} index")],
                  steps=[(None, GOOD), (0.8, WARN), (1, BAD)], low=0, runbook="MusterQueueBoundReached"),
            Panel("Time held", "How long do held requests wait for an instance?", "s",
                  quantiles("muster_router_hold_seconds", ROUTER), low=0, runbook="MusterNoReadyInstance",
                  quiet="no request has been held"),
            Panel("Refusals by reason", "Why are requests refused? full, held_full, held_long and displaced are bounds "
                  "of the router; late and policy are decisions.", "reqps",
                  [(rate("muster_router_refused_total", ROUTER, "reason"), "{{reason}}")], stack=True, low=0,
                  runbook="MusterQueueBoundReached"),
            Panel("Failed attempts", "Which attempts fail, and how many outputs go on at another engine?", "reqps",
                  [(rate("muster_router_retries_total", ROUTER, "failure"), "{{failure}}"),
                   (rate("muster_router_continued_total", ROUTER), "outputs continued")], low=0,
                  runbook="MusterRetriesHigh"),
            Panel("Moves", "How many requests change their instance while they run?", "reqps",
                  [(rate("muster_router_pd_handoffs_total", ROUTER), "prefill to decode"),
                   (rate("muster_router_migrations_total", ROUTER), "migrated"),
                   (rate("muster_router_migrations_dropped_total", ROUTER), "migrations dropped"),
                   (rate("muster_router_kv_fetches_total", ROUTER), "KV fetches"),
                   (rate("muster_router_slices_total", ROUTER, "result"), "slices {{result}}")], low=0),
            Panel("Endpoints", "How many endpoints take requests? unnamed: kept although the controller does not name "
                  "them; refused: for want of room.", "short",
                  [(f"sum by (instance) (muster_router_endpoints{{{ROUTER}}})", "{{instance}}"),
                   (f"sum by (instance) (muster_router_endpoints_unnamed{{{ROUTER}}})", "{{instance}} unnamed"),
                   (gained("muster_router_endpoints_refused_total", ROUTER, "instance"), "{{instance}} refused")],
                  low=0, runbook="MusterNoReadyInstance"),
            Panel("Age of the controller's reply", "Does the router still hear the controller? It goes on without "
                  "it.", "s",
                  [(f"max by (instance) (muster_router_sync_age_seconds{{{ROUTER}}})", "{{instance}}")],
                  steps=[(None, GOOD), (30, BAD)], low=0, runbook="MusterControllerSilent"),
        ]),
        Row("Caches", [
            Panel("Hit ratio", "Which share of the prompt tokens came from caches, and which did the prefix index "
                  "expect?", "percentunit",
                  [(rate("muster_router_cached_tokens_total", ROUTED) + " / "
                    + rate("muster_router_prompt_tokens_total", ROUTED), "hits"),
                   (rate("muster_router_expected_cached_tokens_total", ROUTED) + " / "
                    + rate("muster_router_prompt_tokens_total", ROUTED), "expected")], low=0, high=1,
                  runbook="MusterHitRatioCollapse"),
            Panel("Hits by kind of engine", "Are prefixes found where the router expects them, at engines of each "
                  "make? Of replies that name cached tokens.", "percentunit",
                  [(rate("muster_router_kind_cached_tokens_total", ROUTER, "kind") + " / ("
                    + rate("muster_router_kind_prompt_tokens_total", ROUTER, "kind") + " > 0)", "{{kind}} hits"),
                   (rate("muster_router_kind_expected_tokens_total", ROUTER, "kind") + " / ("
                    + rate("muster_router_kind_prompt_tokens_total", ROUTER, "kind") + " > 0)",
                    "{{kind}} expected")], low=0, high=1, runbook="MusterHitRatioCollapse"),
            Panel("Hit ratio, half an hour and a day", "Has the hit ratio collapsed? The alert compares these two.",
                  "percentunit",
                  [(f"service:muster_prompt_hits:ratio_rate30m{{{SERVICE}}}", "{{service}} 30m"),
                   (f"service:muster_prompt_hits:ratio_rate1d{{{SERVICE}}}", "{{service}} 1d")], low=0, high=1,
                  runbook="MusterHitRatioCollapse"),
            Panel("Prefix index", "How many blocks does the index of prefixes know, and how many does it forget at its "
                  "bound?", "short",
                  [(f"sum by (instance) (muster_router_index_blocks{{{ROUTER}}})", "{{instance}} blocks"),
                   (f"max by (instance) (delta(muster_router_index_evicted_blocks{{{ROUTER}}}[$__rate_interval]))",
                    "{{instance}} forgotten")], low=0, runbook="MusterIndexStale"),
            Panel("Memory of the index", "How much memory does the index take?", "bytes",
                  [(f"sum by (instance) (muster_router_index_bytes{{{ROUTER}}})", "{{instance}}")], low=0),
            Panel("Tokenizers", "How many tokenizers does a router hold? refused: of another digest; evicted: no "
                  "instance needs them.", "short",
                  [(f"max by (instance) (muster_router_tokenizers{{{ROUTER}}})", "{{instance}} held"),
                   (gained("muster_router_tokenizers_refused_total", ROUTER, "instance"), "{{instance}} refused"),
                   (gained("muster_router_tokenizers_evicted_total", ROUTER, "instance"), "{{instance}} evicted")],
                  low=0),
            Panel("Quarantined prompts", "How many prompts killed engines? refused ones are answered 422, suspects are "
                  "watched.", "short",
                  [(f"sum by (state) (muster_router_quarantined_prompts{{{ROUTER}}})", "{{state}}"),
                   (gained("muster_router_quarantine_forgotten_total", ROUTER), "forgotten")], low=0,
                  runbook="MusterPromptsQuarantined"),
        ]),
        Row("Decisions", [
            Panel("Time of a decision", "How long does the choice of an instance take?", "s",
                  quantiles("muster_router_decision_seconds", ROUTER), low=0),
            Panel("Policies in force", "Which policy of each kind decides?", "none",
                  [(f"max by (kind, row) (muster_router_policy_info{{{ROUTER}}})", "{{kind}}: {{row}}")], "states",
                  low=0, high=1),
            Panel("Error of the predicted TTFT", "How far is the predicted TTFT from the measured one, as the mean of "
                  "a request?", "s",
                  [(rate("muster_router_ttft_error_seconds_total", ROUTER) + " / "
                    + rate("muster_router_requests_total", OK + ROUTER), "mean error")], low=0),
            Panel("Outputs within their predicted P90", "Are output lengths predicted well? Nine of ten should be "
                  "within.", "percentunit",
                  [(rate("muster_router_length_predictions_total", 'within_p90="true",' + ROUTER) + " / "
                    + rate("muster_router_length_predictions_total", ROUTER), "within P90")], low=0, high=1,
                  steps=[(None, BAD), (0.75, WARN), (0.85, GOOD)], runbook="MusterPredictionsOff"),
            Panel("Cost of prediction", "How many tokens are spent on asking models how long outputs will be?",
                  "suffix: tok/s", [(rate("muster_router_question_tokens_total", ROUTER), "questions")], low=0),
            Panel("TTFT by service", "Which service waits for its first token?", "s",
                  quantiles("muster_router_time_to_first_token_seconds", ROUTED, "service", "{{service}}", (0.5, 0.99)),
                  low=0, exemplars=True),
        ]),
        Row("Tenants", [
            Panel("Requests by tenant", "Who sends how much? The ten busiest.", "reqps",
                  [("topk(10, " + rate("muster_router_tenant_requests_total", ROUTER, "tenant") + ")", "{{tenant}}")],
                  stack=True, low=0, width=6),
            Panel("Tokens by tenant", "Who uses the engines? Prompt tokens that were not cached, and generated ones.",
                  "suffix: tok/s",
                  [("topk(10, " + rate("muster_router_tenant_tokens_total", 'kind="generated",' + ROUTER, "tenant")
                    + ")", "{{tenant}} generated"),
                   ("topk(10, " + rate("muster_router_tenant_tokens_total", 'kind="prompt",' + ROUTER, "tenant")
                    + " - " + rate("muster_router_tenant_tokens_total", 'kind="cached",' + ROUTER, "tenant") + ")",
                    "{{tenant}} computed prompt")], low=0, width=6),
            Panel("In flight by tenant", "Who holds the places?", "short",
                  [(f"topk(10, sum by (tenant) (muster_router_tenant_in_flight_requests{{{ROUTER}}}))", "{{tenant}}")],
                  stack=True, low=0, width=6),
            Panel("Refused by limits", "Whose limits refuse requests?", "reqps",
                  [("topk(10, " + rate("muster_router_tenant_rejected_total", ROUTER, "tenant") + ")", "{{tenant}}")],
                  stack=True, low=0, width=6),
            Panel("Hit ratio by tenant", "Whose prompts does the cache save?", "percentunit",
                  [("topk(10, " + rate("muster_router_tenant_tokens_total", 'kind="cached",' + ROUTER, "tenant")
                    + " / (" + rate("muster_router_tenant_tokens_total", 'kind="prompt",' + ROUTER, "tenant")
                    + " > 0))", "{{tenant}}")], low=0, high=1, width=6),
            Panel("Refusals by policy and limits", "How many requests were refused because they would be late, by "
                  "their tenant's limits, or for their prompt?", "reqps",
                  [(rate("muster_router_late_refused_total", ROUTER), "late"),
                   (rate("muster_router_rate_limited_total", ROUTER), "tenant's limits"),
                   (rate("muster_router_held_displaced_total", ROUTER), "displaced"),
                   (rate("muster_router_quarantine_refused_total", ROUTER), "quarantined prompt")], stack=True, low=0,
                  width=6),
            Panel("Largest share of a tenant", "Does one tenant take the fleet?", "percentunit",
                  [("max(" + rate("muster_router_tenant_tokens_total", ROUTER, "tenant") + ") / "
                    + rate("muster_router_tenant_tokens_total", ROUTER), "largest share")], low=0, high=1, width=6),
            Panel("Fairness", "How much does the busiest tenant get, in times of the mean of those that send?", "none",
                  [("max(" + rate("muster_router_tenant_tokens_total", ROUTER, "tenant") + ") / avg("
                    + rate("muster_router_tenant_tokens_total", ROUTER, "tenant") + " > 0)", "busiest over mean")],
                  low=0, width=6),
        ]),
        Row("Edge", [
            Panel("Connections", "How many clients are connected, and to how many engines?", "short",
                  [(f"sum by (instance) (muster_router_http_connections{{{ROUTER}}})", "{{instance}} clients"),
                   (f"sum by (instance, state) (muster_router_upstream_connections{{{ROUTER}}})",
                    "{{instance}} upstream {{state}}")], low=0),
            Panel("Tunnels", "How many agents have dialled in, how many connections go through that, and how often is "
                  "one lost?", "short",
                  [(f"sum by (instance) (muster_router_tunnels{{{ROUTER}}})", "{{instance}} tunnels"),
                   (f"sum by (instance) (muster_router_tunnel_streams{{{ROUTER}}})", "{{instance}} connections"),
                   (gained("muster_router_tunnels_lost_total", ROUTER, "instance"), "{{instance}} lost")], low=0),
            Panel("Requests that never came to a handler", "What does the edge turn away? malformed, too large, late; "
                  "cut and closed connections too.", "reqps",
                  [(rate("muster_router_text_refused_total", ROUTER), "large bodies refused"),
                   (rate("muster_router_http_refused_total", ROUTER, "reason"), "refused {{reason}}"),
                   (rate("muster_router_http_cut_total", ROUTER, "reason"), "cut {{reason}}"),
                   (rate("muster_router_http_closed_total", ROUTER, "reason"), "closed {{reason}}")], low=0),
            Panel("Bytes", "How much goes in and out?", "Bps",
                  [(rate("muster_router_http_received_bytes_total", ROUTER), "received"),
                   (rate("muster_router_http_sent_bytes_total", ROUTER), "sent")], low=0),
            Panel("Memory of requests", "How much memory do requests take while they are read and answered?", "bytes",
                  [(f"sum by (instance) (muster_router_http_held_bytes{{{ROUTER}}})", "{{instance}} HTTP"),
                   (f"sum by (instance) (muster_router_text_bytes{{{ROUTER}}})", "{{instance}} large bodies")], low=0),
            Panel("Large bodies", "How long do text workers need for a large body?", "s",
                  quantiles("muster_router_text_seconds", ROUTER, of=(0.5, 0.99)), low=0,
                  quiet="no client has sent a large body"),
            Panel("Calls to engines", "Are connections to engines reused?", "cps",
                  [(rate("muster_router_upstream_reused_total", ROUTER), "reused"),
                   (rate("muster_router_upstream_connects_total", ROUTER), "connected"),
                   (rate("muster_router_upstream_stale_total", ROUTER), "stale"),
                   (rate("muster_router_upstream_refused_total", ROUTER), "refused"),
                   (rate("muster_router_upstream_local_total", ROUTER), "failed here")], low=0,
                  runbook="MusterRetriesHigh"),
            Panel("HTTP requests of any path", "How busy is the edge, and how often do its loops wake?", "cps",
                  [(rate("muster_router_http_requests_total", ROUTER), "requests"),
                   (rate("muster_router_loop_turns_total", ROUTER), "loop turns"),
                   (rate("muster_router_loop_posts_refused_total", ROUTER), "posts refused")], low=0),
            Panel("Names and signatures", "Do names resolve, and does the fleet sign its requests?", "cps",
                  [(rate("muster_router_name_lookups_failed_total", ROUTER), "lookups failed"),
                   (rate("muster_router_name_stale_total", ROUTER), "old addresses used"),
                   (rate("muster_router_signed_requests_total", ROUTER, "verdict"), "signed {{verdict}}")], low=0,
                  runbook="MusterForeignSignatures"),
            Panel("Lost lines and damaged files", "Could the router not write its log, or not read what its predictor "
                  "had learned?", "short",
                  [(f"max by (instance) (muster_router_log_lost_lines{{{ROUTER}}})", "{{instance}} log lines"),
                   (gained("muster_router_predictor_damaged_total", ROUTER), "damaged files")], low=0,
                  runbook="MusterLogLost"),
            Panel("Spans of traces", "Do spans of requests reach the collector, and how are the others lost?", "short",
                  [(gained("muster_router_trace_spans_total", ROUTER, "result"), "{{result}}")], low=0, stack=True,
                  runbook="MusterSpansLost", quiet=NO_COLLECTOR),
            Panel("Traced requests and calls to the collector", "Which requests are traced, and what does the collector "
                  "reply?", "short",
                  [(gained("muster_router_traced_requests_total", ROUTER, "decision"), "requests {{decision}}"),
                   (gained("muster_router_trace_exports_total", ROUTER, "result"), "calls {{result}}")], low=0,
                  runbook="MusterSpansLost", quiet=NO_COLLECTOR),
        ], collapsed=True),
    ])
