"""board_autoscaler.py - the panels of muster-autoscaler.json: how large the fleet is, why, what it waits for, and
whether the forecast was right.
"""

from kinds import (BAD, Dashboard, FLEET_POOLS, FLEET_SERVICES, GOOD, PLAIN, POOL, Panel, Row, SERVICE, Variable,
                   WARN, gained, highest, mean, rate)

AUTOSCALER = Dashboard(
    "muster-autoscaler", "Muster / Autoscaler",
    "How large is the fleet, why, what does it wait for, and was the forecast right?",
    [FLEET_SERVICES, FLEET_POOLS, Variable("lead", "Lead", choices=("30s", "1m", "2m", "5m", "10m"))],
    [
        Row("Decisions", [
            Panel("Target", "How many instances do the decisions aim at?", "short",
                  [(f"sum(pool:muster_target_instances:max{{{POOL}}})", "target")], "stat", 4, 4, [(None, PLAIN)], 0),
            Panel("Ready", "How many instances serve?", "short",
                  [(f'sum(pool:muster_instances:max{{phase="ready",{POOL}}})', "ready")], "stat", 4, 4,
                  [(None, BAD), (1, GOOD)], 0, runbook="MusterNoReadyInstance"),
            Panel("Starting", "How many instances have been asked for and do not serve yet?", "short",
                  [(f'sum(pool:muster_instances:max{{phase="starting",{POOL}}})', "starting")], "stat", 4, 4,
                  [(None, PLAIN)], 0),
            Panel("Draining", "How many instances finish their requests before they go?", "short",
                  [(f'sum(pool:muster_instances:max{{phase=~"draining|ending",{POOL}}})', "draining")], "stat", 4, 4,
                  [(None, PLAIN)], 0),
            Panel("Missing", "How many instances are wanted and not ready?", "short",
                  [(f"sum(pool:muster_missing_instances:max{{{POOL}}} > 0) or vector(0)", "missing")], "stat", 4, 4,
                  [(None, GOOD), (1, WARN)], 0, runbook="MusterPoolBelowTarget"),
            Panel("Held back", "For how many services does something hold the last decision back?", "short",
                  [(f"count(max by (service) (muster_controller_blocked_info{{{SERVICE}}}) == 1) or vector(0)",
                    "services")], "stat", 4, 4, [(None, GOOD), (1, WARN)], 0, runbook="MusterBudgetReached"),
            Panel("Target and ready by pool", "Does each pool have the instances that it should have? The dashed "
                  "lines are targets.", "short",
                  [(f"pool:muster_target_instances:max{{{POOL}}}", "{{service}}/{{pool}} ({{provider}}) target"),
                   (f'pool:muster_instances:max{{phase="ready",{POOL}}}', "{{service}}/{{pool}} ({{provider}})")],
                  low=0, width=12, runbook="MusterPoolBelowTarget"),
            Panel("Instances by phase", "In which phase are the instances of all pools?", "short",
                  [(f"sum by (phase) (pool:muster_instances:max{{{POOL}}})", "{{phase}}")], stack=True, low=0,
                  width=12),
            Panel("Reason of the last decision", "Why has the fleet the size that it has? A sentence holds while its "
                  "bar lasts; `muster explain` tells the numbers.", "none",
                  [(highest("muster_controller_reason_info", SERVICE, "service, reason"),
                    "{{service}}: {{reason}}")], "states", 12, low=0, high=1),
            Panel("What holds decisions back", "Which bound, window or missing proof keeps the fleet from its "
                  "target?", "none",
                  [(highest("muster_controller_blocked_info", SERVICE, "service, by"), "{{service}}: {{by}}")],
                  "states", 12, low=0, high=1, runbook="MusterBudgetReached",
                  quiet="nothing has held a decision back yet"),
            Panel("Actions", "How many launches, cancels, drains and withdrawn drains did decisions make?", "short",
                  [(gained("muster_controller_actions_total", "", "act"), "{{act}}")], stack=True, low=0),
            Panel("Load as the policy sees it", "What does the scaling policy measure? For `work` it is the number of "
                  "instances of the main pool that are needed.", "none",
                  [(highest("muster_controller_scale_load", SERVICE, "service, policy"), "{{service}} ({{policy}})")],
                  low=0),
            Panel("Roles", "How many instances compute prompts, outputs, or both?", "short",
                  [(highest("muster_controller_role_instances", SERVICE, "service, role"), "{{service}} {{role}}"),
                   (gained("muster_controller_role_changes_total", SERVICE, "service, role"),
                    "{{service}} {{role}} changes")], low=0),
        ]),
        Row("Forecast", [
            Panel("Arrivals and forecast", "Was the forecast right? The dashed line is what the policy expected "
                  "`Lead` ago; choose the lead of the pool.", "reqps",
                  [(highest("muster_controller_arrivals_per_second", SERVICE, "service"), "{{service}}"),
                   (f"max by (service) (muster_controller_forecast_arrivals_per_second{{{SERVICE}}} offset $lead)",
                    "{{service}} forecast")], low=0),
            Panel("Expected TTFT and measured P90", "Does the fleet answer as fast as the last decision expected? The "
                  "dashed line is the expectation.", "s",
                  [(f"histogram_quantile(0.9, sum by (le, service) (rate(muster_router_time_to_first_token_seconds_"
                    f"bucket{{{SERVICE}}}[$__rate_interval])))", "{{service}} P90"),
                   (highest("muster_controller_ttft_estimate_seconds", SERVICE, "service"), "{{service}} expected")],
                  low=0),
            Panel("Requests as decisions see them", "How much work is there? waiting: in engines, not computed yet; "
                  "held: in routers, for want of an instance.", "short",
                  [(highest("muster_controller_requests", SERVICE, "service, state"), "{{service}} {{state}}")], low=0,
                  runbook="MusterNoReadyInstance"),
        ]),
        Row("Launches", [
            Panel("Time to ready by phase", "Where does the time of a launch go? Means of the launches in the chosen "
                  "time: call (until the provider is asked), create, boot (until the agent reports), load, total.",
                  "s", [(mean("muster_controller_time_to_ready_seconds", POOL, "pool, phase", "$__range"),
                         "{{pool}} {{phase}}")], "bars", low=0, runbook="MusterPoolBelowTarget"),
            Panel("Time to ready, P90", "How long do the slowest launches take? Launches of an hour.", "s",
                  [(f'histogram_quantile(0.9, sum by (le, pool) (increase(muster_controller_time_to_ready_seconds_'
                    f'bucket{{phase="total",{POOL}}}[1h])))', "{{pool}}")], low=0),
            Panel("Learned lead by offer", "How long before its need must an instance be bought? Learned from "
                  "launches.", "s",
                  [(highest("muster_controller_offer_lead_seconds", "", "provider, offer"),
                    "{{offer}} ({{provider}})")], low=0),
            Panel("Learned lead by phase", "Which part of an offer's lead is long? schedule and node: until a node takes "
                  "it; pull: until its container runs; load; warm.", "s",
                  [(highest("muster_controller_offer_phase_seconds", "", "offer, phase"), "{{offer}} {{phase}}")],
                  stack=True, low=0, quiet="no provider tells the phases of its launches"),
            Panel("Launches by phase, P90", "How long do the slowest launches take in each phase? Launches of an hour.",
                  "s", [(f'histogram_quantile(0.9, sum by (le, phase) (increase(muster_controller_lead_phase_seconds_'
                         f'bucket{{{POOL}}}[1h])))', "{{phase}}")], low=0,
                  quiet="no provider tells the phases of its launches"),
            Panel("Room of offers", "How many instances do the machines behind an offer hold?", "short",
                  [(highest("muster_controller_offer_room_instances", "", "provider, offer"),
                    "{{offer}} ({{provider}})")], low=0, quiet="no offer is made of nodes"),
            Panel("Refused launches", "Who refuses us, and why? capacity: sold out; quota: our limit; auth and "
                  "invalid: until somebody changes something.", "short",
                  [(gained("muster_controller_create_failures_total", "", "provider, offer, class") + " > 0",
                    "{{offer}} ({{provider}}) {{class}}")], stack=True, low=0, runbook="MusterStockOut",
                  quiet="no launch has been refused"),
            Panel("Offers that may be asked", "Which offers are left alone because they were refused lately?", "none",
                  [(highest("muster_controller_offer_available", "", "provider, offer"),
                    "{{offer}} ({{provider}})")], "states", low=0, high=1, runbook="MusterStockOut"),
            Panel("Prices", "What does an instance of each offer cost an hour?", "currencyUSD",
                  [(highest("muster_controller_offer_price_per_hour_dollars", "", "provider, offer"),
                    "{{offer}} ({{provider}})")], low=0),
            Panel("Instances taken away", "How many instances did a provider take, or announce to take?", "short",
                  [(gained("muster_controller_instances_lost_total", "", "offer"), "{{offer}}")], stack=True, low=0,
                  runbook="MusterInstancesLost", quiet="no provider has taken an instance"),
            Panel("Orphans", "Is anything billed that belongs to no intent? adopted and removed ones are counted.",
                  "short",
                  [(highest("muster_controller_orphans", "", "provider"), "orphans at {{provider}}"),
                   (gained("muster_controller_strays_removed_total", "", "provider"), "removed at {{provider}}"),
                   (gained("muster_controller_adopted_total", ""), "adopted"),
                   (gained("muster_controller_duplicates_total", ""), "duplicates")], low=0,
                  runbook="MusterOrphans"),
            Panel("Engine restarts", "Do agents start engines again?", "short",
                  [(gained("muster_controller_engine_restarts_total", POOL, "service, pool"),
                    "{{service}}/{{pool}}")], stack=True, low=0, runbook="MusterInstanceRestartLoop"),
        ]),
        Row("Providers", [
            Panel("Calls by result", "What is asked of each provider, and does it answer?", "cps",
                  [(rate("muster_controller_cloud_calls_total", "", "provider, call, result"),
                    "{{provider}} {{call}} {{result}}")], low=0),
            Panel("Age of the last listing", "How old is what we know of each provider? A stale listing ends and "
                  "adopts nothing.", "s",
                  [(highest("muster_controller_listing_age_seconds", "", "provider"), "{{provider}}")],
                  steps=[(None, GOOD), (120, BAD)], low=0, runbook="MusterListingStale"),
            Panel("Calls that wait", "Does a provider's budget or queue hold calls back? failed listings are counted "
                  "too.", "short",
                  [(highest("muster_controller_cloud_calls_under_way", "", "provider"), "{{provider}} under way"),
                   (gained("muster_controller_cloud_calls_deferred_total", "", "provider"), "{{provider}} deferred"),
                   (gained("muster_controller_list_failures_total", "", "provider"), "{{provider}} lists failed")],
                  low=0, runbook="MusterListingStale"),
            Panel("Calls to Kubernetes", "What is asked of the API server, and does it answer?", "cps",
                  [(rate("muster_controller_kube_calls_total", "", "verb, resource, code"),
                    "{{verb}} {{resource}} {{code}}")], low=0, quiet="no provider is a Kubernetes cluster"),
            Panel("Time of calls to Kubernetes", "Is the API server slow, or our budget of calls small?", "s",
                  [(mean("muster_controller_kube_call_seconds", "", "verb"), "{{verb}}"),
                   (rate("muster_controller_kube_waited_seconds_total", ""), "waited, each second")],
                  low=0, quiet="no provider is a Kubernetes cluster"),
        ]),
    ])
