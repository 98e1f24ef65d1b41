"""panels.py - lists every panel of the dashboards: its title, the question that it answers, its unit, its queries
and how it is drawn. generate.py makes the JSON of Grafana from this table, render.py pictures without Grafana.

A query uses Grafana's variables. `$service`, `$pool` and `$instance` are patterns, so that all of them together
match series that lack the label. A controller's gauges are taken as the maximum over its replicas. A panel that
shows nothing in a healthy fleet says why in `quiet`.
"""

from dataclasses import dataclass, field


@dataclass
class Panel:
    title: str
    question: str  # what a person learns from it; becomes the description
    unit: str
    queries: list  # (expression, legend)
    kind: str = "timeseries"  # timeseries, stat, bars, table, states
    width: int = 8  # of 24 columns
    height: int = 8
    steps: list = field(default_factory=list)  # (from this value on, colour); the first is the base colour
    low: float = None
    high: float = None
    decimals: int = None
    stack: bool = False
    log: bool = False  # a logarithmic axis
    exemplars: bool = False  # points of single requests, by request id
    runbook: str = None  # the alert whose page says what to do
    quiet: str = None  # why it may be empty


@dataclass
class Row:
    title: str
    panels: list
    collapsed: bool = False


@dataclass
class Variable:
    name: str
    label: str
    query: str = None  # of the values; all of them together are a choice
    choices: tuple = ()  # instead of a query; the first is chosen


@dataclass
class Dashboard:
    uid: str
    title: str
    about: str
    variables: list
    rows: list


GOOD, WARN, BAD, PLAIN = "green", "orange", "red", "blue"

SERVICE = 'service=~"$service"'
POOL = SERVICE + ',pool=~"$pool"'
ROUTER = 'instance=~"$instance"'
ROUTED = SERVICE + "," + ROUTER
ENGINE = POOL + ',instance=~"$instance"'

NO_COLLECTOR = "no collector of traces is named (trace_endpoint)"

SERVICES = Variable("service", "Service", "label_values(muster_router_slo_requests_total, service)")
FLEET_SERVICES = Variable("service", "Service", "label_values(muster_controller_target_instances, service)")
FLEET_POOLS = Variable("pool", "Pool", 'label_values(muster_controller_target_instances{service=~"$service"}, pool)')
ROUTERS = Variable("instance", "Router", "label_values(muster_router_endpoints, instance)")
ENGINE_SERVICES = Variable("service", "Service", "label_values(muster_engine_requests_running, service)")
ENGINE_POOLS = Variable("pool", "Pool", 'label_values(muster_engine_requests_running{service=~"$service"}, pool)')
ENGINES = Variable("instance", "Engine",
                   'label_values(muster_engine_requests_running{service=~"$service",pool=~"$pool"}, instance)')
CONTROLLERS = Variable("instance", "Controller", "label_values(muster_controller_tick_seconds_count, instance)")


def rate(metric, where, by=""):
    """The sum of a counter's rates."""
    group = f" by ({by})" if by else ""
    return f"sum{group} (rate({metric}{{{where}}}[$__rate_interval]))"


def gained(metric, where, by=""):
    """What a counter gained in each step, for events that are few."""
    group = f" by ({by})" if by else ""
    return f"sum{group} (increase({metric}{{{where}}}[$__rate_interval]))"


def quantiles(metric, where, by="", legend="", of=(0.5, 0.9, 0.99)):
    """Quantiles of a histogram."""
    group = "le, " + by if by else "le"
    name = f" {legend}" if legend else ""
    return [(f"histogram_quantile({q}, sum by ({group}) (rate({metric}_bucket{{{where}}}[$__rate_interval])))",
             f"P{q * 100:g}{name}") for q in of]


def mean(metric, where, by="", span="$__rate_interval"):
    """The mean of a histogram's values."""
    group = f" by ({by})" if by else ""
    return (f"sum{group} (increase({metric}_sum{{{where}}}[{span}]))"
            f" / (sum{group} (increase({metric}_count{{{where}}}[{span}])) > 0)")


def highest(metric, where, by):
    """A gauge of the controller: the maximum over its replicas."""
    return f"max by ({by}) ({metric}{{{where}}})"


# ---- fleet and SLO ----

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

# ---- autoscaler ----

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

# ---- router ----

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

# ---- engine and GPU ----

ANY_ENGINE = 'instance=~"$instance"'
OTHER_MAKES = "only engines of these makes have it"
DCGM = "needs NVIDIA's DCGM exporter on the nodes"


def by_instance(metric):
    """A gauge of engines of another make."""
    return f"sum by (instance) ({metric}{{{ANY_ENGINE}}})"


ENGINE_BOARD = Dashboard(
    "muster-engine", "Muster / Engine and GPU",
    "What do engines compute, how full is their memory, and are their steps as fast as the model says?",
    [ENGINE_SERVICES, ENGINE_POOLS, ENGINES],
    [
        Row("Batch", [
            Panel("Running and waiting", "How many requests do the engines compute, and how many wait? paused: their "
                  "reader is slow.", "short",
                  [(f"sum(muster_engine_requests_running{{{ENGINE}}})", "running"),
                   (f"sum(muster_engine_requests_waiting{{{ENGINE}}})", "waiting"),
                   (f"sum(muster_engine_requests_paused{{{ENGINE}}})", "paused")], stack=True, low=0, width=6,
                  runbook="MusterEngineQueueFull"),
            Panel("Batch by engine", "How large is the batch of each engine?", "short",
                  [(f"sum by (instance) (muster_engine_requests_running{{{ENGINE}}})", "{{instance}}")], low=0,
                  width=6),
            Panel("Waiting by engine", "Where do requests wait for admission?", "short",
                  [(f"sum by (instance) (muster_engine_requests_waiting{{{ENGINE}}})", "{{instance}}")], low=0, width=6,
                  runbook="MusterEngineQueueFull"),
            Panel("Tokens a second", "How many tokens do engines read and write, and for how many comes the KV from "
                  "a peer?", "suffix: tok/s",
                  [(rate("muster_engine_prompt_tokens_total", ENGINE), "prompt"),
                   (rate("muster_engine_kv_fetched_tokens_total", ENGINE), "fetched from peers"),
                   (rate("muster_engine_generation_tokens_total", ENGINE), "generated")], low=0, width=6),
            Panel("Tokens of a step", "How large are the batches?", "suffix: tok",
                  quantiles("muster_engine_step_tokens", ENGINE), low=0, width=6),
            Panel("Owed prompt tokens", "How many prompt tokens has each engine accepted and not computed?",
                  "suffix: tok",
                  [(f"sum by (instance) (muster_engine_owed_prompt_tokens{{{ENGINE}}})", "{{instance}}")], low=0,
                  width=6),
            Panel("Preemptions and stalls", "Do running requests lose their pages or their places, and do devices "
                  "stall?", "cps",
                  [(rate("muster_engine_preemptions_total", ENGINE), "preempted"),
                   (rate("muster_engine_parked_total", ENGINE), "parked"),
                   (rate("muster_engine_swaps_total", ENGINE), "swapped"),
                   (rate("muster_engine_stalls_total", ENGINE), "stalled")], low=0, width=6,
                  runbook="MusterKVExhausted"),
            Panel("Ended requests", "How do requests end at engines, and how many are refused?", "reqps",
                  [(rate("muster_engine_requests_finished_total", ENGINE, "reason"), "{{reason}}"),
                   (rate("muster_engine_requests_refused_total", ENGINE), "refused, queue full")], stack=True, low=0,
                  width=6, runbook="MusterEngineQueueFull"),
        ]),
        Row("Latency", [
            Panel("TTFT at engines", "How long does a request wait in the engine for its first token?", "s",
                  quantiles("muster_engine_time_to_first_token_seconds", ENGINE), low=0),
            Panel("Gap between tokens", "How regular are the tokens? A mean hides stalls, single gaps show them.", "s",
                  quantiles("muster_engine_inter_token_latency_seconds", ENGINE), low=0),
            Panel("TPOT at engines", "What is a request's mean gap?", "s",
                  quantiles("muster_engine_time_per_output_token_seconds", ENGINE), low=0),
            Panel("Queue, prefill, decode", "Where does a request spend its time? Means of requests.", "s",
                  [(mean("muster_engine_request_queue_seconds", ENGINE), "queue"),
                   (mean("muster_engine_request_prefill_seconds", ENGINE), "prefill"),
                   (mean("muster_engine_request_decode_seconds", ENGINE), "decode")], stack=True, low=0),
            Panel("Whole requests at engines", "How long does a request stay in an engine?", "s",
                  quantiles("muster_engine_request_seconds", ENGINE), low=0),
            Panel("Lengths", "How long are prompts and outputs? Medians and P90.", "suffix: tok",
                  quantiles("muster_engine_request_prompt_tokens", ENGINE, legend="prompt", of=(0.5, 0.9))
                  + quantiles("muster_engine_request_generation_tokens", ENGINE, legend="output", of=(0.5, 0.9)),
                  low=0),
        ]),
        Row("Steps and their model", [
            Panel("Time of a step", "How long does one pass of the model take?", "s",
                  quantiles("muster_engine_step_seconds", ENGINE), low=0),
            Panel("Measured over estimated step time", "Is the step-time model right? At 1 it is; routing and scaling "
                  "decide by it.", "none",
                  [(rate("muster_engine_step_seconds_sum", ENGINE, "instance") + " / ("
                    + rate("muster_engine_step_predicted_seconds_total", ENGINE, "instance") + " > 0)",
                    "{{instance}}"),
                   (f"max(muster_engine_perf_ratio_p90{{{ENGINE}}})", "P90 of steps, worst engine")],
                  steps=[(None, GOOD), (1.5, BAD)], low=0, runbook="MusterStepsSlow"),
            Panel("Coefficients of the model", "What does a step, a prompt token, a decoding session, a token read and "
                  "an attended token cost? Means over engines.", "s",
                  [(f"avg by (term) (muster_engine_perf_coefficient_seconds{{{ENGINE}}})", "{{term}}")], low=0),
            Panel("Steps behind the model", "How many steps has each engine learned from?", "short",
                  [(f"max by (instance) (muster_engine_perf_samples{{{ENGINE}}})", "{{instance}}")], low=0),
            Panel("Clock and throttling", "At which share of full speed does each engine run, and how much does it "
                  "sleep for its share?", "percentunit",
                  [(f"max by (instance) (muster_engine_clock_ratio{{{ENGINE}}})", "{{instance}} clock"),
                   (rate("muster_engine_throttled_seconds_total", ENGINE, "instance"), "{{instance}} asleep")],
                  low=0, high=1),
            Panel("Stalled for", "How long has a device held work and made no step?", "s",
                  [(f"max by (instance) (muster_engine_stalled_seconds{{{ENGINE}}})", "{{instance}}")], low=0,
                  steps=[(None, GOOD), (1, BAD)], runbook="MusterEngineStalled"),
        ]),
        Row("KV memory", [
            Panel("KV in use", "Which share of the KV pages do requests hold?", "percentunit",
                  [(f"max by (instance) (muster_engine_kv_usage_ratio{{{ENGINE}}})", "{{instance}}")], low=0, high=1,
                  steps=[(None, GOOD), (0.9, WARN), (0.95, BAD)], runbook="MusterKVExhausted"),
            Panel("Pages by state", "How many pages are free, held by requests, or cached for the next?", "short",
                  [(f"sum by (state) (muster_engine_kv_pages{{{ENGINE}}})", "{{state}}")], stack=True, low=0),
            Panel("Prefix cache", "Which share of the prompt tokens is found in the engines' caches?", "percentunit",
                  [(rate("muster_engine_prefix_cache_hits_total", ENGINE, "instance") + " / ("
                    + rate("muster_engine_prefix_cache_queries_total", ENGINE, "instance") + " > 0)",
                    "{{instance}}")], low=0, high=1, runbook="MusterHitRatioCollapse"),
            Panel("Pages that move", "How many pages are evicted, copied on write or swapped?", "cps",
                  [(rate("muster_engine_kv_evictions_total", ENGINE), "evicted"),
                   (rate("muster_engine_kv_pages_copied_total", ENGINE), "copied on write"),
                   (rate("muster_engine_kv_pages_swapped_total", ENGINE, "direction"), "swapped {{direction}}")],
                  low=0),
            Panel("KV between engines", "How do fetches of a prefix from a peer end?", "cps",
                  [(rate("muster_engine_kv_fetches_total", ENGINE, "end"), "{{end}}")], low=0),
            Panel("KV sent to peers", "How much KV do engines send?", "Bps",
                  [(rate("muster_engine_kv_sent_bytes_total", ENGINE, "instance"), "{{instance}}")], low=0),
        ]),
        Row("Engines of other makes", [
            Panel("Running and waiting, other engines", "How busy are vLLM, SGLang and llama-server?", "short",
                  [(by_instance("vllm:num_requests_running"), "{{instance}} vLLM running"),
                   (by_instance("vllm:num_requests_waiting"), "{{instance}} vLLM waiting"),
                   (by_instance("sglang:num_running_reqs"), "{{instance}} SGLang running"),
                   (by_instance("sglang:num_queue_reqs"), "{{instance}} SGLang waiting"),
                   (by_instance("llamacpp:requests_processing"), "{{instance}} llama-server running"),
                   (by_instance("llamacpp:requests_deferred"), "{{instance}} llama-server waiting")],
                  low=0, quiet=OTHER_MAKES),
            Panel("KV in use, other engines", "How full is their KV memory?", "percentunit",
                  [(by_instance("vllm:kv_cache_usage_perc"), "{{instance}} vLLM"),
                   (by_instance("sglang:token_usage"), "{{instance}} SGLang")], low=0, high=1, quiet=OTHER_MAKES),
            Panel("Prefix cache, other engines", "What do their caches save?", "percentunit",
                  [(rate("vllm:prefix_cache_hits_total", ANY_ENGINE, "instance") + " / ("
                    + rate("vllm:prefix_cache_queries_total", ANY_ENGINE, "instance") + " > 0)", "{{instance}} vLLM"),
                   (by_instance("sglang:cache_hit_rate"), "{{instance}} SGLang")], low=0, high=1, quiet=OTHER_MAKES),
            Panel("Tokens a second, other engines", "How much do they generate?", "suffix: tok/s",
                  [(rate("vllm:generation_tokens_total", ANY_ENGINE, "instance"), "{{instance}} vLLM"),
                   (by_instance("sglang:gen_throughput"), "{{instance}} SGLang"),
                   (rate("llamacpp:tokens_predicted_total", ANY_ENGINE, "instance"), "{{instance}} llama-server")],
                  low=0, quiet=OTHER_MAKES),
            Panel("TTFT, vLLM", "How long do requests wait for a first token at vLLM?", "s",
                  quantiles("vllm:time_to_first_token_seconds", ANY_ENGINE, of=(0.5, 0.99)), low=0, quiet=OTHER_MAKES),
            Panel("Gap between tokens, vLLM", "How regular are vLLM's tokens?", "s",
                  quantiles("vllm:inter_token_latency_seconds", ANY_ENGINE, of=(0.5, 0.99)), low=0, quiet=OTHER_MAKES),
        ], collapsed=True),
        Row("Agents of engines of other makes", [
            Panel("Ready, as agents see it", "Which engines of other makes take requests, and how often were they "
                  "started again?", "short",
                  [(f"max by (instance, kind) (muster_agent_engine_ready{{{ANY_ENGINE}}})", "{{instance}} {{kind}}"),
                   (by_instance("muster_agent_engine_restarts"), "{{instance}} restarts")], low=0, width=6,
                  quiet=OTHER_MAKES),
            Panel("Load, as agents see it", "What do routers get told of their load?", "short",
                  [(by_instance("muster_agent_engine_running_requests"), "{{instance}} running"),
                   (by_instance("muster_agent_engine_waiting_requests"), "{{instance}} waiting")], low=0, width=6,
                  quiet=OTHER_MAKES),
            Panel("KV, as agents see it", "Which share of their KV memory do running requests hold?", "percentunit",
                  [(by_instance("muster_agent_engine_kv_tokens") + " / ("
                    + by_instance("muster_agent_engine_kv_tokens_max") + " > 0)", "{{instance}}")], low=0, high=1,
                  width=6, quiet=OTHER_MAKES),
            Panel("Prefix cache since their start", "Which share of all their prompt tokens came from their caches?",
                  "percentunit",
                  [(by_instance("muster_agent_engine_cached_tokens") + " / ("
                    + by_instance("muster_agent_engine_prompt_tokens") + " > 0)", "{{instance}}")], low=0, high=1,
                  width=6, quiet=OTHER_MAKES),
            Panel("Done since their start", "How many requests and tokens have they finished?", "short",
                  [(by_instance("muster_agent_engine_requests"), "{{instance}} requests"),
                   (by_instance("muster_agent_engine_generated_tokens"), "{{instance}} tokens")], low=0, log=True,
                  width=6, quiet=OTHER_MAKES),
            Panel("KV events", "Do events come, and how much of their caches do routers know?", "short",
                  [(by_instance("muster_agent_kv_connected"), "{{instance}} connected"),
                   (by_instance("muster_agent_kv_blocks"), "{{instance}} their blocks"),
                   (by_instance("muster_agent_kv_keys"), "{{instance}} our blocks")], low=0, width=6,
                  quiet="only vLLM and SGLang publish events"),
            Panel("KV events that failed", "Were messages lost or malformed, and which blocks are left out?", "short",
                  [(by_instance("muster_agent_kv_gaps"), "{{instance}} gaps"),
                   (by_instance("muster_agent_kv_malformed"), "{{instance}} malformed"),
                   (f"sum by (instance, reason) (muster_agent_kv_skipped_blocks{{{ANY_ENGINE}}})",
                    "{{instance}} {{reason}}"),
                   (by_instance("muster_agent_kv_messages"), "{{instance}} messages")], low=0, width=6,
                  quiet="only vLLM and SGLang publish events"),
            Panel("Agents and routers", "How many routers follow each engine, do they sign, and is the log written?",
                  "short",
                  [(by_instance("muster_agent_followers"), "{{instance}} routers"),
                   (gained("muster_agent_signed_requests_total", ANY_ENGINE, "verdict"), "signed {{verdict}}"),
                   (f"max(muster_agent_log_lost_lines{{{ANY_ENGINE}}})", "lost log lines")], low=0, width=6,
                  runbook="MusterForeignSignatures", quiet=OTHER_MAKES),
        ], collapsed=True),
        Row("GPU", [
            Panel("GPU utilisation", "Do the GPUs compute?", "percent",
                  [("avg by (Hostname, gpu) (DCGM_FI_DEV_GPU_UTIL)", "{{Hostname}} {{gpu}}")], low=0, high=100,
                  quiet=DCGM),
            Panel("GPU memory", "How much memory of the GPUs is used?", "bytes",
                  [("max by (Hostname, gpu) (DCGM_FI_DEV_FB_USED) * 1048576", "{{Hostname}} {{gpu}}")], low=0,
                  quiet=DCGM),
            Panel("GPU power", "How many watts do the GPUs draw?", "watt",
                  [("max by (Hostname, gpu) (DCGM_FI_DEV_POWER_USAGE)", "{{Hostname}} {{gpu}}")], low=0, quiet=DCGM),
            Panel("GPU temperature", "How hot are the GPUs?", "celsius",
                  [("max by (Hostname, gpu) (DCGM_FI_DEV_GPU_TEMP)", "{{Hostname}} {{gpu}}")], low=0,
                  steps=[(None, GOOD), (85, BAD)], quiet=DCGM),
            Panel("GPU clock", "At which clock do the streaming multiprocessors run?", "hertz",
                  [("max by (Hostname, gpu) (DCGM_FI_DEV_SM_CLOCK) * 1e6", "{{Hostname}} {{gpu}}")], low=0,
                  quiet=DCGM),
            Panel("GPU errors", "Which Xid error did each GPU report last?", "none",
                  [("max by (Hostname, gpu) (DCGM_FI_DEV_XID_ERRORS)", "{{Hostname}} {{gpu}}")], low=0,
                  steps=[(None, GOOD), (1, BAD)], runbook="MusterEngineStalled", quiet=DCGM),
        ], collapsed=True),
        Row("Edge of the engines", [
            Panel("What is served", "Which model, digest and version does each engine serve?", "none",
                  [(f"max by (instance, model, digest, numerics, version) (muster_engine_info{{{ENGINE}}})",
                    "{{instance}}")], "table", 12),
            Panel("Policies of the step", "Which policy of each kind decides in the engines?", "none",
                  [(f"count by (kind, row) (muster_engine_policy_info{{{ENGINE}}} == 1)", "{{kind}}: {{row}}")],
                  "table", 12),
            Panel("HTTP replies", "What do engines reply?", "reqps",
                  [(rate("muster_engine_http_requests_total", ENGINE, "path, status"), "{{path}} {{status}}")], low=0),
            Panel("Connections of engines", "How many connections are open, and which were turned away?", "short",
                  [(f"sum by (instance) (muster_engine_http_connections{{{ENGINE}}})", "{{instance}}"),
                   (gained("muster_engine_text_refused_total", ENGINE), "large bodies refused"),
                   (gained("muster_engine_http_refused_total", ENGINE, "reason"), "refused {{reason}}"),
                   (gained("muster_engine_http_cut_total", ENGINE, "reason"), "cut {{reason}}"),
                   (gained("muster_engine_http_closed_total", ENGINE, "reason"), "closed {{reason}}")], low=0),
            Panel("Large bodies at engines", "How long do text workers of engines need?", "s",
                  quantiles("muster_engine_text_seconds", ENGINE, of=(0.5, 0.99)), low=0,
                  quiet="no client has sent a large body to an engine"),
            Panel("Memory of large bodies", "How many bytes wait for text workers?", "bytes",
                  [(f"sum by (instance) (muster_engine_text_bytes{{{ENGINE}}})", "{{instance}}")], low=0, width=12),
            Panel("Signatures and lost log lines", "Are requests of routers signed, and is the log written?", "short",
                  [(gained("muster_engine_signed_requests_total", ENGINE, "verdict"), "signed {{verdict}}"),
                   (f"max(muster_engine_log_lost_lines{{{ENGINE}}})", "lost log lines")], low=0, width=12,
                  runbook="MusterForeignSignatures"),
            Panel("Spans of engines", "Do engines' spans of requests reach the collector, and how are the others lost?",
                  "short", [(gained("muster_engine_trace_spans_total", ENGINE, "result"), "{{result}}")], low=0, width=12,
                  stack=True, runbook="MusterSpansLost", quiet=NO_COLLECTOR),
            Panel("Traced requests and calls of engines to the collector", "Which requests do engines trace, and what does "
                  "the collector reply?", "short",
                  [(gained("muster_engine_traced_requests_total", ENGINE, "decision"), "requests {{decision}}"),
                   (gained("muster_engine_trace_exports_total", ENGINE, "result"), "calls {{result}}")], low=0, width=12,
                  runbook="MusterSpansLost", quiet=NO_COLLECTOR),
        ], collapsed=True),
    ])

# ---- controller ----

CONTROLLER = 'instance=~"$instance"'
MUSTER_JOBS = 'job=~".*muster.*"'
CONTROLLER_BOARD = Dashboard(
    "muster-controller", "Muster / Controller health",
    "Does the control plane hear the fleet, keep its pace and write its store?",
    [CONTROLLERS],
    [
        Row("Now", [
            Panel("Ticks a second", "Does the controller decide? It ticks about once a second.", "cps",
                  [(rate("muster_controller_tick_seconds_count", CONTROLLER), "ticks")], "stat", 4, 4,
                  [(None, BAD), (0.5, GOOD)], 0, decimals=2, runbook="MusterTicksLate"),
            Panel("Routers heard", "How many routers report?", "short",
                  [(f'max(muster_controller_routers{{state="fresh",{CONTROLLER}}})', "fresh")], "stat", 4, 4,
                  [(None, BAD), (1, GOOD)], 0, runbook="MusterShrinkHeld"),
            Panel("Instances heard", "Which share of the serving instances has reported lately?", "percentunit",
                  [(f'sum(muster_controller_reporting_instances{{state="fresh",{CONTROLLER}}})'
                    f" / (sum(muster_controller_reporting_instances{{{CONTROLLER}}}) > 0)", "fresh")], "stat", 4, 4,
                  [(None, BAD), (0.9, GOOD)], 0, 1, runbook="MusterReportsStale"),
            Panel("Failed writes", "How many records could not be written in the chosen time?", "short",
                  [(f"sum(increase(muster_controller_store_failures_total{{{CONTROLLER}}}[$__range]))", "failed")],
                  "stat", 4, 4, [(None, GOOD), (1, BAD)], 0, runbook="MusterStoreFailing"),
            Panel("Unreadable records", "How many stored records are set aside?", "short",
                  [(f"max(muster_controller_unreadable_records{{{CONTROLLER}}})", "records")], "stat", 4, 4,
                  [(None, GOOD), (1, WARN)], 0, runbook="MusterRecordsUnreadable"),
            Panel("Targets down", "How many targets can Prometheus not read?", "short",
                  [('count(up{job=~".*muster.*"} == 0) or vector(0)', "down")], "stat", 4, 4,
                  [(None, GOOD), (1, WARN)], 0, runbook="MusterScrapeFailed"),
        ]),
        Row("Pace", [
            Panel("Time of a tick", "How long do observing, planning and acting take?", "s",
                  quantiles("muster_controller_tick_seconds", CONTROLLER), low=0, runbook="MusterTicksLate"),
            Panel("Late ticks and steps of the date", "Was the controller stopped or starved, or its machine's clock "
                  "moved?", "short",
                  [(gained("muster_controller_late_ticks_total", CONTROLLER), "late ticks"),
                   (gained("muster_controller_date_steps_total", CONTROLLER), "steps of the date")], low=0,
                  runbook="MusterTicksLate"),
            Panel("Decisions recorded", "How many decisions were worth a record?", "short",
                  [(gained("muster_controller_decisions_total", CONTROLLER), "decisions")], low=0),
        ]),
        Row("What it hears", [
            Panel("Reports and syncs", "How many reports of agents come, are any unknown or late, and how often do "
                  "routers sync?", "cps",
                  [(rate("muster_controller_agent_reports_total", CONTROLLER, "result"), "reports {{result}}"),
                   (rate("muster_controller_router_syncs_total", CONTROLLER), "syncs")], low=0,
                  runbook="MusterReportsStale"),
            Panel("Reporting instances", "Which serving instances have reported lately?", "short",
                  [(f"sum by (service, state) (muster_controller_reporting_instances{{{CONTROLLER}}})",
                    "{{service}} {{state}}")], stack=True, low=0, runbook="MusterReportsStale"),
            Panel("Routers", "How many routers are heard, and how many are silent?", "short",
                  [(f"max by (state) (muster_controller_routers{{{CONTROLLER}}})", "{{state}}")], low=0,
                  runbook="MusterShrinkHeld"),
        ]),
        Row("Bounds", [
            Panel("Bounds reached", "Which named bound refused something?", "short",
                  [(gained("muster_controller_bounds_reached_total", CONTROLLER, "bound"), "{{bound}}")], stack=True,
                  low=0, width=6, runbook="MusterBoundReached"),
            Panel("Power limit", "How often did instances draw more than power_limit_watts?", "short",
                  [(gained("muster_controller_breaker_trips_total", CONTROLLER, "service"), "{{service}}")], low=0,
                  width=6, runbook="MusterPowerLimit", quiet="only services with a power limit have it"),
            Panel("Lost log lines", "Could the controller not write its log?", "short",
                  [(f"max by (instance) (muster_controller_log_lost_lines{{{CONTROLLER}}})", "{{instance}}")], low=0,
                  width=6, runbook="MusterLogLost"),
            Panel("Series beyond their bound", "Which metric has more series than it may have?", "short",
                  [("sum by (instance, metric) (increase(muster_metrics_overflow_total[$__rate_interval])) > 0",
                    "{{instance}} {{metric}}")], low=0, width=6, runbook="MusterSeriesOverflow",
                  quiet="no metric has reached its bound"),
        ]),
        Row("Processes", [
            Panel("Memory", "How much memory is resident, by part?", "bytes",
                  [(f"max by (job, instance) (process_resident_memory_bytes{{{MUSTER_JOBS}}})", "{{job}} {{instance}}")],
                  low=0),
            Panel("Processor", "How many cores does each part use?", "none",
                  [(rate("process_cpu_seconds_total", MUSTER_JOBS, "job, instance"), "{{job}} {{instance}}")], low=0),
            Panel("Age", "When did each part start last?", "s",
                  [(f"time() - max by (job, instance) (process_start_time_seconds{{{MUSTER_JOBS}}})",
                    "{{job}} {{instance}}")], low=0, runbook="MusterInstanceRestartLoop"),
        ]),
        Row("Configuration", [
            Panel("Configuration in force", "Which configuration does it follow? The number rises with each change.",
                  "short", [(f"max by (instance) (muster_controller_config_generation{{{CONTROLLER}}})", "{{instance}}")],
                  low=0),
            Panel("Configurations that came", "Were changes taken, from the file or applied, or refused?", "short",
                  [(gained("muster_controller_config_changes_total", CONTROLLER, "result"), "{{result}}")], stack=True,
                  low=0, quiet="nobody has changed the configuration"),
        ]),
        Row("API", [
            Panel("Connections and streams", "How many connections and consoles are open? tenants are counted too.",
                  "short",
                  [(f"sum(muster_controller_http_connections{{{CONTROLLER}}})", "connections"),
                   (f"sum(muster_controller_streams{{{CONTROLLER}}})", "streams"),
                   (f"max(muster_controller_tenants{{{CONTROLLER}}})", "tenants")], low=0),
            Panel("Refused API requests", "Who is turned away, and why?", "cps",
                  [(rate("muster_controller_requests_refused_total", CONTROLLER, "reason"), "{{reason}}"),
                   (rate("muster_controller_http_refused_total", CONTROLLER, "reason"), "HTTP {{reason}}"),
                   (rate("muster_controller_http_cut_total", CONTROLLER, "reason"), "cut {{reason}}"),
                   (rate("muster_controller_http_closed_total", CONTROLLER, "reason"), "closed {{reason}}")], low=0,
                  quiet="no request of the API was refused"),
            Panel("Signed requests", "Are requests of agents and routers signed?", "cps",
                  [(rate("muster_controller_signed_requests_total", CONTROLLER, "verdict"), "{{verdict}}")], low=0,
                  runbook="MusterForeignSignatures"),
        ]),
    ])

DASHBOARDS = [FLEET, AUTOSCALER, ROUTER_BOARD, ENGINE_BOARD, CONTROLLER_BOARD]

# Metrics that other programs export, by the program; every other name is one of `muster docs metrics` or a rule.
FOREIGN = {
    "Prometheus": ["up", "ALERTS"],
    "vLLM": ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
             "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total", "vllm:generation_tokens_total",
             "vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds"],
    "SGLang": ["sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:token_usage", "sglang:cache_hit_rate",
               "sglang:gen_throughput"],
    "llama-server": ["llamacpp:requests_processing", "llamacpp:requests_deferred", "llamacpp:tokens_predicted_total"],
    "DCGM exporter": ["DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_POWER_USAGE",
                      "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_XID_ERRORS"],
}
