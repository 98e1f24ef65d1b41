/* load_record.c - one object a line. */
#include "cli/load_record.h"

#include "base/core/json.h"

static void put(struct json_writer *w, const struct load_sample *s)
{
    json_object(w);
    json_kv_f64(w, "timestamp", (double)s->due_us * 1e-3);
    json_kv_u64(w, "input_length", s->prompt_tokens);
    json_kv_u64(w, "output_length", s->output_tokens);
    if (s->outcome == LOAD_OK) {
        json_kv_u64(w, "cached", s->cached_tokens);
        json_kv_f64(w, "ttft_s", (double)s->ttft_us * 1e-6);
        json_kv_f64(w, "e2e_s", (double)s->e2e_us * 1e-6);
        json_kv_text(w, "instance", s->instance);
    } else {
        json_kv_text(w, "outcome", load_outcome_name(s->outcome));
    }
    json_object_end(w);
}

int load_record(const struct load_sample *sample, uint32_t count, struct buf *out)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < count; i++) {
        if (sample[i].outcome == LOAD_PENDING) continue;
        struct json_writer w;
        json_writer_init(&w, out);
        put(&w, &sample[i]);
        rc = buf_byte(out, '\n');
    }
    return rc;
}
