/* record.c - writes decisions as JSON, and the state of policies as bytes with a digest.
 *
 * The members of a decision are named as people read them in `muster explain`: the inputs, the wanted
 * counts, the runner-up, the actions and the cost. */
#include "controller/core/record.h"

#include "base/core/hash.h"
#include "base/core/own.h"

#include <stdio.h>
#include <string.h>

#define SOLD_OUT_LEAST 0.05 /* a smaller chance decides nothing */
#define REFUSED_MAX 4       /* offers of a service whose refusals a record has */

static void put_counts(struct json_writer *w, const char *name, const struct plan_service *s,
                       const uint32_t count[SCALE_POOLS_MAX])
{
    json_key(w, name);
    json_object(w);
    for (uint32_t p = 0; p < s->pool_count; p++)
        json_kv_u64(w, s->pool[p].name, count[p]);
    json_object_end(w);
}

void record_put_lengths(struct json_writer *w, const char *name, const struct lengths *l)
{
    json_key(w, name);
    if (l->count <= 0) {
        json_put_null(w);
        return;
    }
    json_object(w);
    json_kv_f64(w, "count", l->count);
    json_kv_f64(w, "age_s", l->age_s);
    json_kv_f64(w, "prompt_tokens_mean", l->prompt);
    json_kv_f64(w, "prompt_tokens_p50", lengths_prompt_quantile(l, 0.5));
    json_kv_f64(w, "prompt_tokens_p90", lengths_prompt_quantile(l, 0.9));
    json_kv_f64(w, "output_tokens_mean", l->output);
    json_kv_f64(w, "output_tokens_p50", lengths_output_quantile(l, 0.5));
    json_kv_f64(w, "output_tokens_p90", lengths_output_quantile(l, 0.9));
    json_object_end(w);
}

void record_put_demand(struct json_writer *w, const struct scale_demand *d)
{
    json_kv_f64(w, "arrivals_per_s", d->arrivals_s);
    if (d->late_refused_s > 0) json_kv_f64(w, "late_refused_per_s", d->late_refused_s);
    json_kv_f64(w, "uncached_prompt_tokens_mean", d->prompt_tokens);
    json_kv_f64(w, "output_tokens_mean", d->output_tokens);
    json_kv_u64(w, "in_flight", d->in_flight);
    json_kv_u64(w, "waiting", d->waiting);
    json_kv_u64(w, "held", d->held);
    json_kv_f64(w, "idle_s", d->idle_s);
    record_put_lengths(w, "expected", &d->expected);
    record_put_lengths(w, "queued", &d->queued);
}

static void put_inputs(struct json_writer *w, const struct plan_decision *d)
{
    const struct scale_demand *m = &d->demand;
    json_key(w, "inputs");
    json_object(w);
    json_kv_bool(w, "demand_known", m->present);
    if (m->present) {
        json_kv_f64(w, "demand_age_s", m->age_s);
        record_put_demand(w, m);
        json_key(w, "ttft_p90_s");
        if (m->ttft_known)
            json_put_f64(w, m->ttft_s);
        else
            json_put_null(w);
    }
    json_kv_bool(w, "routers_fresh", d->routers_fresh);
    json_kv_u64(w, "reports_fresh", d->fresh);
    json_kv_u64(w, "reports_expected", d->expected);
    json_object_end(w);
}

static void put_runner_up(struct json_writer *w, const struct plan_service *s,
                          const struct scale_verdict *v)
{
    json_key(w, "runner_up");
    if (!v->has_runner_up) {
        json_put_null(w);
        return;
    }
    json_object(w);
    put_counts(w, "want", s, v->runner_up.want);
    json_kv_f64(w, "cost_per_h", v->runner_up.cost_h);
    json_kv_text(w, "why_not", v->runner_why);
    json_object_end(w);
}

static void put_placed(struct json_writer *w, const struct plan_service *s,
                       const struct plan_decision *d)
{
    json_kv_text(w, "place", s->place->name);
    json_key(w, "placed");
    json_array(w);
    for (uint32_t p = 0; p < s->pool_count; p++) {
        json_object(w);
        json_kv_text(w, "pool", s->pool[p].name);
        json_kv_text(w, "reason", d->placed[p].reason);
        json_kv_f64(w, "cost_per_h", d->placed[p].cost_h);
        json_key(w, "short_share");
        if (d->placed[p].missing >= 0)
            json_put_f64(w, d->placed[p].missing);
        else
            json_put_null(w);
        json_object_end(w);
    }
    json_array_end(w);
}

void record_put_lead(struct json_writer *w, const struct lead *l)
{
    bool any = false;
    for (int p = 0; p < LEAD_PHASE_COUNT; p++) {
        if (!l->known[p]) continue;
        if (!any) json_key(w, "lead");
        if (!any) json_object(w);
        any = true;
        json_kv_f64(w, lead_phase_names[p], l->s[p]);
    }
    if (any) json_object_end(w);
}

static void put_actions(struct json_writer *w, const struct plan_view *view,
                        const struct plan *plan, const struct plan_decision *d,
                        const char (*launched)[INTENT_ID_BYTES])
{
    json_key(w, "actions");
    json_array(w);
    for (uint32_t i = 0; i < d->action_count; i++) {
        uint32_t at = d->action_from + i;
        const struct plan_action *a = &plan->action[at];
        json_object(w);
        json_kv_text(w, "act", plan_act_names[a->act]);
        json_kv_text(w, "pool", view->service[a->service].pool[a->pool].name);
        if (a->act == PLAN_LAUNCH) {
            const struct offer *o = &view->offer[a->offer];
            json_kv_text(w, "offer", o->name);
            if (launched && launched[at][0]) json_kv_text(w, "instance", launched[at]);
            json_kv_f64(w, "price_per_h", o->price_h);
            json_kv_f64(w, "lead_s", o->lead_s);
            record_put_lead(w, &o->lead);
        } else {
            json_kv_text(w, "instance", view->instance[a->instance].id);
            if (view->instance[a->instance].failing) json_kv_text(w, "why", a->why);
        }
        json_object_end(w);
    }
    json_array_end(w);
}

/* Writes what the service's offers last said, where one refused: why a decision that is held back has none. */
static void put_refused(struct json_writer *w, const struct plan_view *view,
                        const struct plan_service *s)
{
    uint32_t count = 0;
    json_key(w, "refused");
    json_array(w);
    for (uint32_t p = 0; p < s->pool_count; p++)
        for (uint32_t i = 0; i < s->pool[p].offer_count && count < REFUSED_MAX; i++) {
            const struct offer_health *h = &view->health[s->pool[p].offer[i]];
            if (h->last == OFFER_OK) continue;
            json_object(w);
            json_kv_text(w, "offer", view->offer[s->pool[p].offer[i]].name);
            json_kv_text(w, "error", offer_error_names[h->last]);
            json_kv_text(w, "why", h->text);
            json_object_end(w);
            count++;
        }
    json_array_end(w);
}

/* Lists the service's offers that may be sold out, likeliest to matter first: in the order of its pools. */
static void put_sold_out(struct json_writer *w, const struct plan_view *view,
                         const struct plan_service *s)
{
    uint32_t n = 0;
    for (uint32_t p = 0; view->sold_out && p < s->pool_count; p++)
        for (uint32_t o = 0; o < s->pool[p].offer_count && n < REFUSED_MAX; o++) {
            uint32_t at = s->pool[p].offer[o];
            if (view->sold_out[at] < SOLD_OUT_LEAST) continue;
            if (n++ == 0) {
                json_key(w, "sold_out");
                json_array(w);
            }
            json_object(w);
            json_kv_text(w, "offer", view->offer[at].name);
            json_kv_f64(w, "chance", view->sold_out[at]);
            json_object_end(w);
        }
    if (n > 0) json_array_end(w);
}

int record_encode(const struct plan_view *view, const struct plan *plan,
                  const struct plan_decision *decision, const char (*launched)[INTENT_ID_BYTES],
                  int64_t at_us, struct buf *out)
{
    const struct plan_service *s = &view->service[decision->service];
    const struct scale_verdict *v = &decision->verdict;
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_i64(&w, "at_us", at_us);
    json_kv_text(&w, "service", s->name);
    json_kv_text(&w, "kind", "scale");
    json_kv_text(&w, "policy", s->policy->name);
    json_kv_text(&w, "reason", decision->reason);
    json_kv_text(&w, "blocked", decision->blocked);
    if (decision->blocked && view->health) put_refused(&w, view, s);
    if (decision->hold_s > 0) json_kv_f64(&w, "hold_s", decision->hold_s);
    put_inputs(&w, decision);
    put_counts(&w, "ready", s, decision->ready);
    put_counts(&w, "have", s, decision->have);
    if (decision->failing > 0) json_kv_u64(&w, "failing", decision->failing);
    put_counts(&w, "want", s, v->choice.want);
    put_counts(&w, "target", s, decision->target);
    json_kv_f64(&w, "load", v->load);
    json_key(&w, "estimate_ttft_s");
    if (v->estimate_s >= 0)
        json_put_f64(&w, v->estimate_s);
    else
        json_put_null(&w);
    put_runner_up(&w, s, v);
    json_kv_f64(&w, "cost_per_h", decision->cost_h);
    json_kv_f64(&w, "cost_per_h_after", decision->cost_h_after);
    if (s->budget_h > 0) json_kv_f64(&w, "budget_per_h", s->budget_h);
    put_placed(&w, s, decision);
    put_sold_out(&w, view, s);
    put_actions(&w, view, plan, decision, launched);
    json_object_end(&w);
    return out->rc;
}

bool record_is_news(struct record_last *last, const struct plan_decision *decision)
{
    /* Static sentences: comparing the pointers compares the words. A shaper that holds back a signal
     * which flaps is recorded once. */
    bool held_back = decision->blocked && decision->blocked != last->blocked;
    bool news = decision->action_count > 0 || held_back;
    if (news) *last = (struct record_last){ decision->reason, decision->blocked };
    return news;
}

/* ---- the state of policies ----
 *
 * The record is lines of text before bytes that are structs. The bytes are used as they are, so only our
 * own are taken: the digest proves that they are as written, the line before it that they mean the same
 * today. The digest is no defence against someone who may write the store. */

#define FIRST_LINE "muster policy memory "
#define BEFORE_FORMAT_1 "0.1.0 " /* the only line of a record began so then */
#define DIGEST_SEED 0x706d656d6f727931
#define DIGEST_BYTES 16

/* Writes all that the bytes' meaning depends on: the policies, their sizes, and the pools in order. */
static void put_rows(const struct plan_service *s, struct buf *out)
{
    buf_printf(out, "%s:%u %s:%u %s:%u", s->policy->name, s->policy->state_size,
               s->shaper ? s->shaper->name : "", s->shaper ? s->shaper->state_size : 0,
               s->place ? s->place->name : "", s->place ? s->place->state_size : 0);
    for (uint32_t p = 0; p < s->pool_count; p++)
        buf_printf(out, " %s", s->pool[p].name);
}

static uint64_t digest_of(struct str rows, const void *bytes)
{
    return hash64(bytes, sizeof(struct plan_memory), hash64(rows.data, rows.len, DIGEST_SEED));
}

int policy_memory_encode(const struct plan_service *s, const struct plan_memory *memory,
                         struct buf *out)
{
    CLEANUP(buf_fini) struct buf rows = { 0 };
    put_rows(s, &rows);
    if (rows.rc < 0) return rows.rc;
    buf_printf(out, FIRST_LINE "%d\n" STR_FMT "\n%016llx\n", POLICY_MEMORY_VERSION, STR_ARG(rows),
               (unsigned long long)digest_of(buf_view(&rows), memory));
    return buf_append(out, memory, sizeof *memory);
}

/* Reads a record without a first line of ours: one older than format 1, or something else. */
static enum policy_memory_kind decode_before(struct str rows, struct str record,
                                             struct plan_memory *ret)
{
    struct str bytes = record, line = str_cut(&bytes, '\n');
    size_t begin = sizeof BEFORE_FORMAT_1 - 1;
    if (!str_starts(line, STR(BEFORE_FORMAT_1)) || bytes.len != sizeof *ret)
        return POLICY_MEMORY_OTHER;
    if (!str_eq(str_of(line.data + begin, line.len - begin), rows)) return POLICY_MEMORY_OTHER;
    memcpy(ret, bytes.data, sizeof *ret);
    return POLICY_MEMORY_GOOD;
}

enum policy_memory_kind policy_memory_decode(const struct plan_service *s, struct str record,
                                             struct plan_memory *ret)
{
    CLEANUP(buf_fini) struct buf rows = { 0 };
    uint64_t version = 0;
    char want[DIGEST_BYTES + 1];
    put_rows(s, &rows);
    if (rows.rc < 0) return POLICY_MEMORY_OTHER;
    if (!str_starts(record, STR(FIRST_LINE))) return decode_before(buf_view(&rows), record, ret);
    struct str bytes = record, first = str_cut(&bytes, '\n');
    struct str number =
        str_of(first.data + sizeof FIRST_LINE - 1, first.len - sizeof FIRST_LINE + 1);
    if (str_to_u64(number, &version) < 0) return POLICY_MEMORY_DAMAGED;
    if (version != POLICY_MEMORY_VERSION) return POLICY_MEMORY_OTHER;
    struct str line = str_cut(&bytes, '\n'), digest = str_cut(&bytes, '\n');
    if (bytes.len != sizeof *ret) return POLICY_MEMORY_DAMAGED;
    snprintf(want, sizeof want, "%016llx", (unsigned long long)digest_of(line, bytes.data));
    if (!str_eq(digest, str_from(want))) return POLICY_MEMORY_DAMAGED;
    if (!str_eq(line, buf_view(&rows))) return POLICY_MEMORY_OTHER;
    memcpy(ret, bytes.data, sizeof *ret);
    return POLICY_MEMORY_GOOD;
}
