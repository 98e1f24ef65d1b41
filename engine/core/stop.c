/* stop.c - naive search over the held text and one token's: both are short.
 *
 * At most 16 strings of 256 bytes against some 300 bytes a token; an automaton would be slower to
 * build than all the searches of a usual answer.
 */
#include "engine/core/stop.h"

void stop_init(struct stop_matcher *m, const struct str *stop, uint32_t count)
{
    *m = (struct stop_matcher){ .stop = stop, .count = count };
}

void stop_fini(struct stop_matcher *m)
{
    buf_fini(&m->held);
}

/* Bytes at the end of `text` that begin some stop string: they may still become one. */
static size_t open_suffix(const struct stop_matcher *m, struct str text)
{
    size_t longest = 0;
    for (uint32_t i = 0; i < m->count; i++) {
        struct str stop = m->stop[i];
        size_t len = stop.len - 1 < text.len ? stop.len - 1 : text.len;
        for (; len > longest; len--) {
            if (memcmp(text.data + text.len - len, stop.data, len) == 0) longest = len;
        }
    }
    return longest;
}

int stop_push(struct stop_matcher *m, struct str text, struct buf *out)
{
    if (m->count == 0) return buf_str(out, text);
    int rc = buf_str(&m->held, text);
    if (rc < 0) return rc;
    struct str all = buf_view(&m->held);
    size_t first = SIZE_MAX, first_end = SIZE_MAX;
    for (uint32_t i = 0; i < m->count; i++) {
        size_t at = str_find(all, m->stop[i]);
        if (at == SIZE_MAX || at + m->stop[i].len > first_end) continue;
        if (at + m->stop[i].len == first_end && at > first) continue;
        first = at;
        first_end = at + m->stop[i].len;
    }
    bool met = first != SIZE_MAX;
    size_t certain = met ? first : all.len - open_suffix(m, all);
    rc = buf_append(out, all.data, certain);
    if (rc < 0) return rc;
    buf_consume(&m->held, met ? all.len : certain);
    return met;
}

int stop_flush(struct stop_matcher *m, struct buf *out)
{
    int rc = buf_str(out, buf_view(&m->held));
    buf_clear(&m->held);
    return rc;
}
