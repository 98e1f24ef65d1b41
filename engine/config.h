/* config.h - holds the `engine` section of muster.yaml and the flags of `muster engine`.
 *
 * Layer: engine (base/io). A flag has vLLM's name where it means the same.
 */
#pragma once
#include "base/io/config/config.h"
#include "base/io/net/tls_rows.h"
#include "base/io/trace/trace_settings.h"

struct engine_config {
    struct str model;
    struct str model_sha256, model_stamps; /* empty: not compared; compared at every start */
    struct str listen;
    struct str served_model_name; /* empty: the name in the file */
    struct str tool_call_parser, reasoning_parser;
    struct str chat_template;    /* a file; empty: the model's own */
    struct str secret_file;      /* of the fleet; empty: none */
    struct str api_key_file;     /* one key a line; empty: none */
    struct str metrics_key_file; /* likewise */
    struct config_texts hosts;   /* further Host values that requests may name */
    struct str instance;         /* shown as the fleet's name for this process; may be empty */

    int64_t max_model_len; /* 0: the model's */
    int64_t max_num_seqs;
    int64_t max_num_batched_tokens;
    int64_t max_waiting;
    int64_t text_threads, text_queue; /* bytes */
    int64_t connections_max, connections_address_max;
    int64_t block_size;
    int64_t kv_cache_memory_bytes; /* 0: for max_num_seqs contexts, at most a quarter of the RAM */
    int kv_cache_dtype;            /* index into kv_dtype_names */
    struct str weight_cache;       /* a folder; empty: none */
    int64_t weight_cache_max;      /* bytes */
    bool enable_prefix_caching;
    bool enable_sleep_mode;
    int pooling; /* enum pooling */
    bool enable_lora, allow_runtime_lora_updating;
    struct config_texts lora_modules; /* NAME=PATH */
    int64_t max_loras, max_lora_rank;
    int generation_config; /* 0: auto, 1: none */
    int64_t threads;       /* 0: all cores */
    double cpu_share;      /* 0: no limit */
    int numa;              /* enum numa_mode */
    struct str kernels;
    int64_t seed; /* of requests that name none; 0: drawn at start */

    struct str preset, fair, order, admit, preempt, chunk, evict, draft; /* empty: the preset's */
    struct str draft_model;           /* with a draft policy that asks for one; empty: none */
    struct str perf, hardware;        /* empty: default; not known */
    int64_t swap_space;               /* bytes; 0: the preset's */
    int64_t slo_ttft_us, slo_tpot_us; /* for the chunk policy */

    int64_t request_us_max;
    int64_t ping_us;
    int64_t drain_us;
    struct str step_log;     /* a file; empty: none */
    struct str predict;      /* a policy; empty: the router's prediction alone */
    struct str predict_file; /* where it keeps what it learned; empty: nowhere */
    int64_t predict_layer, predict_every;
    struct str fault; /* POINT:NTH of base/core/fault.h; empty: none */
    int log_level;
    struct tls_section tls;
    struct trace_section trace;
};

extern const struct config_section engine_section;

/* Returns the name behind the last '/', without ".gguf": the default name of a model. */
struct str engine_model_name(struct str path);
