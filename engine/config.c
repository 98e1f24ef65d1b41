/* config.c - declares the engine's rows of the configuration schema. */
#include "engine/config.h"

#include "base/io/log.h"
#include "base/io/loop/text_pool.h"
#include "engine/model/model.h"
#include "engine/numa.h"
#include "engine/serve/adapters.h"
#include "fleet/defaults.h"

#define AT(member) .offset = offsetof(struct engine_config, member)

static const char *const generation_names[] = { "auto", "none", NULL };
static const char *const pooling_names[] = { "model", "last", "mean", "cls",
                                             NULL }; /* of enum pooling */

// clang-format off
static const struct config_field rows[] = {
    { .name = "model", .type = CONFIG_TEXT, .required = true, AT(model),
      .about = "GGUF file, or folder in Hugging Face's format (config.json, *.safetensors, tokenizer.json), or a name of `models.list`." },
    { .name = "model_sha256", .type = CONFIG_TEXT, .max = 64, AT(model_sha256),
      .about = "SHA-256 in hex that the model must have before it is loaded; `models.list` gives it with a name (docs/models.md)." },
    { .name = "model_stamps", .type = CONFIG_TEXT, AT(model_stamps),
      .about = "Folder that remembers, by the files' identity, size and times, what was compared, so that a restart does not read it again." },
    { .name = "listen", .type = CONFIG_TEXT, .default_text = "127.0.0.1:8200", AT(listen),
      .about = "Address and port; beyond loopback a secret or API keys are required." },
    { .name = "served_model_name", .type = CONFIG_TEXT, .max = 256, AT(served_model_name),
      .about = "Name that requests use; without it the model's in `models.list`, or the file's name." },
    { .name = "chat_template", .type = CONFIG_TEXT, AT(chat_template),
      .about = "File with a chat template to use instead of the model's." },
    { .name = "tool_call_parser", .type = CONFIG_TEXT, .default_text = "auto", .max = 32, AT(tool_call_parser),
      .about = "How the model writes tool calls: auto, none, hermes, mistral, llama3_json and others (docs/tools.md)." },
    { .name = "reasoning_parser", .type = CONFIG_TEXT, .default_text = "auto", .max = 32, AT(reasoning_parser),
      .about = "How the model writes its reasoning: auto, none, deepseek_r1, qwen3 and others (docs/tools.md)." },
    { .name = "secret_file", .type = CONFIG_TEXT, AT(secret_file),
      .about = "File with the secret that the parts of a fleet share; made when absent." },
    { .name = "api_key_file", .type = CONFIG_TEXT, AT(api_key_file),
      .about = "File with one API key a line; with one set, everything but /health needs a key." },
    { .name = "metrics_key_file", .type = CONFIG_TEXT, AT(metrics_key_file),
      .about = "File with one key a line that opens /metrics and nothing else, for a scraper." },
    { .name = "hosts", .type = CONFIG_TEXTS, .min = 0, .max = 16, AT(hosts),
      .about = "Further host names by which requests may call the engine while it asks for no key." },
    { .name = "instance", .type = CONFIG_TEXT, .max = 128, AT(instance),
      .about = "Name of this instance in the fleet, shown in logs." },
    { .name = "max_model_len", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 1 << 24,
      .unit = "tokens", AT(max_model_len),
      .about = "Longest session, prompt and output; 0 for what the model was trained for." },
    { .name = "max_num_seqs", .type = CONFIG_INT, .default_text = "16", .min = 1, .max = 4096,
      .unit = "sessions", AT(max_num_seqs), .about = "Sessions computed in one step." },
    { .name = "max_num_batched_tokens", .type = CONFIG_INT, .default_text = "256", .min = 1,
      .max = 1 << 20, .unit = "tokens", AT(max_num_batched_tokens),
      .about = "Tokens computed in one step; long prompts are cut into chunks of it." },
    { .name = "max_waiting", .type = CONFIG_INT, .default_text = DEFAULT_TEXT(ENGINE_WAITING_MAX),
      .min = 1, .max = 100000, .unit = "requests", AT(max_waiting), .about = "Requests that may wait; 429 beyond." },
    { .name = "text_threads", .type = CONFIG_INT, .default_text = "1", .min = 1,
      .max = TEXT_THREADS_MAX, .unit = "threads", AT(text_threads),
      .about = "Threads that read, render and tokenise bodies above 16 KiB of direct clients." },
    { .name = "text_queue", .type = CONFIG_BYTES, .default_text = "64MiB",
      .min = TEXT_QUEUE_BYTES_MIN, .max = 4e9, AT(text_queue),
      .about = "Bodies that wait for those threads or are at them; 429 beyond." },
    { .name = "connections_max", .type = CONFIG_INT, .default_text = "10000", .min = 1,
      .max = 1000000, .unit = "connections", AT(connections_max),
      .about = "Connections that are kept, or three quarters of the process's descriptors "
               "(RLIMIT_NOFILE) if those are fewer; the longest idle is closed for a new one, 503 when "
               "all are busy." },
    { .name = "connections_address_max", .type = CONFIG_INT, .default_text = "0", .min = 0,
      .max = 1000000, .unit = "connections", AT(connections_address_max),
      .about = "Connections that are kept of one address (IPv6: of a /64), loopback excepted; a "
               "router is one; 429 beyond; 0: a quarter of all." },
    { .name = "block_size", .type = CONFIG_INT, .default_text = "16", .min = 16, .max = 64,
      .unit = "tokens", AT(block_size), .about = "Tokens of a KV page: 16, 32, 48 or 64." },
    { .name = "kv_cache_memory_bytes", .type = CONFIG_BYTES, .default_text = "0", .min = 0,
      .max = 1e14, AT(kv_cache_memory_bytes),
      .about = "Memory for KV pages; 0 for as many contexts as sessions, at most a quarter of "
               "the machine's." },
    { .name = "kv_cache_dtype", .type = CONFIG_ENUM, .default_text = "auto", .names = kv_dtype_names,
      AT(kv_cache_dtype),
      .about = "How K and V are stored: auto is f16; q8 and q4 round them to integers, and the same memory holds "
               "1.9 and 3.6 times as many tokens (docs/models.md)." },
    { .name = "weight_cache", .type = CONFIG_TEXT, AT(weight_cache),
      .about = "Folder in which weights are kept as they are computed with, under their digest: packed once, then "
               "mapped by every engine of the machine, which share the memory; without it each packs its own." },
    { .name = "weight_cache_max", .type = CONFIG_BYTES, .default_text = "100GiB", .min = 1 << 20,
      .max = 1e15, AT(weight_cache_max),
      .about = "Disk that this folder may take; what was used longest ago goes first." },
    { .name = "enable_prefix_caching", .type = CONFIG_BOOL, .default_text = "true",
      AT(enable_prefix_caching), .about = "Reuse pages of equal prompt beginnings." },
    { .name = "enable_sleep_mode", .type = CONFIG_BOOL, .default_text = "false", AT(enable_sleep_mode),
      .about = "Serve /sleep and /wake_up, which take the weights out of memory and read them again; "
               "for an engine without an agent." },
    { .name = "generation_config", .type = CONFIG_ENUM, .default_text = "auto", .names = generation_names,
      AT(generation_config),
      .about = "The model's own temperature, top_p, top_k, min_p and repetition_penalty, for requests that name "
               "none: auto reads them (generation_config.json, or general.sampling of GGUF), none does not." },
    { .name = "pooling", .type = CONFIG_ENUM, .default_text = "model", .names = pooling_names, AT(pooling),
      .about = "What an embedding is made of: the last token's state, the mean of all, the first token's (cls; "
               "encoders only), or what the model's files say, else last, or mean of encoders." },
    { .name = "enable_lora", .type = CONFIG_BOOL, .default_text = "false", AT(enable_lora),
      .about = "Take LoRA adapters, which requests name as their model (docs/models.md)." },
    { .name = "lora_modules", .type = CONFIG_TEXTS, .min = 0, .max = ADAPTERS_MAX, AT(lora_modules),
      .about = "Adapters to load at start, NAME=PATH: folders of PEFT, or GGUF adapters." },
    { .name = "max_loras", .type = CONFIG_INT, .default_text = "8", .min = 1, .max = ADAPTERS_MAX,
      .unit = "adapters", AT(max_loras), .about = "Adapters loaded at once; all of them may be in one step." },
    { .name = "max_lora_rank", .type = CONFIG_INT, .default_text = "16", .min = 1, .max = ADAPTER_RANK_MAX,
      AT(max_lora_rank), .about = "Largest rank of an adapter; bounds the memory of each, with the model's shape." },
    { .name = "allow_runtime_lora_updating", .type = CONFIG_BOOL, .default_text = "false",
      AT(allow_runtime_lora_updating),
      .about = "Open /v1/load_lora_adapter and /v1/unload_lora_adapter, which read paths of this machine's disk, "
               "to the fleet's secret (without one: to this machine)." },
    { .name = "threads", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 256,
      .unit = "threads", AT(threads), .about = "Threads that compute; 0 for all cores." },
    { .name = "cpu_share", .type = CONFIG_FLOAT, .default_text = "0", .min = 0, .max = 256,
      .unit = "cores", AT(cpu_share),
      .about = "Share of a core this process may use in the long run, from 0.05; 0 for all." },
    { .name = "numa", .type = CONFIG_ENUM, .default_text = "auto", .names = numa_mode_names, AT(numa),
      .about = "Memory on machines with several nodes: interleave spreads it over all of them, auto does so "
               "where there are several and the kernel permits it, off leaves it where it is first written." },
    { .name = "seed", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 9e15, AT(seed),
      .about = "Seed from which requests without one get theirs; 0 draws it at start." },
    { .name = "preset", .type = CONFIG_TEXT, AT(preset),
      .about = "A policy of each kind below under one name; `muster policies preset` lists them." },
    { .name = "fair", .type = CONFIG_TEXT, AT(fair),
      .about = "Which tenant's requests come first; `muster policies fair`. Without it, and so in "
               "all below, the preset's policy; without a preset the kind's default." },
    { .name = "order", .type = CONFIG_TEXT, AT(order),
      .about = "Which waiting session is admitted next; `muster policies order`." },
    { .name = "admit", .type = CONFIG_TEXT, AT(admit),
      .about = "When a session may start; `muster policies admit`." },
    { .name = "preempt", .type = CONFIG_TEXT, AT(preempt),
      .about = "Which session gives pages back, and how; `muster policies preempt`." },
    { .name = "chunk", .type = CONFIG_TEXT, AT(chunk),
      .about = "How much of a prompt goes into a step; `muster policies chunk`." },
    { .name = "evict", .type = CONFIG_TEXT, AT(evict),
      .about = "Which cached page is dropped first; `muster policies evict`." },
    { .name = "draft", .type = CONFIG_TEXT, AT(draft),
      .about = "How the next tokens of a sequence are guessed, so that a step computes several of them; "
               "the output stays the same. `muster policies draft`; without it none." },
    { .name = "draft_model", .type = CONFIG_TEXT, AT(draft_model),
      .about = "Small model with the same vocabulary that guesses for `draft: model`, as a name, file or "
               "folder like `model`; its KV comes out of the same memory (docs/models.md)." },
    { .name = "swap_space", .type = CONFIG_BYTES, .default_text = "0", .min = 0, .max = 1e14,
      AT(swap_space),
      .about = "Memory to which pages of preempted sessions are copied; 0 for what the preset asks "
               "for, which is none without one." },
    { .name = "perf", .type = CONFIG_TEXT, AT(perf),
      .about = "How step times are estimated: roofline_residual, roofline, linear, table; without "
               "it the first where the hardware is known, else linear." },
    { .name = "hardware", .type = CONFIG_TEXT, AT(hardware),
      .about = "Entry of the hardware table that estimates begin with, as cpu; without it they begin "
               "with a guess." },
    { .name = "slo_ttft", .type = CONFIG_DURATION, .default_text = "2s", .min = 1000, .max = 36e8,
      AT(slo_ttft_us),
      .about = "SLO of the time to the first token, which the chunk policy deadline weighs; engines of a "
               "service are told the service's." },
    { .name = "slo_tpot", .type = CONFIG_DURATION, .default_text = "200ms", .min = 100, .max = 36e8,
      AT(slo_tpot_us),
      .about = "SLO of the time for each further token, and so what a step may take while sessions "
               "decode, for the chunk policies deadline and slack." },
    { .name = "request_max", .type = CONFIG_DURATION, .default_text = "10m", .min = 1000,
      .max = 864e8, AT(request_us_max),
      .about = "The longest a request may take; a client may ask for less by the header "
               "x-request-timeout-ms." },
    { .name = "ping", .type = CONFIG_DURATION, .default_text = "15s", .min = 100000, .max = 36e8,
      AT(ping_us), .about = "Silence after which a stream gets a comment, so that proxies keep it." },
    { .name = "drain", .type = CONFIG_DURATION, .default_text = "30s", .min = 0, .max = 36e8,
      AT(drain_us), .about = "After SIGTERM, time for running requests before they are cut." },
    { .name = "predict", .type = CONFIG_TEXT, AT(predict),
      .about = "Predictor of lengths in the engine itself, such as trail, which reads the model's "
               "hidden state; without it the router's prediction is used." },
    { .name = "predict_file", .type = CONFIG_TEXT, AT(predict_file),
      .about = "File that keeps what that predictor learned: merged in at start, written at a clean "
               "end. A file for each model and layer." },
    { .name = "predict_layer", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 1024,
      AT(predict_layer),
      .about = "Layer whose hidden state that predictor reads, counted from 1; 0: as deep as the 11th "
               "of 32." },
    { .name = "predict_every", .type = CONFIG_INT, .default_text = "16", .min = 0, .max = 65536,
      .unit = "tokens", AT(predict_every),
      .about = "Output tokens between two looks of that predictor at the hidden state of a running "
               "request; 0: it is read at the prompt's end alone." },
    { .name = "step_log", .type = CONFIG_TEXT, AT(step_log),
      .about = "File for a line of CSV a step: its shape and seconds, to fit a model of its speed." },
    { .name = "log_level", .type = CONFIG_ENUM, .default_text = "info", .names = log_level_names,
      AT(log_level), .about = "Least level of log lines." },
    TLS_SERVER_ROWS(struct engine_config, tls),
    TLS_ROW(struct engine_config, tls, ca, "PEM file with the CAs of engines that K and V are "
            "copied from, where they speak TLS; without it the system's."),
    TRACE_ROWS(struct engine_config, trace),
    { .name = "fault", .type = CONFIG_TEXT, .max = 63, .debug = true, AT(fault),
      .about = "Make the engine fail on demand: POINT:NTH, as device.hang:20 (the device stops at its "
               "20th step), device.die_at_37:1 or device.hang_at_37:1 (at a prompt of 37 tokens)." },
    { .name = "kernels", .type = CONFIG_TEXT, .debug = true, AT(kernels),
      .about = "Kernels to use (ref, avx2, avx2-vnni, avx512, avx512-vnni, avx512-bf16, amx, neon, neon-dotprod) instead of the best." },
};
// clang-format on

static const struct config_record record = CONFIG_RECORD_OF(struct engine_config, rows);

const struct config_section engine_section = {
    .name = "engine",
    .about = "The part that computes: one model on one machine. These settings also "
             "apply to engines that services start.",
    .record = &record,
};

struct str engine_model_name(struct str path)
{
    while (path.len > 1 && path.data[path.len - 1] == '/') /* of a folder */
        path.len--;
    size_t from = path.len;
    while (from > 0 && path.data[from - 1] != '/')
        from--;
    struct str name = str_of(path.data + from, path.len - from);
    if (name.len > 5 && str_ends(name, STR(".gguf"))) name.len -= 5;
    return name;
}
