/* agent_open.c - opens what an agent consists of, as its configuration and the launch document say: the instance, the
 * controllers, keys, calls, the API of a translated engine.
 */
#include "agent/agent_state.h"
#include "agent/metrics.h"
#include "base/core/bits.h"
#include "fleet/defaults.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define LEAVE_US 1000000 /* the drain ends so long before the machine goes: time to report */
#define LATE_US 1000000  /* a look later than its period by this was late */

static int cut_address(struct str text, struct str *ret_host, uint32_t *ret_port, const char *what,
                       struct err *err)
{
    uint16_t port;
    int rc = str_host_port(text, ret_host, &port);
    if (rc < 0)
        return err_set(err, rc, "%s: want HOST:PORT, not '" STR_FMT "'", what, STR_ARG(text));
    *ret_port = port;
    return 0;
}

/* Makes the launch document that an adopted engine has not got. */
static int adopt_open(struct agent *a, struct err *err)
{
    const struct agent_config *c = a->config;
    struct launch_spec s = { .instance = c->name,
                             .service = c->service,
                             .pool = c->pool,
                             .secret_file = c->secret_file,
                             .tls_ca = c->tls.ca,
                             .tls_certificate = c->tls.certificate,
                             .tls_key = c->tls.key,
                             .kind = (enum engine_kind)c->engine_kind,
                             .tokenizer = c->tokenizer,
                             .kv_events = c->kv_events.len > 0 };
    struct str engine = c->adopt, controller = c->controller;
    uint32_t port = 0;
    s.engine_tls = tls_url_cut(&engine);
    s.controller_tls = tls_url_cut(&controller);
    while (engine.len > 0 && engine.data[engine.len - 1] == '/')
        engine.len--;
    int rc = cut_address(engine, &s.engine_host, &port, "agent.adopt", err);
    if (rc == 0 && controller.len > 0)
        rc = cut_address(controller, &s.controller_host, &s.controller_port, "agent.controller",
                         err);
    if (rc == 0 && controller.len > 0 && (s.service.len == 0 || s.pool.len == 0))
        rc = err_set(err, -EINVAL, "agent.adopt: name the service and the pool that it serves");
    if (rc == 0) rc = instance_adopt(&a->in, &s, (uint16_t)port, err);
    a->engine_port = (uint16_t)port;
    return rc;
}

int agent_open_instance(struct agent *a, struct err *err)
{
    const struct agent_config *c = a->config;
    a->in.lock_fd = -1;
    if ((c->spec.len > 0) == (c->adopt.len > 0))
        return err_set(err, -EINVAL,
                       "want agent.spec, the launch document of an instance, or "
                       "agent.adopt, the URL of an engine that runs");
    if (c->spec.len == 0) return adopt_open(a, err);
    if (c->await) instance_await(c->spec);
    return instance_open(&a->in, c->spec, err);
}

static void on_tokenizer(void *arg)
{
    ((struct agent *)arg)->report_due_us = 0; /* routers can tokenise for it from now on */
}

static bool report_of(void *arg, struct engine_report *ret)
{
    const struct agent *a = arg;
    if (!a->has_info) return false;
    *ret = a->info;
    agent_fill(a, ret);
    return true;
}

static void meter(void *arg, struct metrics *m)
{
    const struct agent *a = arg;
    const struct engine_report *e = &a->info;
    const struct str kind = str_from(engine_kind_names[a->in.spec.kind]);
    const struct {
        enum agent_metric metric;
        double value;
    } list[] = {
        { AM_ENGINE_READY, a->has_info && sup_reported(a->sup.state) == AGENT_UP },
        { AM_RUNNING, e->running },
        { AM_WAITING, e->waiting },
        { AM_KV_TOKENS, (double)(e->pages_total - e->pages_free) * e->page_tokens },
        { AM_KV_TOKENS_MAX, (double)e->pages_total * e->page_tokens },
        { AM_REQUESTS, (double)e->requests_total },
        { AM_PROMPT_TOKENS, (double)e->prompt_tokens_total },
        { AM_CACHED_TOKENS, (double)e->cached_tokens_total },
        { AM_GENERATED_TOKENS, (double)e->generated_tokens_total },
    };
    for (size_t i = 0; i < COUNT_OF(list); i++)
        metric_set(metric_series(m, list[i].metric, &kind), list[i].value);
    metric_set(metric_of(m, AM_RESTARTS), sup_restarts(&a->sup));
}

/* Opens the agent's own API for an engine that serves routers only OpenAI's. */
static int open_translator(struct agent *a, tokenizer_load_fn *load, struct err *err)
{
    const struct launch_spec *s = &a->in.spec;
    char events[INSTANCE_SOCKET_BYTES + 8], replay[INSTANCE_SOCKET_BYTES + 8], host[256];
    struct str at = a->in.adopts || a->dialler ? STR("127.0.0.1") : s->engine_host;
    uint32_t port = 0;
    if (engine_traits[s->kind].serves_itself) return 0;
    if (a->config->serve_at.len > 0) {
        int rc = cut_address(a->config->serve_at, &at, &port, "agent.serve", err);
        if (rc < 0) return rc;
    }
    snprintf(host, sizeof host, STR_FMT, STR_ARG(at));
    struct translator_config c = { .loop = a->loop,
                                   .held = &a->held,
                                   .scrapers = &a->scrapers,
                                   .tls = a->dialler ? NULL : a->serve,
                                   .host = host,
                                   .port = (uint16_t)port,
                                   .tokenizer = s->tokenizer,
                                   .load = load,
                                   .kv_events = a->config->kv_events,
                                   .kv_replay = a->config->kv_replay,
                                   .report = report_of,
                                   .meter = meter,
                                   .arg = a,
                                   .on_ready = on_tokenizer };
    if (c.tokenizer.len == 0 && a->driver->tokenizer_in_model) c.tokenizer = s->model;
    memcpy(events, "ipc://", 6);
    memcpy(replay, "ipc://", 6);
    if (instance_kv_paths(&a->in, events + 6, replay + 6)) {
        c.kv_events = str_from(events);
        c.kv_replay = str_from(replay);
    }
    return translator_new(&c, &a->translator, err);
}

static int open_calls(struct agent *a, struct err *err)
{
    const struct launch_spec *s = &a->in.spec;
    const struct tls_section tls = { .certificate = s->tls_certificate,
                                     .key = s->tls_key,
                                     .ca = s->tls_ca };
    int rc = tls_section_open(&tls, &a->serve, &a->tls, err);
    const struct http_client_config client = { .tls = a->tls };
    if (rc == 0) rc = http_client_new(a->loop, &client, &a->client, err);
    const struct signer_config signer = {
        .loop = a->loop,
        .client = a->client,
        .secret = a->config->send_secret ? str_from(a->held.secret) : (struct str){ 0 },
    };
    return rc < 0 ? rc : signer_new(&signer, &a->signer, err);
}

/* Takes the controllers that the launch document names: the one that wrote it, and all. */
int agent_find_controllers(struct agent *a, struct err *err)
{
    const struct launch_spec *s = &a->in.spec;
    if (s->controller_host.len == 0) return 0; /* an adopted engine may have none */
    char text[CONTROLLERS_HOST_BYTES + 32];
    bool v6 = str_find(s->controller_host, STR(":")) != SIZE_MAX;
    snprintf(text, sizeof text, "%s%s" STR_FMT "%s:%u", s->controller_tls ? "https://" : "",
             v6 ? "[" : "", STR_ARG(s->controller_host), v6 ? "]" : "", s->controller_port);
    int rc = controllers_add(&a->controllers, str_from(text), err);
    for (uint32_t i = 0; rc == 0 && i < s->controller_count; i++)
        rc = controllers_add(&a->controllers, s->controllers[i], err);
    return rc == -ENOSPC ? 0 : rc; /* the first ones do */
}

static bool engine_is_ready(void *arg, const char **ret_state)
{
    const struct agent *a = arg;
    *ret_state = sup_state_text(a->sup.state);
    return a->sup.state == SUP_UP && !a->drain_wished;
}

/* Leads routers to the engine and to the agent's own API, and nowhere else on this machine. */
static bool on_dial(void *arg, uint16_t port, struct tunnel_target *ret)
{
    const struct agent *a = arg;
    struct engine_report own = { 0 };
    if (a->translator) translator_fill(a->translator, &own);
    if (port != 0 && port == own.agent_port)
        return addr_from_literal(&ret->addr, STR("127.0.0.1"), port) == 0;
    if (port == 0 || port != a->engine_port) return false;
    ret->addr = a->engine_addr;
    ret->addr.port = port;
    ret->tls = a->in.spec.engine_tls ? a->tls : NULL;
    ret->host = a->in.spec.engine_host;
    return true;
}

static int open_dialler(struct agent *a, struct err *err)
{
    const struct agent_config *c = a->config;
    const struct str instance = a->in.spec.instance, host = a->in.spec.engine_host;
    struct signed_as as;
    if (!a->in.spec.tunnel)
        return c->routers.count == 0
                   ? 0
                   : err_set(err, -EINVAL,
                             "agent.routers: set agent.tunnel, they are dialled by it");
    snprintf(a->tunnel_host, sizeof a->tunnel_host, TUNNEL_HOST STR_FMT, STR_ARG(instance));
    snprintf(a->agent_id, sizeof a->agent_id, "agent/" STR_FMT, STR_ARG(instance));
    if (credentials_key(&a->held, str_from(a->agent_id), &as.key) < 0)
        return err_set(err, -EINVAL,
                       "agent.tunnel: routers take tunnels that are signed only; set "
                       "secret_file");
    as.id = str_from(a->agent_id);
    if (addr_from_literal(&a->engine_addr, host, 0) < 0)
        return err_set(err, -EINVAL,
                       "agent.adopt: '" STR_FMT
                       "' is a name; with agent.tunnel give the engine's address",
                       STR_ARG(host));
    const struct dialler_config config = { .loop = a->loop,
                                           .signer = a->signer,
                                           .as = as,
                                           .instance = instance,
                                           .fixed = c->routers.items,
                                           .fixed_count = (uint32_t)c->routers.count,
                                           .on_dial = on_dial,
                                           .arg = a };
    return dialler_new(&config, &a->dialler, err);
}

/* An engine of another kind gets its devices by CUDA_VISIBLE_DEVICES, whose names NVML shares. */
static int open_gpus(struct agent *a, struct err *err)
{
    const struct agent_config *c = a->config;
    const struct launch_spec *s = &a->in.spec;
    if (str_eq(c->gpus, STR("none"))) return 0;
    bool listed = c->gpus.len == 0 && s->kind == ENGINE_VLLM;
    const struct gpu_watch_config gpus = { .loop = a->loop,
                                           .sysfs = c->sysfs,
                                           .use = listed ? s->device : c->gpus,
                                           .on_found = agent_on_gpus,
                                           .on_event = agent_on_fault,
                                           .arg = a };
    return gpu_watch_open(&gpus, &a->gpus, err);
}

int agent_build(struct agent *a, tokenizer_load_fn *load, struct err *err)
{
    const struct agent_config *c = a->config;
    const struct launch_spec *s = &a->in.spec;
    a->driver = engine_driver_of(s->kind);
    a->sup_config = (struct sup_config){
        .start_us = max_i64(c->start_us, a->driver->start_us),
        .sick_us = c->sick_us,
        .drain_us = s->drain_ms ? (int64_t)s->drain_ms * 1000 : 300000000,
        .settle_us = c->settle_us,
        .stop_us = c->stop_us,
        .back_off_min_us = c->back_off_min_us,
        .back_off_max_us = c->back_off_max_us,
        .stable_us = c->stable_us,
        .failures_max = (uint32_t)c->failures_max,
        /* Ending the instance of an adopted engine saves nothing. */
        .grace_us = a->in.adopts      ? INT64_MAX
                    : s->grace_ms > 0 ? (int64_t)s->grace_ms * 1000
                                      : 900000000,
        .age_us = (int64_t)s->age_ms * 1000,
        .leave_us = LEAVE_US,
        .late_us = c->report_us + LATE_US,
    };
    int rc = s->secret_file.len ? credentials_load(s->secret_file.data, &a->held, err) : 0;
    if (rc == 0) rc = key_file_load(c->metrics_key_file, &a->scrapers, err);
    if (rc == 0 && getrandom(&a->boot, sizeof a->boot, 0) != sizeof a->boot)
        rc = err_set(err, -EIO, "the system gives no random bytes");
    if (rc == 0) rc = loop_new(&a->loop, err);
    /* Before the translator, which takes the first port that is free. */
    if (rc == 0 && c->listen.len > 0)
        rc = probes_open(a->loop, c->listen, engine_is_ready, a, &a->probes, err);
    if (rc == 0) rc = open_calls(a, err);
    if (rc == 0) rc = open_dialler(a, err);
    if (rc == 0) rc = loop_signal(a->loop, SIGTERM, agent_on_signal, a, err);
    if (rc == 0) rc = loop_signal(a->loop, SIGINT, agent_on_signal, a, err);
    if (rc < 0) return rc;
    if (c->notice != NOTICE_NONE) {
        const struct metadata service = { .source = (enum notice_source)c->notice,
                                          .base = c->notice_url,
                                          .machine = s->instance };
        rc = notice_open(a->loop, &service, agent_on_notice, a, &a->notice, err);
        if (rc < 0) return rc;
    }
    rc = open_gpus(a, err);
    if (rc < 0) return rc;
    look_init(&a->look, a->loop, a->signer, a->driver);
    a->look.on_seen = agent_on_seen;
    a->look.arg = a;
    rc = open_translator(a, load, err);
    if (rc < 0) return rc;
    /* The lease from before this start is not known: a whole grace begins now. */
    a->lease_until_us = loop_now_us(a->loop);
    a->tick = (struct loop_timer){ .fn = agent_on_tick, .arg = a };
    return loop_timer_set(a->loop, &a->tick, loop_now_us(a->loop));
}

void agent_teardown(struct agent *a)
{
    if (a->look.loop) agent_forget_engine(a); /* closes our descriptors; an engine lives on */
    probes_close(a->probes);
    notice_close(a->notice);
    gpu_watch_close(a->gpus);
    translator_free(a->translator);
    weights_close(a->weights);
    peer_call_fini(&a->tell.call);
    look_fini(&a->look);
    peer_call_fini(&a->order.call);
    dialler_free(a->dialler);
    http_client_free(a->client);
    signer_free(a->signer);
    tls_free(a->tls);
    tls_free(a->serve);
    notify_watch_stop(&a->manager);
    notify_watch_fini(&a->manager);
    loop_free(a->loop);
    key_file_fini(&a->scrapers);
    credentials_wipe(&a->held);
}
