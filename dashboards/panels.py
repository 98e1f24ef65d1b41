"""panels.py - lists the dashboards. Each has a file with its panels: title, question, unit, queries, and how it
is drawn. generate.py makes the JSON of Grafana from them, render.py pictures without Grafana.
"""

from board_autoscaler import AUTOSCALER
from board_controller import CONTROLLER_BOARD
from board_engine import ENGINE_BOARD
from board_fleet import FLEET
from board_router import ROUTER_BOARD

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
