/* engine.c - wires the parts together, listens, loads, serves, drains.
 *
 *     main thread: loop, HTTP API           device thread: model, scheduler, sampler
 *
 * Names in the configuration (policies, addresses, files) are resolved here, once, so that a
 * mistake is reported at start and not under load.
 */
#include "engine/engine.h"

#include "base/core/block_key.h"
#include "base/core/fault.h"
#include "base/core/hash.h"
#include "base/io/file.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "base/io/net/descriptors.h"
#include "base/io/notify.h"
#include "engine/numa.h"
#include "engine/serve/http_api.h"
#include "engine/serve/pace.h"
#include "policies/catalog.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#define TEMPLATE_BYTES_MAX ((size_t)1 << 20)
#define CONNECTIONS_SHARE 75 /* hundredths of the descriptors; the rest is for peers' K and V */

struct engine {
    const struct engine_config *config;
    struct loop *loop;
    struct http_api *http_api;
    struct device *device;
    struct adapters *adapters;
    struct engine_metrics metrics;
    struct addr listen;
    char host[ADDR_TEXT_MAX];
    struct credentials held;
    struct tls *serve, *call; /* to clients (NULL: plain HTTP), to peers */
    struct tracer *tracer;    /* NULL: no traces */
    struct buf chat_template;
    struct key_file keys, metrics_keys;
    struct loop_timer drain_limit;
    struct notify_watch watch;
    bool draining;
    char failure[ERR_TEXT_MAX]; /* the model did not load */
    char fault[64];             /* the point that is armed; "": none */
};

/* ---- resolve names and inputs ---------------------------------------------------------------- */

/* An empty name leaves the policy to the preset. */
#define FIND_POLICY(kind, type)                                                       \
    static int find_##kind(struct str name, const struct type **ret, struct err *err) \
    {                                                                                 \
        if (name.len > 0) *ret = kind##_find(name);                                   \
        return name.len == 0 ? 0 : policy_check(#kind, name, "--" #kind, err);        \
    }
FIND_POLICY(fair, fair_policy)
FIND_POLICY(order, order_policy)
FIND_POLICY(admit, admit_policy)
FIND_POLICY(preempt, preempt_policy)
FIND_POLICY(chunk, chunk_policy)
FIND_POLICY(evict, evict_policy)
FIND_POLICY(draft, draft_policy)
FIND_POLICY(preset, preset)
FIND_POLICY(perf, perf_policy)

static int find_hardware(struct str name, const struct hardware **ret, struct err *err)
{
    *ret = hardware_find(name);
    if (*ret) return 0;
    int rc = hardware_unknown(name, err);
    return err_prefix(err, rc, "--hardware");
}

FIND_POLICY(predict, predict_policy)

/* Refuses a predict policy that needs an input which no engine has. */
static int find_predict_engine(struct str name, const struct predict_policy **ret, struct err *err)
{
    int rc = find_predict(name, ret, err);
    const char *missing = rc == 0 && *ret ? predict_missing(*ret, PREDICT_ENGINE_HAVE) : NULL;
    if (!missing) return rc;
    return err_set(err, -EINVAL, "--predict " STR_FMT " is not applicable: an engine has no %s",
                   STR_ARG(name), missing);
}

/* A draft model and a policy that asks for one belong together. */
static int check_draft(const struct engine_config *c, const struct draft_policy *policy,
                       struct err *err)
{
    bool asks = policy && policy->asks;
    if (asks && c->draft_model.len == 0)
        return err_set(err, -EINVAL, "--draft %s needs --draft-model: the small model that guesses",
                       policy->name);
    if (!asks && c->draft_model.len > 0)
        return err_set(err, -EINVAL, "--draft-model needs --draft model: no other policy asks it");
    return 0;
}

static int find_policies(const struct engine_config *c, struct sched_config *ret, struct err *err)
{
    int rc = find_preset(c->preset, &ret->preset, err);
    if (rc >= 0) rc = find_fair(c->fair, &ret->policies.fair, err);
    if (rc >= 0) rc = find_order(c->order, &ret->policies.order, err);
    if (rc >= 0) rc = find_admit(c->admit, &ret->policies.admit, err);
    if (rc >= 0) rc = find_preempt(c->preempt, &ret->policies.preempt, err);
    if (rc >= 0) rc = find_chunk(c->chunk, &ret->policies.chunk, err);
    if (rc >= 0) rc = find_evict(c->evict, &ret->policies.evict, err);
    if (rc >= 0) rc = find_draft(c->draft, &ret->policies.draft, err);
    if (rc >= 0) rc = check_draft(c, ret->policies.draft, err);
    return rc;
}

/* Arms the fault that a test asked for. */
static int arm_fault(struct engine *e, struct err *err)
{
    struct str nth = e->config->fault, point = str_cut(&nth, ':');
    uint64_t number;
    if (point.len == 0 && nth.len == 0) return 0;
    if (point.len == 0 || point.len >= sizeof e->fault || str_to_u64(nth, &number) < 0 ||
        number == 0) {
        return err_set(err, -EINVAL, "--fault " STR_FMT ": want POINT:NTH, as device.hang:20",
                       STR_ARG(e->config->fault));
    }
    memcpy(e->fault, point.data, point.len);
    log_event(LOG_WARN, "fault_armed", "point=%s nth=%llu", e->fault, (unsigned long long)number);
    fault_arm(e->fault, number);
    return 0;
}

/* Reads and checks all inputs that are needed before the listener opens. */
static int read_inputs(struct engine *e, struct err *err)
{
    const struct engine_config *c = e->config;
    int rc = addr_parse(&e->listen, c->listen, err);
    if (rc < 0) return err_prefix(err, rc, "--listen");
    if (c->secret_file.len > 0) rc = credentials_load(c->secret_file.data, &e->held, err);
    if (rc < 0) return err_prefix(err, rc, "--secret-file");
    rc = tls_section_open(&c->tls, &e->serve, &e->call, err);
    if (rc < 0) return err_prefix(err, rc, "--tls");
    rc = key_file_load(c->api_key_file, &e->keys, err);
    if (rc < 0) return err_prefix(err, rc, "--api-key-file");
    rc = key_file_load(c->metrics_key_file, &e->metrics_keys, err);
    if (rc < 0) return err_prefix(err, rc, "--metrics-key-file");
    if (c->chat_template.len > 0) {
        rc = file_read(c->chat_template.data, TEMPLATE_BYTES_MAX, &e->chat_template, err);
    }
    if (rc < 0) return err_prefix(err, rc, "--chat-template");
    if (!addr_is_loopback(&e->listen) && !credentials_held(&e->held) && e->keys.count == 0) {
        return err_set(err, -EPERM,
                       "--listen " STR_FMT
                       " can be reached from other machines: give --secret-file "
                       "or --api-key-file, or listen on 127.0.0.1",
                       STR_ARG(c->listen));
    }
    if (c->cpu_share > 0 && c->cpu_share < THROTTLE_SHARE_MIN) {
        return err_set(err, -EINVAL, "--cpu-share %g: the least is %g of a core, or 0 for all",
                       c->cpu_share, THROTTLE_SHARE_MIN);
    }
    return 0;
}

static int fill_device(const struct engine_config *c, struct device_config *ret, struct err *err)
{
    *ret = (struct device_config){
        .model_path = c->model,
        .model_sha256 = c->model_sha256,
        .model_stamps = c->model_stamps,
        .load = { .kv_type = kv_dtype_type(c->kv_cache_dtype),
                  .no_sampling = c->generation_config == 1,
                  .kernels = c->kernels.data,
                  .weight_cache = c->weight_cache.len ? c->weight_cache.data : NULL,
                  .weight_cache_bytes_max = (uint64_t)c->weight_cache_max },
        .sched = { .page_tokens = (uint32_t)c->block_size,
                   .context_max = (uint32_t)c->max_model_len,
                   .seqs_max = (uint32_t)c->max_num_seqs,
                   .batch_tokens_max = (uint32_t)c->max_num_batched_tokens,
                   .waiting_max = (uint32_t)c->max_waiting,
                   .events_max = DEVICE_EVENTS_MAX,
                   .prefix_cache = c->enable_prefix_caching,
                   .ttft_s_max = (double)c->slo_ttft_us * 1e-6,
                   .step_s_max = (double)c->slo_tpot_us * 1e-6 },
        .kv_bytes = (uint64_t)c->kv_cache_memory_bytes,
        .swap_bytes = (uint64_t)c->swap_space,
        .threads = (uint32_t)c->threads,
        .cpu_share = c->cpu_share,
        .draft_model = c->draft_model,
        .step_log = c->step_log,
        .predict_file = c->predict_file,
        .predict_layer = (uint32_t)c->predict_layer,
        .predict_every = (uint32_t)c->predict_every,
    };
    if (ret->threads == 0) {
        long cores = sysconf(_SC_NPROCESSORS_ONLN);
        /* More threads than the share can feed would only wait for each other. */
        if (c->cpu_share > 0 && c->cpu_share < (double)cores) cores = (long)(c->cpu_share + 0.999);
        ret->threads = cores < 1                   ? 1
                       : cores > MODEL_THREADS_MAX ? MODEL_THREADS_MAX
                                                   : (uint32_t)cores;
    }
    int rc = find_perf(c->perf, &ret->perf, err);
    if (rc >= 0 && c->hardware.len > 0) rc = find_hardware(c->hardware, &ret->hardware, err);
    if (rc >= 0 && ret->perf && ret->perf->needs_roofline && !ret->hardware) {
        rc = err_set(err, -EINVAL, "--perf %s needs --hardware", ret->perf->name);
    }
    if (rc >= 0) rc = find_predict_engine(c->predict, &ret->predict, err);
    if (rc >= 0 && c->predict_file.len > 0 && !ret->predict)
        rc = err_set(err, -EINVAL, "--predict-file needs --predict: nothing else learns");
    return rc < 0 ? rc : find_policies(c, &ret->sched, err);
}

/* ---- stop ------------------------------------------------------------------------------------ */

static void on_empty(void *arg)
{
    struct engine *e = arg;
    log_event(LOG_INFO, "drained", "in_flight=%u", http_api_in_flight(e->http_api));
    loop_stop(e->loop);
}

static void on_drain_limit(void *arg)
{
    struct engine *e = arg;
    log_event(LOG_WARN, "drain_cut", "in_flight=%u", http_api_in_flight(e->http_api));
    loop_stop(e->loop);
}

static void on_signal(void *arg, int signo)
{
    struct engine *e = arg;
    if (e->draining) _exit(128 + signo); /* asked twice: now */
    e->draining = true;
    log_event(LOG_INFO, "draining", "signal=%d in_flight=%u", signo,
              http_api_in_flight(e->http_api));
    notify_stopping("drains: running requests may finish");
    e->drain_limit = (struct loop_timer){ .fn = on_drain_limit, .arg = e };
    loop_timer_set(e->loop, &e->drain_limit, loop_now_us(e->loop) + e->config->drain_us);
    http_api_drain(e->http_api, on_empty, e);
}

static void on_failed(void *arg, const char *sentence)
{
    struct engine *e = arg;
    snprintf(e->failure, sizeof e->failure, "%s", sentence);
    loop_stop(e->loop);
}

/* ---- start ----------------------------------------------------------------------------------- */

static struct str served_name(const struct engine_config *c)
{
    return c->served_model_name.len ? c->served_model_name : engine_model_name(c->model);
}

static int open_adapters(struct engine *e, struct device_config *device, struct err *err)
{
    const struct engine_config *c = e->config;
    const struct adapters_config config = { .count_max =
                                                c->enable_lora ? (uint32_t)c->max_loras : 0,
                                            .rank_max = (uint32_t)c->max_lora_rank,
                                            .model_name = served_name(c) };
    if (!c->enable_lora && (c->lora_modules.count > 0 || c->allow_runtime_lora_updating))
        return err_set(err, -EINVAL, "%s needs --enable-lora",
                       c->lora_modules.count > 0 ? "--lora-modules"
                                                 : "--allow-runtime-lora-updating");
    int rc = adapters_new(&config, &e->adapters, err);
    if (rc < 0) return rc;
    device->adapters = e->adapters;
    device->lora_modules = c->lora_modules.items;
    device->lora_module_count = c->lora_modules.count;
    return 0;
}

static int start_http_api(struct engine *e, struct err *err)
{
    const struct engine_config *c = e->config;
    struct str host = c->listen;
    while (host.len > 0 && host.data[host.len - 1] != ':')
        host.len--;
    if (host.len > 0) host.len--;
    snprintf(e->host, sizeof e->host, STR_FMT, STR_ARG(host));
    uint64_t seed = (uint64_t)c->seed;
    if (seed == 0 && getrandom(&seed, sizeof seed, 0) != sizeof seed) return -EIO;
    const struct http_api_config http_api = {
        .host = e->host,
        .port = e->listen.port,
        .host_shown = str_from(e->host),
        .model_name = served_name(c),
        .chat_template = buf_view(&e->chat_template),
        .held = &e->held,
        .keys = &e->keys,
        .metrics_keys = &e->metrics_keys,
        .hosts = c->hosts.items,
        .host_count = c->hosts.count,
        .serve = e->serve,
        .call = e->call,
        .tracer = e->tracer,
        .pooling = (enum pooling)c->pooling,
        .adapters = e->adapters,
        .lora_updates = c->enable_lora && c->allow_runtime_lora_updating,
        .sleep_mode = c->enable_sleep_mode,
        .seed = seed,
        /* Twice max_waiting, because the scheduler chooses which request a full queue refuses: as
         * many again may be on their way there or back. */
        .requests_max = (uint32_t)(2 * c->max_waiting + c->max_num_seqs),
        .waiting_max = (uint32_t)c->max_waiting,
        .seqs_max = (uint32_t)c->max_num_seqs,
        .text_threads = (uint32_t)c->text_threads,
        .tool_call_parser = c->tool_call_parser,
        .reasoning_parser = c->reasoning_parser,
        .text_queue_bytes = (size_t)c->text_queue,
        .connections_max = descriptors_share(CONNECTIONS_SHARE, 1, (uint32_t)c->connections_max),
        .connections_address_max = (uint32_t)c->connections_address_max,
        .request_us_max = c->request_us_max,
        .ping_us = c->ping_us,
    };
    int rc = http_api_new(e->loop, &http_api, &e->metrics, &e->http_api, err);
    if (rc < 0) return rc;
    http_api_on_failed(e->http_api, on_failed, e);
    return 0;
}

static int open_tracer(struct engine *e, struct err *err)
{
    const struct engine_config *c = e->config;
    const struct tracer_config config = {
        .section = &c->trace,
        .role = "muster-engine",
        .instance = c->instance,
        .loop = e->loop,
        .environ = (const char *const *)environ,
        .meters = { e->metrics.metrics, EM_TRACE_SPANS, EM_TRACE_EXPORTS, EM_TRACE_REQUESTS },
    };
    int rc = tracer_open(&config, &e->tracer, err);
    return rc < 0 ? err_prefix(err, rc, "engine") : 0;
}

static bool device_is_well(void *arg)
{
    const struct engine *e = arg;
    return !http_api_is_stalled(e->http_api);
}

static int start(struct engine *e, struct err *err)
{
    struct device_config device;
    int rc = read_inputs(e, err);
    if (rc >= 0) rc = arm_fault(e, err);
    if (rc >= 0) rc = fill_device(e->config, &device, err);
    if (rc >= 0) rc = numa_spread((enum numa_mode)e->config->numa, err);
    /* The same seed as the HTTP API's salts and the router's chains. */
    if (rc >= 0) device.sched.key_seed = e->held.block_seed;
    if (rc >= 0) rc = open_adapters(e, &device, err);
    if (rc >= 0) rc = engine_metrics_init(&e->metrics, err);
    if (rc >= 0) rc = loop_new(&e->loop, err);
    /* Before the device thread starts: it inherits the signal mask. */
    if (rc >= 0) rc = loop_signal(e->loop, SIGTERM, on_signal, e, err);
    if (rc >= 0) rc = loop_signal(e->loop, SIGINT, on_signal, e, err);
    if (rc >= 0) rc = open_tracer(e, err);
    if (rc >= 0) rc = start_http_api(e, err);
    if (rc < 0) return rc;
    const struct device_events events = http_api_device_events(e->http_api);
    rc = device_new(e->loop, &device, &e->metrics, &events, &e->device, err);
    if (rc < 0) return rc;
    http_api_set_device(e->http_api, e->device);
    e->watch.is_well = device_is_well;
    e->watch.arg = e;
    rc = notify_watch_start(&e->watch, e->loop, NULL, 0, err);
    if (rc < 0) return rc;
    log_event(LOG_INFO, "engine_loading", "instance=%.*s listen=%s:%u model=%.*s pid=%d",
              STR_ARG(e->config->instance), e->host, http_api_port(e->http_api),
              STR_ARG(e->config->model), (int)getpid());
    return 0;
}

int engine_main(const struct engine_config *config, struct err *err)
{
    struct engine e = { .config = config };
    log_set_level((enum log_level)config->log_level);
    signal(SIGPIPE, SIG_IGN);
    int rc = start(&e, err);
    if (rc >= 0) rc = loop_run(e.loop);
    if (rc >= 0) tracer_flush(e.tracer);
    if (rc >= 0 && e.failure[0]) rc = err_set(err, -EINVAL, "%s", e.failure);
    if (e.http_api) http_api_close(e.http_api);
    device_free(e.device);
    http_api_free(e.http_api);
    adapters_free(e.adapters);
    tracer_close(e.tracer);
    tls_free(e.serve);
    tls_free(e.call);
    notify_watch_stop(&e.watch);
    notify_watch_fini(&e.watch);
    loop_free(e.loop);
    engine_metrics_fini(&e.metrics);
    key_file_fini(&e.keys);
    key_file_fini(&e.metrics_keys);
    buf_fini(&e.chat_template);
    log_event(LOG_INFO, "engine_stopped", "rc=%d", rc);
    return rc;
}
