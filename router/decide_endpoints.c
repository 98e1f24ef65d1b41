/* decide_endpoints.c - the list of endpoints, as it is applied to the core, and the face that byte
 * loops see of it.
 *
 * A list comes from the controller or is the configuration's own (sync.c); both are applied between
 * decide_endpoints_begin and decide_endpoints_end, in the decision thread. */
#include "base/io/log.h"
#include "router/decide.h"

#include <stdlib.h>
#include <string.h>

/* Of a step of an engine that does not report its own: a usual size of other engines. */
#define STEP_TOKENS_GUESS 512

bool decide_has_endpoint(const struct decide *d, const struct service *s)
{
    for (uint32_t i = 0; i < CORE_ENDPOINTS; i++) {
        if (d->endpoint[i].used && d->endpoint[i].service == s->hash) return true;
    }
    return false;
}

/* Copies are within one model's engines, which say so by the same weights. */
bool decide_kv_from(const struct decide *d, uint32_t from, uint32_t at, struct target *to)
{
    const struct endpoint_place *source = &d->endpoint[from];
    const struct core_endpoint *ep = core_endpoint_at(d->core, at);
    if (!ep || !(ep->link_bytes_s > 0) || from == at || !source->used) return false;
    if (!source->target.bundle || source->target.bundle != to->bundle) return false;
    memcpy(to->kv_host, source->target.host, sizeof to->kv_host);
    to->kv_port = source->target.port;
    memcpy(to->kv_instance, source->target.instance, sizeof to->kv_instance);
    to->kv_tls = source->target.tls;
    return true;
}

void decide_endpoints_begin(struct decide *d)
{
    for (uint32_t i = 0; i < CORE_ENDPOINTS; i++)
        d->endpoint[i].seen = false;
}

static bool copy_text(char *ret, size_t size, struct str s)
{
    if (s.len == 0 || s.len >= size) return false;
    memcpy(ret, s.data, s.len);
    ret[s.len] = '\0';
    return true;
}

static void on_load(void *arg, uint32_t slot, const struct core_load *load)
{
    struct decide *d = arg;
    int64_t now_us = loop_now_us(d->loop);
    core_endpoint_report(d->core, slot, load, now_us, now_us);
}

_Static_assert((int)ENDPOINT_BOTH == ROLE_BOTH && (int)ENDPOINT_PREFILL == ROLE_PREFILL &&
                   (int)ENDPOINT_DECODE == ROLE_DECODE && (int)ENDPOINT_ROLE_COUNT == ROLE_COUNT,
               "the wire's roles are the policies'");

static double link_of(const struct decide *d, const struct service *s)
{
    return s->has_kv_link ? s->kv_link_bytes_s : (double)d->config->kv_link;
}

void decide_endpoint_put(struct decide *d, const struct endpoint *ep, struct err *err)
{
    struct service *service = services_get(&d->services, ep->service.len ? ep->service : ep->model);
    struct core_endpoint core = {
        .boot = ep->boot,
        .takes_ids = ep->kind == ENGINE_MUSTER,
        .role = (enum role)ep->role,
        .has_perf = ep->has_perf,
        .token_budget = ep->step_tokens > 0 ? ep->step_tokens : STEP_TOKENS_GUESS,
        .seqs_max = ep->running_max,
        .kv_tokens_max = (uint64_t)ep->pages_total * ep->page_tokens,
        .kv_bytes_per_token = ep->kv_token_bytes,
        .price_per_hour = ep->price_per_h,
    };
    struct target target = { .port = (uint16_t)ep->port,
                             .tls = ep->tls,
                             .kind = ep->kind,
                             .context_tokens = ep->context_tokens,
                             .page_tokens = ep->page_tokens };
    if (!service || !copy_text(core.name, sizeof core.name, ep->instance) ||
        !copy_text(target.host, sizeof target.host, ep->host) || ep->port > UINT16_MAX) {
        err_set(err, -EINVAL, "endpoint '" STR_FMT "' is not usable", STR_ARG(ep->instance));
        return;
    }
    memcpy(target.instance, core.name, sizeof target.instance);
    core.model = service->hash;
    if (core.takes_ids) core.link_bytes_s = link_of(d, service);
    if (ep->has_perf) {
        core.perf =
            (struct perf_coef){ ep->perf.a,       ep->perf.b,         ep->perf.c, ep->perf.d,
                                ep->perf.samples, ep->perf.ratio_p90, ep->perf.e };
        if (ep->clock > 0) core.perf = perf_at_clock(&core.perf, ep->clock);
        core.has_perf = perf_coef_valid(&core.perf);
    }
    /* An engine of ours takes token ids: without its tokenizer nothing can be sent to it. */
    if (ep->kind == ENGINE_MUSTER) target.bundle = bundles_get(d->bundles, ep);
    core.ready = ep->state == ENDPOINT_READY && (ep->kind != ENGINE_MUSTER || target.bundle);

    uint32_t slot;
    int rc = core_endpoint_put(d->core, &core, &slot);
    if (rc < 0) {
        metric_inc(metric_of(d->metrics, RM_ENDPOINTS_REFUSED));
        err_set(err, rc, rc == -ENOSPC ? "more than %d endpoints" : "no memory for %d endpoints",
                CORE_ENDPOINTS);
        return;
    }
    struct endpoint_place *s = &d->endpoint[slot];
    if (s->used && (s->boot != ep->boot || s->target.port != target.port ||
                    s->target.tls != target.tls || strcmp(s->target.host, target.host) != 0)) {
        block_feed_free(s->feed);
        s->feed = NULL;
    }
    uint64_t pins = 0;
    bundle_pin(&d->board->pins, &pins, target.bundle);
    bundle_unpin(&d->board->pins, &s->pins);
    if (!s->used) *s = (struct endpoint_place){ .serial = ++d->endpoints_seen };
    s->pins = pins;
    s->used = s->seen = true;
    s->draining = ep->state == ENDPOINT_DRAINING;
    s->boot = ep->boot;
    s->service = service->hash;
    s->target = target;
    if (target.bundle && !s->feed && ep->state != ENDPOINT_STARTING) {
        s->feed = block_feed_new(d->loop, d->signer, core_index(d->core), slot, &target, d->link);
        if (s->feed) block_feed_on_load(s->feed, on_load, d);
    }
}

/* At their bound, deleted services make room for new ones. */
static void forget_services(struct decide *d)
{
    if (d->services.count < SYNC_SERVICES_MAX) return;
    for (uint32_t i = d->services.count; i-- > 0;) {
        const struct service *s = &d->services.item[i];
        if (!s->from_controller && !decide_has_endpoint(d, s)) services_remove(&d->services, i);
    }
}

void decide_endpoints_end(struct decide *d, bool complete)
{
    double ready = 0, unnamed = 0;
    for (uint32_t i = 0; i < CORE_ENDPOINTS; i++) {
        struct endpoint_place *s = &d->endpoint[i];
        unnamed += s->used && !s->seen;
        if (s->used && !s->seen && complete) {
            log_event(LOG_INFO, "endpoint_gone", "instance=%s", s->target.instance);
            block_feed_free(s->feed);
            core_endpoint_remove(d->core, i);
            s->feed = NULL;
            s->used = false;
        }
        if (!s->used && s->pins != 0 && core_in_flight(d->core, i) == 0) {
            s->target.bundle = NULL; /* nobody asks any more where a request was */
            bundle_unpin(&d->board->pins, &s->pins);
        }
        const struct core_endpoint *ep = s->used ? core_endpoint_at(d->core, i) : NULL;
        ready += ep && ep->ready;
    }
    metric_set(metric_of(d->metrics, RM_ENDPOINTS), ready);
    metric_set(metric_of(d->metrics, RM_ENDPOINTS_UNNAMED), complete ? 0 : unnamed);
    forget_services(d);
    decide_held_again(d);
}

void decide_publish(struct decide *d)
{
    struct face *f = calloc(1, sizeof *f);
    if (!f) return; /* the old face stays: nothing is lost but freshness */
    f->keys = d->keys.need;
    f->tenants = tenant_keys_ref(d->tenant_keys);
    for (uint32_t i = 0; i < d->services.count; i++) {
        const struct service *s = &d->services.item[i];
        if (!s->from_controller && !decide_has_endpoint(d, s)) continue; /* deleted */
        struct face_model *m = &f->model[f->model_count++];
        memcpy(m->name, s->name, sizeof m->name);
        m->service = s->hash;
        for (uint32_t e = 0; e < CORE_ENDPOINTS; e++) {
            const struct endpoint_place *ep = &d->endpoint[e];
            if (!ep->used || ep->service != s->hash || !ep->target.bundle) continue;
            m->bundle = ep->target.bundle;
            bundle_pin(&d->board->pins, &f->pins, m->bundle);
            m->context_tokens = ep->target.context_tokens;
            break;
        }
    }
    face_publish(d->board, f);
}
