"""board_fleet.py - the panels of muster-fleet.json: keeping the SLO, its cost, and the error budget."""

from kinds import BAD, Dashboard, GOOD, PLAIN, Panel, Row, SERVICE, SERVICES, WARN, highest, quantiles, rate

MET = 'result="met",' + SERVICE
FLEET = Dashboard(
    "muster-fleet", "Muster / Fleet and SLO",
    "Do the services keep their SLO, what does it cost, and how fast is the error budget spent?",
    [SERVICES],
    [
        Row("Now", [
            Panel("Attainment", "Which share of the requests in the chosen time met the SLO? Failed requests missed "
                  "it; requests that their tenant's limits refused are not counted.", "percentunit",
                  [(f"sum(increase(muster_router_slo_requests_total{{{MET}}}[$__range]))"
                    f" / sum(increase(muster_router_slo_requests_total{{{SERVICE}}}[$__range]))", "met")],
                  "stat", 4, 5, [(None, BAD), (0.95, WARN), (0.99, GOOD)], 0, 1, 2, runbook="MusterErrorBudgetBurn"),
            Panel("Goodput", "How many requests a second meet the SLO now?", "reqps",
                  [(rate("muster_router_slo_requests_total", MET), "met")], "stat", 4, 5, [(None, PLAIN)], 0),
            Panel("Error budget left", "Which part of a three-day error budget is left? Below zero more requests "
                  "missed the SLO than the objective allows.", "percentunit",
                  [(f"1 - max(service:muster_slo_burn:rate3d{{{SERVICE}}})", "worst service")], "stat", 4, 5,
                  [(None, BAD), (0, WARN), (0.25, GOOD)], high=1, decimals=1, runbook="MusterErrorBudgetBurn"),
            Panel("Cost", "How many dollars an hour are billed now?", "currencyUSD",
                  [(f"sum(service:muster_cost:dollars_per_hour{{{SERVICE}}})", "an hour")], "stat", 4, 5,
                  [(None, PLAIN)], 0, decimals=2, runbook="MusterBudgetReached"),
            Panel("Cost of a million tokens", "What do a million generated tokens cost at the present load?",
                  "currencyUSD",
                  [(f"sum(service:muster_cost:dollars_per_hour{{{SERVICE}}}) / (sum(rate("
                    f"muster_router_generated_tokens_total{{{SERVICE}}}[$__rate_interval])) * 3600 / 1e6 > 0)",
                    "a million tokens")], "stat", 4, 5, [(None, PLAIN)], 0, decimals=2),
            Panel("Alerts", "How many alerts of Muster fire now?", "short",
                  [('count(ALERTS{alertname=~"Muster.*",alertstate="firing"}) or vector(0)', "firing")], "stat", 4, 5,
                  [(None, GOOD), (1, WARN)], 0),
        ]),
        Row("Service level", [
            Panel("Attainment and objective", "Does each service meet its objective? The dashed line is "
                  "services[].attainment.", "percentunit",
                  [(f"1 - service:muster_slo_misses:ratio_rate5m{{{SERVICE}}}", "{{service}}"),
                   (f"service:muster_slo_objective:ratio{{{SERVICE}}}", "{{service}} objective")], high=1,
                  runbook="MusterErrorBudgetBurn"),
            Panel("Burn rate", "How many times too fast is the error budget spent? Alerts compare a long and a short "
                  "window: 14.4 over an hour, 6 over six hours, 3 over a day, 1 over three days.", "none",
                  [(f"service:muster_slo_burn:rate{w}{{{SERVICE}}}", "{{service}} " + w)
                   for w in ("5m", "1h", "6h", "3d")], steps=[(None, GOOD), (1, WARN), (14.4, BAD)], low=0,
                  runbook="MusterErrorBudgetBurn"),
            Panel("Requests by result", "How many requests a second meet their SLO, and how many miss it?", "reqps",
                  [(rate("muster_router_slo_requests_total", SERVICE, "result"), "{{result}}")], stack=True, low=0),
            Panel("TTFT", "How long do clients wait for the first token? Points are single requests; their ids are in "
                  "the routers' logs. The dashed line is the SLO.", "s",
                  quantiles("muster_router_time_to_first_token_seconds", SERVICE)
                  + [(highest("muster_controller_slo_seconds", 'of="ttft",' + SERVICE, "service"), "{{service}} SLO")],
                  low=0, exemplars=True),
            Panel("TPOT", "How much time passes between tokens, as the mean of a request? The dashed line is the SLO.",
                  "s", quantiles("muster_router_time_per_output_token_seconds", SERVICE)
                  + [(highest("muster_controller_slo_seconds", 'of="tpot",' + SERVICE, "service"), "{{service}} SLO")],
                  low=0, exemplars=True),
            Panel("Whole requests", "How long does a request take from its arrival to its end?", "s",
                  quantiles("muster_router_request_seconds", SERVICE), low=0, exemplars=True),
            Panel("Requests by outcome", "How do requests end? broken: after the response had begun; client_left: the "
                  "client closed; refused: 4xx.", "reqps",
                  [(rate("muster_router_requests_total", SERVICE, "outcome"), "{{outcome}}")], stack=True, low=0),
            Panel("Tokens", "How many tokens a second are read, found in caches and written?", "suffix: tok/s",
                  [(rate("muster_router_prompt_tokens_total", SERVICE), "prompt"),
                   (rate("muster_router_cached_tokens_total", SERVICE), "of it cached"),
                   (rate("muster_router_generated_tokens_total", SERVICE), "generated")], low=0),
            Panel("Serving instances", "How many instances serve each service?", "short",
                  [(f'sum by (service) (pool:muster_instances:max{{phase="ready",{SERVICE}}})', "{{service}}")], low=0,
                  runbook="MusterNoReadyInstance"),
        ]),
        Row("Money", [
            Panel("Cost and budget", "What is billed an hour, and what may be? A service without a budget has no "
                  "dashed line.", "currencyUSD",
                  [(f"service:muster_cost:dollars_per_hour{{{SERVICE}}}", "{{service}}"),
                   (highest("muster_controller_budget_per_hour_dollars", SERVICE, "service"), "{{service}} budget")],
                  width=6, low=0, runbook="MusterBudgetReached"),
            Panel("Cost of a million output tokens", "How does the price of a token follow the load? Idle instances "
                  "make it rise.", "currencyUSD",
                  [(f"service:muster_cost:dollars_per_million_output_tokens{{{SERVICE}}}", "{{service}}")], width=6,
                  log=True),
            Panel("Cost since the store was made", "What has the whole fleet cost so far?", "currencyUSD",
                  [("max(muster_controller_cost_dollars)", "fleet")], width=6, low=0),
            Panel("Power", "How many watts do the instances of each service draw, as modelled?", "watt",
                  [(highest("muster_controller_watts", SERVICE, "service"), "{{service}}")], width=6, low=0,
                  runbook="MusterPowerLimit", quiet="only services with a power policy have it"),
        ]),
    ])
