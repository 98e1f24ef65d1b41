/* f_generate.c - reads any text as the description of a generator: it is refused with a sentence, or
 * generates a trace that keeps a trace's invariants. */
#include "base/core/bits.h"
#include "simulator/generate.h"
#include "tests/fuzz/fuzz.h"

const struct fuzz_cost fuzz_cost = { 20000000, 1000 };

void fuzz_one(const uint8_t *data, size_t size)
{
    struct generate_spec spec;
    struct err err = { 0 };
    if (generate_parse(str_of(data, size), &spec, &err) < 0) {
        must(err.text[0]);
        return;
    }
    CLEANUP(trace_freep) struct trace *t = NULL;
    spec.n = spec.n > 0 && spec.n < 300 ? spec.n : 300;
    int rc = generate_trace(&spec, 1, &t, &err);
    must(rc == 0 ? t != NULL : t == NULL && err.text[0]);
    if (rc < 0) return;
    must(t->count > 0 && t->count <= spec.n);
    for (uint32_t i = 0; i < t->count; i++) {
        const struct trace_request *r = &t->request[i];
        must(r->prompt_tokens > 0 && r->prompt_tokens <= spec.context && r->output_tokens > 0);
        must(i == 0 || r->at_us >= t->request[i - 1].at_us);
        must(spec.output_max == 0 || r->output_tokens <= spec.output_max);
        must(r->tenant <= spec.tenants);
    }
}
