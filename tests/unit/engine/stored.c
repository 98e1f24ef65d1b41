/* stored.c - safetensors files of the vectors, whole tensors at a time. */
#include "tests/unit/engine/stored.h"

#include "base/core/own.h"
#include "tests/unit/engine/gguf_make.h"
#include "tests/unit/engine/hf_make.h"
#include "tests/unit/engine/model_folder.h"
#include "tests/unit/unit.h"

#include <stdlib.h>

void stored_open(struct stored *s, const char *path)
{
    struct err err = { { 0 } };
    *s = (struct stored){ .file = { .fd = -1 } };
    if (gguf_file_open(path, &s->file, &err) < 0 ||
        safetensors_parse(&s->file.source, &s->table, &err) < 0)
        fail_msg("%s", err.text);
}

void stored_fini(struct stored *s)
{
    safetensors_free(s->table);
    gguf_file_close(&s->file);
}

void stored_read(const struct stored *s, const char *name, void *to, size_t bytes)
{
    const struct safetensor *t = safetensors_find(s->table, str_from(name));
    must(t && t->bytes == bytes);
    must(s->file.source.read(s->file.source.ctx, t->offset, to, bytes, NULL) == 0);
}

char *stored_raw(const struct stored *s, const struct safetensor *t)
{
    char *raw = malloc((size_t)t->bytes);
    must(raw &&
         s->file.source.read(s->file.source.ctx, t->offset, raw, (size_t)t->bytes, NULL) == 0);
    return raw;
}

void stored_put(const struct safetensor *t, const char *type, const char *raw, size_t bytes,
                struct buf *header, struct buf *data)
{
    buf_printf(header, "%c\"" STR_FMT "\":{\"dtype\":\"%s\",\"shape\":[", header->len ? ',' : '{',
               STR_ARG(t->name), type);
    for (uint32_t d = 0; d < t->n_dims; d++)
        buf_printf(header, "%s%llu", d ? "," : "", (unsigned long long)t->dims[d]);
    buf_printf(header, "],\"data_offsets\":[%zu,%zu]}", data->len, data->len + bytes);
    buf_append(data, raw, bytes);
}

void stored_write(const char *name, struct buf *header, const struct buf *data)
{
    CLEANUP(buf_fini) struct buf all = { 0 };
    buf_byte(header, '}');
    make_u64_raw(&all, header->len);
    buf_str(&all, buf_view(header));
    buf_str(&all, buf_view(data));
    must(all.rc == 0);
    hf_make_file(model_folder, name, buf_view(&all));
}
