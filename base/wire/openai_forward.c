/* openai_forward.c - copies a request's members but for those that the router decides. */
#include "base/wire/openai_forward.h"

#include "base/core/bits.h"
#include "base/core/json.h"

static const char *const left_out[] = {
    /* set below */
    "model",
    "stream_options",
    "cache_salt",
    /* not the client's to say */
    "extra_key",
    "kv_transfer_params",
    "ec_transfer_params",
    "data_parallel_rank",
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
    "id_slot",
    "rid",
    "request_id",
};

static bool is_left_out(const struct json_reader *r)
{
    for (size_t i = 0; i < COUNT_OF(left_out); i++)
        if (json_key_is(r, left_out[i])) return true;
    return false;
}

static void put_ours(struct json_writer *w, const struct openai_forward *f)
{
    json_kv_str(w, "model", f->model);
    if (f->cache_salt.len > 0) json_kv_str(w, "cache_salt", f->cache_salt);
    if (!f->stream) return;
    json_key(w, "stream_options");
    json_object(w);
    json_kv_bool(w, "include_usage", true);
    json_object_end(w);
}

int openai_forward(struct str body, const struct openai_forward *f, struct buf *out)
{
    struct json_reader r;
    struct json_writer w;
    json_reader_init(&r, body);
    json_writer_init(&w, out);
    if (json_next(&r) != JSON_OBJECT) return -EINVAL;
    json_object(&w);
    put_ours(&w, f);
    while (json_next(&r) == JSON_KEY) {
        struct str value, raw = r.raw;
        bool out_of_it = is_left_out(&r);
        if (json_raw_value(&r, &value) < 0) return -EINVAL;
        if (out_of_it) continue;
        buf_text(out, ",\"");
        buf_str(out, raw); /* still escaped */
        buf_text(out, "\":");
        buf_str(out, value);
    }
    json_object_end(&w);
    return r.token == JSON_OBJECT_END ? out->rc : -EINVAL;
}
