/* f_trace_context.c - reads any bytes as traceparent and as tracestate headers.
 *
 * Besides not crashing it must hold that (1) an accepted traceparent that is printed and read again is the
 * same, and is one byte string of the specification's form; (2) an accepted tracestate is within its bound,
 * and joining it again changes nothing. */
#include "base/core/err.h"
#include "base/core/trace_context.h"
#include "tests/fuzz/fuzz.h"

const struct fuzz_cost fuzz_cost = { 20000, 200 };

static void check_parent(struct str header)
{
    struct trace_context a, b;
    char text[TRACE_PARENT_BYTES + 1];
    if (trace_parent_read(header, &a) < 0) return;
    trace_parent_print(&a, text);
    must(strlen(text) == TRACE_PARENT_BYTES);
    must(trace_parent_read(str_from(text), &b) == 0);
    must(memcmp(a.trace_id, b.trace_id, TRACE_ID_BYTES) == 0);
    must(memcmp(a.span_id, b.span_id, SPAN_ID_BYTES) == 0 && a.sampled == b.sampled);
}

static void check_state(struct str in)
{
    struct str header[4];
    uint32_t count = 0;
    while (in.len > 0 && count < 4)
        header[count++] = str_cut(&in, '\n');
    char once[TRACE_STATE_BYTES_MAX + 1], twice[TRACE_STATE_BYTES_MAX + 1];
    if (trace_state_join(header, count, once) < 0) return;
    must(strlen(once) <= TRACE_STATE_BYTES_MAX);
    struct str again = str_from(once);
    must(trace_state_join(&again, 1, twice) == 0 && strcmp(once, twice) == 0);
}

void fuzz_one(const uint8_t *data, size_t size)
{
    struct str in = str_of(data, size);
    check_parent(in);
    check_state(in);
}
