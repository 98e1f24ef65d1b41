/* merge.c - derives an intent's next event from stored intents, listings and reports. */
#include "controller/core/merge.h"

#include "base/core/bits.h"

#include <string.h>

const char *const phase_names[PHASE_COUNT] = {
    [PHASE_STARTING] = "starting", [PHASE_READY] = "ready",     [PHASE_DRAINING] = "draining",
    [PHASE_ENDING] = "ending",     [PHASE_STOPPED] = "stopped",
};

void sighting_take(struct sighting *s, const struct engine_report *e)
{
    s->engine_ready = e->health == ENGINE_READY;
    s->in_flight = e->running + e->waiting;
    s->running = e->running;
    s->waiting = e->waiting;
    uint64_t idle = (uint64_t)e->pages_free + e->pages_cached;
    s->kv_tokens_max = (uint64_t)e->pages_total * e->page_tokens;
    s->kv_tokens = idle < e->pages_total ? (e->pages_total - idle) * e->page_tokens : 0;
    s->pages_cached = e->pages_cached;
    s->cached_tokens = (uint64_t)e->pages_cached * e->page_tokens;
    s->prefill_known = e->has_owed;
    s->prefill_tokens = e->owed.prompt_tokens;
    s->seqs_max = e->running_max;
    s->perf = e->perf;
    s->has_perf = e->has_perf && perf_coef_valid(&s->perf);
}

static void set_phase(struct lead *l, enum lead_phase p, double from_s, double to_s)
{
    l->known[p] = true;
    l->s[p] = from_s > to_s ? from_s - to_s : 0;
}

void lead_take(const struct agent_report *r, int64_t launched_us, struct lead *ret)
{
    double launched_s = (double)launched_us / 1e6, booted_s = (double)r->booted_ms / 1e3;
    double begun_s = (double)r->begun_ms / 1e3, started_s = (double)r->started_ms / 1e3;
    if (r->begun_ms == 0 || launched_us <= 0) return;
    *ret = (struct lead){ 0 };
    if (r->booted_ms > 0 && booted_s <= launched_s) {
        set_phase(ret, LEAD_NODE, launched_s, booted_s);
        set_phase(ret, LEAD_BOOT, booted_s, begun_s);
    } else {
        set_phase(ret, LEAD_SCHEDULE, launched_s, begun_s);
    }
    if (r->started_ms > 0) set_phase(ret, LEAD_PULL, begun_s, started_s);
    if (r->loaded_ms > 0) set_phase(ret, LEAD_LOAD, started_s, (double)r->loaded_ms / 1e3);
}

bool sighting_is_fresh(const struct sighting *s, const struct merge_config *config, int64_t now_us)
{
    return s->heard_us != 0 && now_us - s->heard_us <= config->fresh_us;
}

/* Returns when we last acted on the instance or knew that it is there. An agent's report since the call
 * proves that a call which timed out came through later. Acts before the controller's start count as of
 * the start: another machine's date may say that they were hours ago. */
static int64_t last_sign_us(const struct merge_view *v)
{
    int64_t call_us = max_i64(v->intent->called_us, v->intent->removed_us);
    call_us = max_i64(call_us, v->answered_us);
    int64_t heard_us = v->seen->state == AGENT_STOPPED ? 0 : v->seen->heard_us;
    int64_t known_us = max_i64(heard_us, v->intent->registered_us);
    return max_i64(max_i64(call_us, known_us), v->listening_us);
}

/* Returns true if the instance is missing from a listing that was taken long enough after its last sign. */
static bool absence_is_proven(const struct merge_view *v, const struct merge_config *c,
                              int64_t now_us)
{
    const struct listing *l = v->listing;
    if (!l || !l->ok || v->item || v->calling) return false;
    if (sighting_is_fresh(v->seen, c, now_us) && v->seen->state != AGENT_STOPPED) return false;
    return l->taken_us >= last_sign_us(v) + l->lag_us + c->settle_us;
}

static bool agent_is_done(const struct merge_view *v)
{
    bool said = v->seen->heard_us != 0 && v->seen->state == AGENT_STOPPED;
    return said || (v->item && v->item->gone);
}

/* Returns true if a deadline has passed. It runs only while we listen: an instance's reports may have
 * been missed before our start, or while we were stopped or the machine was suspended. */
static bool is_over(const struct merge_view *v, int64_t since_us, int64_t limit_us, int64_t now_us)
{
    return now_us - max_i64(since_us, v->listening_us) >= limit_us;
}

/* Returns true if the instance is listed and no reply has said that all of it was made: the one that did may be
 * lost, or the call that would have made the rest. */
static bool is_in_part(const struct merge_view *v)
{
    return v->in_parts && v->intent->state == INTENT_CREATING;
}

/* Returns true if the create should be made again to complete the instance. This buys nothing, so the offer's
 * back-off does not hold it. */
static bool may_complete(const struct merge_view *v, const struct merge_config *c, int64_t now_us)
{
    int64_t asked_us = max_i64(max_i64(v->intent->called_us, v->answered_us), v->listening_us);
    return !v->calling && now_us - asked_us >= c->retry_us;
}

static enum intent_event event_while_coming(const struct merge_view *v,
                                            const struct merge_config *c, int64_t now_us)
{
    const struct intent *i = v->intent;
    if (agent_is_done(v)) return INTENT_DRAINED;
    if (v->seen->heard_us != 0) return INTENT_REPORTED;
    if (i->state == INTENT_CREATED) {
        if (is_over(v, i->made_us, c->boot_us, now_us)) return INTENT_LATE;
        return absence_is_proven(v, c, now_us) ? INTENT_ABSENT : INTENT_EVENT_COUNT;
    }
    if (v->item && !is_in_part(v)) return INTENT_LISTED;
    /* Counted from the intent's beginning: repeated calls must not put the deadline off. */
    if (is_over(v, i->wanted_us, c->boot_us, now_us)) return INTENT_LATE;
    if (v->item) return may_complete(v, c, now_us) ? INTENT_ABSENT : INTENT_EVENT_COUNT;
    if (!v->may_ask || !v->listing || v->calling) return INTENT_EVENT_COUNT;
    if (i->state == INTENT_WANTED) return INTENT_GO;
    return absence_is_proven(v, c, now_us) ? INTENT_ABSENT : INTENT_EVENT_COUNT;
}

static bool is_silent(const struct merge_view *v, const struct merge_config *c, int64_t now_us)
{
    int64_t heard = max_i64(v->seen->heard_us, v->intent->registered_us);
    return is_over(v, heard, c->silent_us, now_us) && !v->routed;
}

static enum intent_event event_while_serving(const struct merge_view *v,
                                             const struct merge_config *c, int64_t now_us)
{
    const struct intent *i = v->intent;
    if (agent_is_done(v)) return INTENT_DRAINED;
    if (absence_is_proven(v, c, now_us)) return INTENT_ABSENT;
    if (i->state == INTENT_DRAINING && is_over(v, i->drain_us, c->drain_us, now_us))
        return INTENT_LATE;
    if (is_silent(v, c, now_us)) return INTENT_LATE;
    return INTENT_EVENT_COUNT;
}

static enum intent_event event_while_ending(const struct merge_view *v,
                                            const struct merge_config *c, int64_t now_us)
{
    if (v->calling) return INTENT_EVENT_COUNT;
    if (absence_is_proven(v, c, now_us)) return INTENT_ABSENT;
    /* Asked again only once a listing could have proven the effect of the last call: a call that comes
     * sooner would put that proof off for ever, and use up the budget that the listing needs. */
    int64_t asked_us = max_i64(v->intent->removed_us, v->answered_us);
    int64_t lag_us = v->listing ? v->listing->lag_us : 0;
    int64_t proof_us = asked_us + lag_us + c->settle_us;
    bool unseen = v->listing && v->listing->ok && v->listing->taken_us < proof_us;
    if (unseen || now_us < max_i64(asked_us + c->retry_us, proof_us)) return INTENT_EVENT_COUNT;
    return v->item ? INTENT_LISTED : INTENT_LATE;
}

/* Returns true if the listing was taken long enough after `at_us` to show what was so then. */
static bool could_show(const struct merge_view *v, const struct merge_config *c, int64_t at_us)
{
    const struct listing *l = v->listing;
    return l && l->ok && l->taken_us >= at_us + l->lag_us + c->settle_us;
}

static bool runs(const struct merge_view *v)
{
    return v->item && !v->item->gone && !v->item->leaves_us;
}

/* The stop call is repeated like a remove. A stop that takes longer than a boot is given up. */
static enum intent_event event_while_stopping(const struct merge_view *v,
                                              const struct merge_config *c, int64_t now_us)
{
    if (v->calling) return INTENT_EVENT_COUNT;
    if (absence_is_proven(v, c, now_us)) return INTENT_ABSENT;
    if (v->item && v->item->stopped) return INTENT_HALTED;
    if (is_over(v, v->intent->state_us, c->boot_us, now_us)) return INTENT_LATE;
    int64_t asked_us = max_i64(v->intent->removed_us, v->answered_us);
    bool again = v->item && could_show(v, c, asked_us) && now_us >= asked_us + c->retry_us;
    return again ? INTENT_LISTED : INTENT_EVENT_COUNT;
}

/* A stopped instance that runs all the same was started by somebody else: it is billed and serves nobody. */
static enum intent_event event_while_stopped(const struct merge_view *v,
                                             const struct merge_config *c, int64_t now_us)
{
    const struct intent *i = v->intent;
    if (absence_is_proven(v, c, now_us)) return INTENT_ABSENT;
    if (runs(v) && could_show(v, c, max_i64(i->state_us, v->listening_us))) return INTENT_LISTED;
    if (i->age_limit_us && now_us - i->wanted_us >= i->age_limit_us) return INTENT_LATE;
    return INTENT_EVENT_COUNT;
}

static enum intent_event event_while_starting(const struct merge_view *v,
                                              const struct merge_config *c, int64_t now_us)
{
    const struct intent *i = v->intent;
    if (v->seen->heard_us > i->state_us) return INTENT_REPORTED;
    if (runs(v)) return INTENT_LISTED;
    if (is_over(v, i->state_us, c->boot_us, now_us)) return INTENT_LATE;
    if (v->calling) return INTENT_EVENT_COUNT;
    if (absence_is_proven(v, c, now_us)) return INTENT_ABSENT;
    bool still = v->item && v->item->stopped && could_show(v, c, last_sign_us(v));
    return still && v->may_ask ? INTENT_HALTED : INTENT_EVENT_COUNT;
}

/* Returns the event for a tombstone: anything that shows up under its id is removed. A listing from
 * before the end proves nothing. */
static enum intent_event event_after_end(const struct merge_view *v, const struct merge_config *c,
                                         int64_t now_us)
{
    int64_t ended = v->intent->ended_us;
    if (v->item && v->listing->ok && v->listing->taken_us > ended + v->listing->lag_us)
        return INTENT_LISTED;
    bool heard = v->seen->heard_us > ended + c->fresh_us && v->seen->state != AGENT_STOPPED;
    return heard && sighting_is_fresh(v->seen, c, now_us) ? INTENT_REPORTED : INTENT_EVENT_COUNT;
}

enum intent_event merge_event(const struct merge_view *view, const struct merge_config *config,
                              int64_t now_us)
{
    switch (view->intent->state) {
    case INTENT_WANTED:
    case INTENT_CREATING:
    case INTENT_CREATED:
        return event_while_coming(view, config, now_us);
    case INTENT_REGISTERED:
    case INTENT_DRAINING:
        return event_while_serving(view, config, now_us);
    case INTENT_STOPPING:
        return event_while_stopping(view, config, now_us);
    case INTENT_STOPPED:
        return event_while_stopped(view, config, now_us);
    case INTENT_STARTING:
        return event_while_starting(view, config, now_us);
    case INTENT_ENDING:
        return event_while_ending(view, config, now_us);
    case INTENT_ENDED:
        return event_after_end(view, config, now_us);
    case INTENT_STATE_COUNT:
        break;
    }
    return INTENT_EVENT_COUNT;
}

enum phase merge_phase(const struct intent *intent, const struct sighting *seen,
                       const struct merge_config *config, int64_t now_us)
{
    if (intent->state < INTENT_REGISTERED || intent->state == INTENT_STARTING)
        return PHASE_STARTING;
    if (intent->state == INTENT_DRAINING) return PHASE_DRAINING;
    if (intent->state == INTENT_STOPPED) return PHASE_STOPPED;
    if (intent->state > INTENT_DRAINING) return PHASE_ENDING;
    /* Silence is not death: the instance counts as ready until a witness says otherwise. */
    if (!sighting_is_fresh(seen, config, now_us)) return PHASE_READY;
    if (seen->state == AGENT_STOPPED) return PHASE_ENDING;
    return seen->state == AGENT_UP && seen->engine_ready ? PHASE_READY : PHASE_STARTING;
}

static uint32_t find_intent(const struct intent *intents, uint32_t count, const char *id)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(intents[i].id, id) == 0) return i;
    return UINT32_MAX;
}

/* Returns true if several entries are under the same intent and `at` is not the one to keep. */
static bool is_duplicate(const struct listing *l, uint32_t at, const struct intent *owner)
{
    const struct listed *mine = &l->item[at];
    if (owner->handle[0] && strcmp(mine->handle, owner->handle) == 0) return false;
    for (uint32_t j = 0; j < l->count; j++) {
        const struct listed *other = &l->item[j];
        if (j == at || strcmp(other->intent, mine->intent) != 0) continue;
        if (owner->handle[0] && strcmp(other->handle, owner->handle) == 0) return true;
        if (j < at) return true;
    }
    return false;
}

/* Returns the claim of an entry whose intent is unknown. */
static enum claim claim_of_orphan(const struct listed *item, const char *provider,
                                  const struct merge_fleet *fleet,
                                  const struct merge_config *config, int64_t now_us)
{
    if (item->unreadable) return CLAIM_WAIT;
    bool named = item->intent[0] && strlen(item->intent) < INTENT_ID_BYTES;
    if (!item->gone && named && fleet->known(fleet->ctx, item->service, item->pool, provider))
        return CLAIM_ADOPT;
    return now_us - item->created_us >= config->orphan_us ? CLAIM_END : CLAIM_WAIT;
}

void merge_claims(const struct listing *listing, const struct merge_fleet *fleet,
                  const struct merge_config *config, int64_t now_us, struct claimed *ret)
{
    for (uint32_t i = 0; i < listing->count; i++) {
        const struct listed *item = &listing->item[i];
        uint32_t owner = find_intent(fleet->intent, fleet->intent_count, item->intent);
        enum claim claim = CLAIM_OWN;
        if (owner == UINT32_MAX)
            claim = claim_of_orphan(item, listing->provider, fleet, config, now_us);
        else if (is_duplicate(listing, i, &fleet->intent[owner]))
            claim = CLAIM_DUPLICATE;
        ret[i] = (struct claimed){ claim, owner };
    }
}
