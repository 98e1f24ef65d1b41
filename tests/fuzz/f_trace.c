/* f_trace.c - reads any text as a trace: it is refused with a sentence or keeps the invariants. */
#include "base/core/bits.h"
#include "simulator/trace.h"
#include "tests/fuzz/fuzz.h"

static void check(const struct trace *t)
{
    must(t->count > 0);
    for (uint32_t i = 0; i < t->count; i++) {
        const struct trace_request *r = &t->request[i];
        must(r->prompt_tokens > 0 && r->output_tokens > 0);
        must(i == 0 || r->at_us >= t->request[i - 1].at_us);
        must(r->block_first + r->block_count <= t->block_count);
        must(r->text_first + r->text_bytes <= t->text_bytes);
    }
}

const struct fuzz_cost fuzz_cost = { 100000, 200 };

void fuzz_one(const uint8_t *data, size_t size)
{
    for (enum trace_format f = TRACE_AUTO; f < TRACE_FORMAT_COUNT; f++) {
        CLEANUP(trace_freep) struct trace *t = NULL;
        struct err err = { 0 };
        int rc = trace_parse(str_of(data, size), f, &t, &err);
        must(rc == 0 ? t != NULL : t == NULL && err.text[0]);
        if (rc < 0) continue;
        check(t);
        uint32_t count = t->count;
        if (trace_shape(t, 0, 3, 2, NULL) < 0) continue; /* too many tenants for three copies */
        check(t);
        must(t->count == 3 * count);
    }
}
