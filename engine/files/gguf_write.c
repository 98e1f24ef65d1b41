/* gguf_write.c - writes GGUF files; see gguf.c for the format. */
#include "engine/files/gguf_write.h"

#include "base/core/bits.h"
#include "base/core/buf.h"
#include "base/core/fault.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PATH_BYTES_MAX 4096
#define TENSOR_TABLE_BYTES_MAX ((size_t)64 << 20)

struct gguf_writer {
    char path[PATH_BYTES_MAX], partial[PATH_BYTES_MAX + 16];
    int fd; /* -1: closed */
    struct buf values, table;
    uint64_t value_count, tensor_count;
    uint64_t *bytes;  /* of each tensor */
    uint64_t placed;  /* bytes of data that the table names, padded */
    uint64_t current; /* tensor that data goes to */
    uint64_t filled;  /* bytes of it */
    bool begun;
};

int gguf_writer_new(const char *path, struct gguf_writer **ret, struct err *err)
{
    if (strlen(path) >= PATH_BYTES_MAX)
        return err_set(err, -ENAMETOOLONG, "a path of %zu bytes; at most %d", strlen(path),
                       PATH_BYTES_MAX - 1);
    CLEANUP(gguf_writer_freep) struct gguf_writer *w = calloc(1, sizeof *w);
    if (!w) return err_set(err, -ENOMEM, "%s: no memory to write it", path);
    w->fd = -1;
    buf_init(&w->values, GGUF_META_BYTES_MAX);
    buf_init(&w->table, TENSOR_TABLE_BYTES_MAX);
    snprintf(w->path, sizeof w->path, "%s", path);
    snprintf(w->partial, sizeof w->partial, "%s.partial", path);
    w->bytes = calloc(GGUF_TENSORS_MAX, sizeof *w->bytes);
    if (!w->bytes) return err_set(err, -ENOMEM, "%s: no memory to write it", path);
    *ret = TAKE(w);
    return 0;
}

void gguf_writer_free(struct gguf_writer *w)
{
    if (!w) return;
    if (w->fd >= 0) {
        close(w->fd);
        unlink(w->partial);
    }
    buf_fini(&w->values);
    buf_fini(&w->table);
    free(w->bytes);
    free(w);
}

/* ---- values and the table */

static void put_u64(struct buf *b, uint64_t v)
{
    buf_append(b, &v, sizeof v);
}

static void put_text(struct buf *b, struct str text)
{
    put_u64(b, text.len);
    buf_str(b, text);
}

static void put_key(struct gguf_writer *w, struct str key, enum gguf_type type)
{
    must(!w->begun);
    w->value_count++;
    put_text(&w->values, key);
    buf_u32(&w->values, type);
}

void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t value)
{
    put_key(w, str_from(key), GGUF_U32);
    buf_u32(&w->values, value);
}

void gguf_put_f32(struct gguf_writer *w, const char *key, float value)
{
    put_key(w, str_from(key), GGUF_F32);
    buf_append(&w->values, &value, sizeof value);
}

void gguf_put_bool(struct gguf_writer *w, const char *key, bool value)
{
    put_key(w, str_from(key), GGUF_BOOL);
    buf_byte(&w->values, (char)value);
}

void gguf_put_str(struct gguf_writer *w, const char *key, struct str value)
{
    put_key(w, str_from(key), GGUF_STRING);
    put_text(&w->values, value);
}

static void put_array(struct gguf_writer *w, const struct gguf_value *v)
{
    buf_u32(&w->values, v->array.type);
    put_u64(&w->values, v->array.count);
    if (v->array.type != GGUF_STRING) {
        buf_append(&w->values, v->array.items, v->array.count * gguf_type_bytes(v->array.type));
        return;
    }
    for (size_t i = 0; i < v->array.count; i++)
        put_text(&w->values, v->array.texts[i]);
}

void gguf_put_value(struct gguf_writer *w, const struct gguf_value *v)
{
    put_key(w, v->key, v->type);
    if (v->type == GGUF_ARRAY) {
        put_array(w, v);
    } else if (v->type == GGUF_STRING) {
        put_text(&w->values, v->text);
    } else if (v->type == GGUF_F32) {
        float f = (float)v->f;
        buf_append(&w->values, &f, sizeof f);
    } else { /* integers, bools and F64: the low bytes of the value */
        buf_append(&w->values, &v->u, gguf_type_bytes(v->type));
    }
}

void gguf_put_tensor(struct gguf_writer *w, struct str name, uint32_t n_dims, const uint64_t *dims,
                     enum weight_type_id type)
{
    const struct weight_type *t = &weight_types[type];
    must(!w->begun && n_dims >= 1 && n_dims <= GGUF_DIMS_MAX && name.len <= GGUF_NAME_BYTES_MAX);
    must(w->tensor_count < GGUF_TENSORS_MAX && dims[0] % t->block_elements == 0);
    size_t elements = 1, bytes, placed;
    put_text(&w->table, name);
    buf_u32(&w->table, n_dims);
    for (uint32_t i = 0; i < n_dims; i++) {
        put_u64(&w->table, dims[i]);
        must(mul_fits(elements, dims[i], &elements)); /* a read tensor, or bounded options */
    }
    buf_u32(&w->table, t->gguf_id);
    put_u64(&w->table, w->placed);
    must(mul_fits(elements / t->block_elements, t->block_bytes, &bytes));
    must(add_fits(w->placed, bytes, &placed) &&
         align_fits(placed, GGUF_ALIGNMENT_DEFAULT, &w->placed));
    w->bytes[w->tensor_count++] = bytes;
}

/* ---- the file */

static int write_all(struct gguf_writer *w, const void *data, size_t len, struct err *err)
{
    const char *from = data;
    while (len > 0) {
        ssize_t n = FAULT("gguf.write") ? (errno = ENOSPC, -1) : write(w->fd, from, len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_set(err, -errno, "%s: cannot write: %s", w->partial, strerror(errno));
        from += n, len -= (size_t)n;
    }
    return 0;
}

static int write_padding(struct gguf_writer *w, uint64_t after, struct err *err)
{
    static const char zeros[GGUF_ALIGNMENT_DEFAULT];
    size_t past = (size_t)(after % GGUF_ALIGNMENT_DEFAULT);
    return past ? write_all(w, zeros, GGUF_ALIGNMENT_DEFAULT - past, err) : 0;
}

int gguf_writer_begin(struct gguf_writer *w, uint64_t *ret_bytes, struct err *err)
{
    must(!w->begun);
    int rc = w->values.rc < 0 ? w->values.rc : w->table.rc;
    if (rc < 0) return err_set(err, rc, "%s: no memory for its metadata", w->path);
    w->fd = open(w->partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (w->fd < 0)
        return err_set(err, -errno, "%s: cannot make it: %s", w->partial, strerror(errno));
    w->begun = true;
    CLEANUP(buf_fini) struct buf head = { 0 };
    buf_text(&head, "GGUF");
    buf_u32(&head, GGUF_VERSION);
    put_u64(&head, w->tensor_count);
    put_u64(&head, w->value_count);
    if (head.rc < 0) return err_set(err, head.rc, "%s: no memory", w->path);
    rc = write_all(w, head.data, head.len, err);
    if (rc == 0) rc = write_all(w, w->values.data, w->values.len, err);
    if (rc == 0) rc = write_all(w, w->table.data, w->table.len, err);
    if (rc == 0) rc = write_padding(w, head.len + w->values.len + w->table.len, err);
    if (rc == 0 && ret_bytes) {
        *ret_bytes = 0;
        for (uint64_t i = 0; i < w->tensor_count; i++)
            *ret_bytes += w->bytes[i];
    }
    return rc;
}

int gguf_writer_data(struct gguf_writer *w, const void *data, size_t len, struct err *err)
{
    const char *from = data;
    while (len > 0) {
        must(w->begun && w->current < w->tensor_count);
        uint64_t size = w->bytes[w->current];
        size_t n = min_size(len, (size_t)(size - w->filled));
        int rc = write_all(w, from, n, err);
        from += n, len -= n, w->filled += n;
        if (rc == 0 && w->filled == size) {
            rc = write_padding(w, size, err);
            w->current++, w->filled = 0;
        }
        if (rc < 0) return rc;
    }
    return 0;
}

int gguf_writer_finish(struct gguf_writer *w, struct err *err)
{
    must(w->begun && w->current == w->tensor_count);
    if (fsync(w->fd) < 0 || rename(w->partial, w->path) < 0)
        return err_set(err, -errno, "%s: cannot keep it: %s", w->path, strerror(errno));
    close(w->fd);
    w->fd = -1;
    return 0;
}
