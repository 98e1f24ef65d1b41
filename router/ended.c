/* ended.c - a ring of ended requests under one lock: an entry costs a copy of its size. */
#include "router/ended.h"

#include "base/core/bits.h"
#include "base/core/json.h"

#include <stdlib.h>
#include <string.h>

int ended_init(struct ended_requests *f)
{
    *f = (struct ended_requests){ .request = calloc(ENDED_MAX, sizeof *f->request) };
    if (!f->request) return -ENOMEM;
    lock_init(&f->lock);
    return 0;
}

void ended_fini(struct ended_requests *f)
{
    if (!f->request) return;
    lock_fini(&f->lock);
    free(f->request);
    f->request = NULL;
}

void ended_put(struct ended_requests *f, const struct ended_request *one)
{
    lock_take(&f->lock);
    if (f->count == ENDED_MAX) {
        f->first = (f->first + 1) % ENDED_MAX;
        f->count--;
    }
    f->request[(f->first + f->count++) % ENDED_MAX] = *one;
    lock_drop(&f->lock);
}

static bool find(struct ended_requests *f, struct str id, struct ended_request *ret)
{
    bool found = false;
    lock_take(&f->lock);
    for (uint32_t i = f->count; i-- > 0 && !found;) {
        const struct ended_request *one = &f->request[(f->first + i) % ENDED_MAX];
        found = str_eq(str_from(one->id), id);
        if (found) *ret = *one;
    }
    lock_drop(&f->lock);
    return found;
}

static void put_known(struct json_writer *w, const char *name, bool known, double value)
{
    json_key(w, name);
    if (known)
        json_put_f64(w, value);
    else
        json_put_null(w);
}

int ended_render(struct ended_requests *f, struct str id, struct buf *out)
{
    struct ended_request r;
    struct json_writer w;
    if (!find(f, id, &r)) return -ENOENT;
    bool sent = r.instance[0];
    json_writer_init(&w, out);
    json_object(&w);
    json_key(&w, "request");
    json_object(&w);
    json_kv_text(&w, "request", r.id);
    json_kv_text(&w, "trace_id", r.trace_id[0] ? r.trace_id : NULL);
    json_kv_text(&w, "service", r.service);
    json_kv_text(&w, "tenant", r.tenant[0] ? r.tenant : NULL);
    json_kv_text(&w, "ended", r.ended);
    json_kv_i64(&w, "ended_us", r.ended_us);
    json_kv_text(&w, "instance", sent ? r.instance : NULL);
    json_kv_u64(&w, "attempts", r.attempts);
    json_kv_bool(&w, "held", r.held);
    put_known(&w, "ttft_s", r.ttft_us > 0, (double)r.ttft_us / 1e6);
    put_known(&w, "ttft_estimate_s", sent && r.estimate_s >= 0, r.estimate_s);
    put_known(&w, "tpot_s", r.tpot_us > 0, (double)r.tpot_us / 1e6);
    put_known(&w, "e2e_s", r.e2e_us > 0, (double)r.e2e_us / 1e6);
    json_kv_u64(&w, "prompt_tokens", r.prompt_tokens);
    json_kv_u64(&w, "cached_tokens", r.cached_tokens);
    put_known(&w, "cached_believed", sent, r.hit_tokens);
    json_kv_u64(&w, "generated_tokens", r.generated_tokens);
    put_known(&w, "predicted_p50", sent, r.predicted_p50);
    put_known(&w, "predicted_p90", sent, r.predicted_p90);
    json_kv_u64(&w, "decision", r.decision);
    json_object_end(&w);
    json_object_end(&w);
    return out->rc;
}
