/* gguf_cursor.c - bytes of a GGUF file in order, through a window.
 *
 * A vocabulary of 256k strings thus costs a handful of calls to the source. */
#include "base/core/bits.h"
#include "engine/model/gguf_part.h"

int gguf_take(struct gguf_cursor *c, void *data, size_t len, const char *what)
{
    if (len > gguf_bytes_left(c))
        return err_set(c->err, -EINVAL, "the file ends inside %s at byte %llu", what,
                       (unsigned long long)c->pos);
    char *to = data;
    while (len > 0) {
        uint64_t in_window = c->pos - c->window_start;
        if (in_window >= c->window_len) {
            size_t more = min_size(GGUF_WINDOW_BYTES, gguf_bytes_left(c));
            int rc = c->source->read(c->source->ctx, c->pos, c->window, more, c->err);
            if (rc < 0) return rc;
            c->window_start = c->pos, c->window_len = more, in_window = 0;
        }
        size_t n = min_size(len, c->window_len - in_window);
        memcpy(to, c->window + in_window, n);
        to += n, c->pos += n, len -= n;
    }
    return 0;
}

int gguf_take_u32(struct gguf_cursor *c, uint32_t *ret, const char *what)
{
    char bytes[sizeof *ret];
    int rc = gguf_take(c, bytes, sizeof bytes, what);
    if (rc == 0) *ret = load_u32(bytes);
    return rc;
}

int gguf_take_u64(struct gguf_cursor *c, uint64_t *ret, const char *what)
{
    char bytes[sizeof *ret];
    int rc = gguf_take(c, bytes, sizeof bytes, what);
    if (rc == 0) *ret = load_u64(bytes);
    return rc;
}

int gguf_take_string(struct gguf_cursor *c, size_t max, struct str *ret, const char *what)
{
    uint64_t len = 0;
    int rc = gguf_take_u64(c, &len, what);
    if (rc < 0) return rc;
    if (len > gguf_bytes_left(c))
        return err_set(c->err, -EINVAL, "%s at byte %llu: %llu bytes long, the file has %llu left",
                       what, (unsigned long long)c->pos, (unsigned long long)len,
                       (unsigned long long)gguf_bytes_left(c));
    if (len > max)
        return err_set(c->err, -E2BIG, "%s at byte %llu: %llu bytes long, at most %zu are read",
                       what, (unsigned long long)c->pos, (unsigned long long)len, max);
    char *text = arena_alloc(c->arena, (size_t)len + 1);
    if (!text) return err_set(c->err, -ENOMEM, "no memory for %s", what);
    rc = gguf_take(c, text, (size_t)len, what);
    if (rc == 0) *ret = (struct str){ text, (size_t)len };
    return rc;
}
