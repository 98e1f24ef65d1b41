/* plan_view.c - intent, report and routers put together. */
#include "controller/core/plan_view.h"

#include "base/core/bits.h"

#include <string.h>

void plan_instance_see(const struct instance_facts *f, const struct sighting *s,
                       struct plan_instance *ret)
{
    *ret = (struct plan_instance){
        .service = f->service,
        .pool = f->pool,
        .offer = f->offer,
        .phase = f->phase,
        .fresh = f->fresh,
        .doomed = f->doomed,
        .pinned = f->pinned,
        .in_flight = max_u32(s->in_flight, f->routed),
        .pages_cached = s->pages_cached,
        .has_perf = s->has_perf,
        .perf = s->perf,
        .seqs_max = s->seqs_max,
        .price_h = f->price_h,
        .since_us = f->since_us,
        .lead_s = f->lead_s,
        .context_tokens = f->context_tokens,
        .step_tokens = f->step_tokens,
        .load = { .id = f->number,
                  .running = s->running,
                  .waiting = s->waiting,
                  .kv_tokens = s->kv_tokens,
                  .kv_tokens_max = s->kv_tokens_max,
                  .prefill_known = s->prefill_known,
                  .prefill_tokens = s->prefill_tokens },
    };
    size_t bytes = strlen(f->id) + 1;
    must(bytes <= sizeof ret->id);
    memcpy(ret->id, f->id, bytes);
}
