/* plan_view.c - puts intent, report and routers together into one view of an instance. */
#include "controller/core/plan_view.h"

#include "base/core/bits.h"

#include <math.h>
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
        .at_risk = f->at_risk,
        .doomed = f->doomed,
        .failing = f->failing,
        .pinned = f->pinned,
        .in_flight = max_u32(s->in_flight, f->routed),
        .pages_cached = s->pages_cached,
        .cached_tokens = s->cached_tokens,
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

void plan_pick_failing(struct plan_instance *list, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t there = 0, before = 0;
        if (!list[i].failing) continue;
        for (uint32_t k = 0; k < count; k++) {
            const struct plan_instance *in = &list[k];
            if (in->service != list[i].service || in->pool != list[i].pool) continue;
            there += in->phase <= PHASE_READY;
            before += k < i && in->failing && in->phase <= PHASE_READY;
        }
        list[i].failing = before < fmax(1, PLAN_FAILING_SHARE * there);
        list[i].at_risk |= list[i].failing;
    }
}

void role_instance_see(const struct role_facts *f, const struct sighting *s,
                       struct role_instance *ret)
{
    bool mute = f->ready && !f->moves_kv;
    *ret = (struct role_instance){
        .id = f->id,
        .ready = f->ready,
        .pinned = f->pool_role != ROLE_BOTH || mute,
        .role = mute                        ? ROLE_BOTH
                : f->pool_role != ROLE_BOTH ? f->pool_role
                                            : f->role,
        .has_perf = s->has_perf,
        .perf = s->perf,
        /* An engine that does not report its step budget takes a prompt whole. */
        .token_budget = max_u32(f->step_tokens ? f->step_tokens : f->context_tokens, 1),
        .seqs_max = max_u32(s->seqs_max, 1),
        .kv_tokens_max = s->kv_tokens_max,
        .prompt_pending = s->prefill_known ? s->prefill_tokens : 0,
        .decode_pending = s->kv_tokens,
        .decoding = s->running,
    };
}
