/* sync.c - sends demand to the controller and gets rules back, or polls static endpoints.
 *
 * Of several controllers one leads: fleet/controllers.h says which is asked. The rules in force stay until the
 * leader's next.
 *
 * Static endpoints answer GET /internal/info with the report that an agent would send; beside an engine of
 * another kind it is the agent that is listed and answers. Both sources fill
 * one list, so that an endpoint that neither names is removed.
 */
#include "router/sync.h"

#include "base/core/bits.h"
#include "base/io/auth/signed_call.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "fleet/controllers.h"
#include "fleet/defaults.h"
#include "router/decide.h"

#include <stdio.h>
#include <stdlib.h>

#define CALL_US 5000000
#define STATIC_MAX 64
#define INFO_BYTES_MAX 65536

/* An engine named in the configuration. */
struct fixed {
    struct sync *owner;
    struct router_endpoint at;
    char name[DISPATCH_NAME_MAX];
    struct peer_call call;
    struct arena arena; /* of the last good reply */
    bool known;
    struct engine_report report;
};

struct sync {
    struct decide *d;
    struct controllers controllers; /* none: static endpoints only */
    uint16_t port;
    struct loop_timer timer;
    struct peer_call call;
    struct arena arena;       /* of the reply being applied and of the message being written */
    struct arena rules_arena; /* of the rules in force */
    struct router_rules rules;
    bool has_rules;
    uint64_t seq;
    int64_t heard_us;
    struct log_limit log;
    struct fixed fixed[STATIC_MAX];
    uint32_t fixed_count;
};

static void turn(void *arg);
static void ask_controller(struct sync *s);

static void apply_services(struct sync *s, const struct router_rules *rules)
{
    director_rules(s->d->director, rules);
    for (uint32_t i = 0; i < rules->service_count; i++)
        if (rules->services[i].policy.len > 0) decide_route_set(s->d, rules->services[i].policy);
}

/* Returns the endpoint that a static engine's own report describes. */
static struct endpoint endpoint_of(const struct fixed *f)
{
    const struct engine_report *r = &f->report;
    bool agent = r->agent_port > 0; /* it is the agent that is listed */
    return (struct endpoint){
        .instance = str_from(f->name),
        .service = r->service.len > 0 ? r->service : r->model,
        .model = r->model,
        .digest = r->digest,
        .adapters = r->adapters,
        .adapter_count = r->adapter_count,
        .host = agent ? r->host : f->at.host,
        .port = agent ? r->port : f->at.port,
        .tls = agent ? r->tls : f->at.tls,
        .kind = r->kind,
        .agent_host = agent ? f->at.host : (struct str){ 0 },
        .agent_port = agent ? f->at.port : 0,
        .agent_tls = agent && f->at.tls,
        .kv_events = r->kv_events,
        .state = r->health == ENGINE_READY ? ENDPOINT_READY : ENDPOINT_STARTING,
        .role = f->at.role,
        .boot = r->boot,
        .context_tokens = r->context_tokens,
        .page_tokens = r->page_tokens,
        .pages_total = r->pages_total,
        .running_max = r->running_max,
        .step_tokens = r->step_tokens,
        .kv_token_bytes = r->kv_token_bytes,
        .task = r->task,
        .has_perf = r->has_perf,
        .perf = r->perf,
        .clock = r->clock,
    };
}

static void apply_endpoints(struct sync *s)
{
    struct err err = { 0 };
    decide_endpoints_begin(s->d);
    for (uint32_t i = 0; s->has_rules && i < s->rules.endpoint_count; i++) {
        decide_endpoint_put(s->d, &s->rules.endpoints[i], &err);
    }
    for (uint32_t i = 0; i < s->fixed_count; i++) {
        if (!s->fixed[i].known) continue;
        struct endpoint ep = endpoint_of(&s->fixed[i]);
        decide_endpoint_put(s->d, &ep, &err);
        struct router_service *one = services_get(s->d->services, ep.service);
        if (one && !one->from_controller) {
            one->slo_ttft_s = (double)s->d->config->slo_ttft_us * 1e-6;
            one->slo_tpot_s = (double)s->d->config->slo_tpot_us * 1e-6;
        }
    }
    decide_endpoints_end(s->d, !s->has_rules || router_rules_complete(&s->rules));
    uint64_t skipped;
    if (err.text[0] && log_pass(&s->log, loop_now_us(s->d->loop), 5000000, &skipped)) {
        log_event(LOG_WARN, "endpoint_refused", "error=%s skipped=%lu", err.text,
                  (unsigned long)skipped);
    }
    decide_publish(s->d);
}

static void apply(struct sync *s)
{
    struct err err = { 0 };
    struct router_rules rules;
    arena_reset(&s->arena);
    int rc = router_rules_decode(buf_view(&s->call.body), &s->arena, &rules, &err);
    if (rc < 0) {
        log_event(LOG_WARN, "rules_malformed", "error=%s", err_text(&err, rc));
        controllers_missed(&s->controllers);
        return;
    }
    if (!controllers_heard(&s->controllers, rules.epoch, loop_now_us(s->d->loop))) {
        log_event(LOG_WARN, "rules_of_an_earlier_term", "epoch=%llu",
                  (unsigned long long)rules.epoch);
        return;
    }
    /* The arenas change places: the new rules must outlive the decoding of the next reply. */
    struct arena before = s->rules_arena;
    s->rules_arena = s->arena;
    s->arena = before;
    s->rules = rules;
    s->has_rules = true;
    s->heard_us = loop_now_us(s->d->loop);
    s->d->informed = true;
    apply_services(s, &rules);
    decide_tenants_heed(s->d, &rules);
    decide_quarantine_told(s->d, &rules);
    apply_endpoints(s);
}

static void again(struct sync *s)
{
    int64_t wait_us = s->d->config->sync_us;
    if (s->has_rules && s->rules.again_ms > 0) {
        wait_us = min_i64(wait_us, (int64_t)s->rules.again_ms * 1000);
    }
    loop_timer_set(s->d->loop, &s->timer, loop_now_us(s->d->loop) + wait_us);
}

/* Returns true if another controller, which the one that replied has named, should be asked at once. */
static bool is_sent_on(struct sync *s, enum http_end end)
{
    struct standby_reply standby;
    arena_reset(&s->arena);
    bool stands_by = end == HTTP_END_OK && s->call.status == 503 &&
                     standby_reply_decode(buf_view(&s->call.body), &s->arena, &standby) == 0;
    if (stands_by) return controllers_stands_by(&s->controllers, standby.leader);
    controllers_missed(&s->controllers);
    return false;
}

static void on_rules(struct peer_call *call, enum http_end end)
{
    struct sync *s = CONTAINER_OF(call, struct sync, call);
    if (peer_call_is_good(call, end)) {
        apply(s);
    } else if (is_sent_on(s, end)) {
        ask_controller(s);
        return;
    } else {
        uint64_t skipped;
        if (log_pass(&s->log, loop_now_us(s->d->loop), 5000000, &skipped)) {
            log_event(LOG_WARN, "controller_silent", "end=%s why=%s status=%d skipped=%lu",
                      http_end_text(end), call->problem, call->status, (unsigned long)skipped);
        }
        apply_endpoints(s); /* last good list: tokenizers may have come meanwhile */
    }
    again(s);
}

static void set_gauges(struct sync *s, int64_t now_us)
{
    struct decide *d = s->d;
    struct dispatch_demand held;
    dispatch_demand(d->dispatch, now_us, &held);
    decide_quarantine_tell(d);
    struct bundles_counts tokenizers;
    bundles_counts_get(d->bundles, &tokenizers);
    metric_set(metric_of(d->metrics, RM_TOKENIZERS), tokenizers.held);
    metric_add(metric_of(d->metrics, RM_TOKENIZERS_REFUSED),
               (double)(tokenizers.refused - d->bundles_told.refused));
    metric_add(metric_of(d->metrics, RM_TOKENIZERS_EVICTED),
               (double)(tokenizers.evicted - d->bundles_told.evicted));
    d->bundles_told = tokenizers;
    struct prefix_index_stats ix;
    prefix_index_stats(dispatch_index(d->dispatch), &ix);
    metric_set(metric_of(d->metrics, RM_HELD), held.held);
    metric_set(metric_of(d->metrics, RM_IN_FLIGHT), held.in_flight);
    metric_set(metric_of(d->metrics, RM_INDEX_BYTES), (double)ix.bytes);
    metric_set(metric_of(d->metrics, RM_INDEX_BLOCKS), ix.blocks);
    metric_set(metric_of(d->metrics, RM_INDEX_BLOCKS_MAX), ix.blocks_max);
    metric_set(metric_of(d->metrics, RM_INDEX_EVICTED), (double)ix.evicted);
    metric_set(metric_of(d->metrics, RM_LOG_LOST), (double)log_lost());
    metric_set(metric_of(d->metrics, RM_SYNC_AGE),
               s->has_rules ? (double)(now_us - s->heard_us) * 1e-6 : -1);
}

/* Returns the tenant's usage, and tells the metrics. */
static struct tenant_usage usage_of(struct sync *s, struct tenant *t)
{
    const struct tenant_usage usage = {
        .tenant = str_from(t->id.name),
        .requests_total = t->requests_total,
        .rejected_total = t->rejected_total,
        .prompt_tokens_total = t->prompt_tokens_total,
        .cached_tokens_total = t->cached_tokens_total,
        .generated_tokens_total = t->generated_tokens_total,
    };
    router_metrics_tenant(s->d->metrics, &t->meters, &usage, t->in_flight);
    return usage;
}

/* Names the services of a tenant's parts, into `room` for TENANT_SERVICES_MAX. One that is no longer known is left out. */
static void name_parts(const struct sync *s, const struct tenant *t, struct tenant_work *room,
                       struct tenant_usage *ret)
{
    ret->work = room;
    for (uint32_t i = 0; i < t->part_count; i++) {
        const struct router_service *of = services_by_hash(s->d->services, t->part[i].service);
        if (of)
            room[ret->work_count++] =
                (struct tenant_work){ str_from(of->name), t->part[i].computed_tokens_total };
    }
}

/* `work` has room for TENANT_SERVICES_MAX of each. */
static uint32_t fill_usage(struct sync *s, struct tenant_usage *list, struct tenant_work *work,
                           uint32_t most)
{
    uint32_t count = 0;
    size_t cursor = 0;
    struct tenant *t;
    while (count < most && (t = tenants_next(s->d->tenants, &cursor))) {
        list[count] = usage_of(s, t);
        name_parts(s, t, work + (size_t)count * TENANT_SERVICES_MAX, &list[count]);
        count++;
    }
    (void)usage_of(s, tenants_find(s->d->tenants, "")); /* requests without a key */
    return count;
}

static int write_message(struct sync *s, struct buf *out)
{
    struct decide *d = s->d;
    int64_t now_us = loop_now_us(d->loop);
    struct director_report *lists = malloc(sizeof *lists);
    uint32_t tenants = min_u32(tenants_count(d->tenants), SYNC_TENANTS_MAX);
    struct tenant_usage *usage = calloc(tenants + 1, sizeof *usage);
    struct tenant_work *work = calloc((size_t)tenants * TENANT_SERVICES_MAX + 1, sizeof *work);
    int rc = lists && usage && work ? 0 : -ENOMEM;
    if (rc == 0) {
        struct refused_prompt refused[SYNC_REFUSED_MAX];
        director_report(d->director, now_us, lists);
        set_gauges(s, now_us);
        struct str host = STR("127.0.0.1");
        uint16_t port;
        router_address(d->config->listen, &host, &port, NULL);
        struct router_sync message = {
            .router = d->config->name,
            .boot = d->boot,
            .seq = ++s->seq,
            .host = host,
            .port = s->port,
            .reach = d->config->agents_reach,
            .window_s = (double)TELEMETRY_WINDOW_US * 1e-6,
            .tenants_version = d->tenants_version,
            .version = STR(MUSTER_VERSION),
            .date_us = clock_wall_us(),
            .services = lists->service,
            .service_count = lists->service_count,
            .endpoints = lists->endpoint,
            .endpoint_count = lists->endpoint_count,
            .usage = usage,
            .usage_count = fill_usage(s, usage, work, tenants),
            .refused = refused,
            .refused_count = decide_quarantine_list(d, refused),
        };
        rc = router_sync_encode(&message, out);
    }
    free(lists);
    free(usage);
    free(work);
    return rc;
}

static void ask_controller(struct sync *s)
{
    CLEANUP(buf_fini) struct buf message = { .max = SYNC_BYTES_MAX };
    struct fleet_id id;
    fleet_id_controller(s->d->link, &id);
    if (write_message(s, &message) < 0) {
        again(s);
        return;
    }
    s->d->quarantine_cleared = false;
    const struct controller_address *to = controllers_next(&s->controllers);
    const struct peer_question question = {
        .host = str_from(to->host),
        .port = to->port,
        .tls = to->tls,
        .as = id.as,
        .path = STR("/api/v1/routers/sync"),
        .body = buf_view(&message),
        .reply_max = SYNC_BYTES_MAX,
        .deadline_us = loop_now_us(s->d->loop) + CALL_US,
    };
    if (peer_call_start(&s->call, s->d->signer, &question, on_rules, NULL) < 0) again(s);
}

static void on_info(struct peer_call *call, enum http_end end)
{
    struct fixed *f = CONTAINER_OF(call, struct fixed, call);
    struct engine_report report;
    CLEANUP(arena_fini) struct arena arena = { 0 };
    arena_init(&arena, INFO_BYTES_MAX);
    /* An engine that does not reply stays listed as it was: requests to it show whether it lives. */
    if (peer_call_is_good(call, end) &&
        engine_report_decode(buf_view(&call->body), &arena, &report, NULL) == 0) {
        struct arena before = f->arena;
        f->arena = arena;
        arena = before;
        f->report = report;
        f->known = true;
    }
    if (f->owner->controllers.count == 0) apply_endpoints(f->owner);
}

static void ask_fixed(struct fixed *f)
{
    struct sync *s = f->owner;
    if (f->call.call) return;
    struct fleet_id id;
    fleet_id_engine(s->d->link, f->name, &id);
    const struct peer_question question = {
        .host = f->at.host,
        .port = f->at.port,
        .tls = f->at.tls,
        .as = id.as,
        .path = STR("/internal/info"),
        .reply_max = INFO_BYTES_MAX,
        .deadline_us = loop_now_us(s->d->loop) + CALL_US,
    };
    (void)peer_call_start(&f->call, s->d->signer, &question, on_info,
                          NULL); /* again at the next turn */
}

static void turn(void *arg)
{
    struct sync *s = arg;
    for (uint32_t i = 0; i < s->fixed_count; i++)
        ask_fixed(&s->fixed[i]);
    if (s->controllers.count == 0) {
        /* There is no controller to tell, but the message's making sets the gauges. */
        CLEANUP(buf_fini) struct buf unsent = { .max = SYNC_BYTES_MAX };
        write_message(s, &unsent);
        again(s);
    } else if (!s->call.call) {
        ask_controller(s);
    }
}

void sync_hurry(struct sync *s)
{
    if (s->call.call) return; /* its reply comes in a moment, and the next turn after it */
    int64_t soon_us = loop_now_us(s->d->loop) + URGENT_SYNC_US;
    if (loop_timer_is_set(&s->timer) && s->timer.node.key <= soon_us) return;
    loop_timer_set(s->d->loop, &s->timer, soon_us);
}

int sync_new(struct decide *d, uint16_t port, struct sync **ret, struct err *err)
{
    struct sync *s = calloc(1, sizeof *s);
    if (!s) return err_set(err, -ENOMEM, "router: no memory");
    s->d = d;
    s->port = port;
    s->timer = (struct loop_timer){ .fn = turn, .arg = s };
    arena_init(&s->arena, SYNC_BYTES_MAX);
    arena_init(&s->rules_arena, SYNC_BYTES_MAX);
    int rc = 0;
    if (d->config->controller.len > 0)
        rc = controllers_add(&s->controllers, d->config->controller, err);
    if (rc < 0) err_prefix(err, rc, "router.controller");
    for (size_t i = 0; rc == 0 && i < d->config->controllers.count; i++) {
        rc = controllers_add(&s->controllers, d->config->controllers.items[i], err);
        if (rc < 0) err_prefix(err, rc, "router.controllers[%zu]", i);
    }
    for (size_t i = 0; rc == 0 && i < min_size(d->config->endpoints.count, STATIC_MAX); i++) {
        struct fixed *f = &s->fixed[s->fixed_count++];
        f->owner = s;
        snprintf(f->name, sizeof f->name, FLEET_STATIC "%zu", i);
        rc = router_endpoint(d->config->endpoints.items[i], &f->at, err);
        if (rc < 0) err_prefix(err, rc, "router.endpoints[%zu]", i);
    }
    if (rc == 0) rc = loop_timer_set(d->loop, &s->timer, 0);
    if (rc < 0) {
        sync_free(s);
        return rc;
    }
    decide_tenants_recall(d);
    *ret = s;
    return 0;
}

void sync_free(struct sync *s)
{
    if (!s) return;
    peer_call_fini(&s->call);
    for (uint32_t i = 0; i < s->fixed_count; i++) {
        peer_call_fini(&s->fixed[i].call);
        arena_fini(&s->fixed[i].arena);
    }
    loop_timer_clear(s->d->loop, &s->timer);
    arena_fini(&s->arena);
    arena_fini(&s->rules_arena);
    free(s);
}
