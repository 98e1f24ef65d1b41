"""kinds.py - says what a panel and a dashboard are, and writes the queries that many panels share.

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
