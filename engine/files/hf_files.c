/* hf_files.c - opens model.safetensors, or the files that an index names, each once. */
#include "engine/files/hf_files.h"

#include "base/core/json.h"
#include "base/core/own.h"
#include "engine/files/hf_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define HF_NAME_MAX 255
#define HF_INDEX_NAME "model.safetensors.index.json"

struct opening {
    struct hf_files *files;
    const char *folder;
    struct arena *arena;
};

static int open_file(struct opening *o, struct str name, struct err *err)
{
    struct hf_file *f = &o->files->at[o->files->count];
    f->file.fd = -1;
    o->files->count++;
    int len = snprintf(f->path, sizeof f->path, "%s/" STR_FMT, o->folder, STR_ARG(name));
    if (len < 0 || (size_t)len >= sizeof f->path)
        return err_set(err, -ENAMETOOLONG, "%s: a path of more than %d bytes", o->folder,
                       HF_PATH_MAX - 1);
    int rc = gguf_file_open(f->path, &f->file, err);
    return rc < 0 ? rc : safetensors_parse(&f->file.source, &f->table, err);
}

static struct str base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return str_from(slash ? slash + 1 : path);
}

/* Returns the file of that name, or file_count. */
static uint32_t file_named(const struct opening *o, struct str name)
{
    uint32_t i = 0;
    while (i < o->files->count && !str_eq(base_name(o->files->at[i].path), name))
        i++;
    return i;
}

static int take_shard(struct opening *o, struct str tensor, struct str file, struct err *err)
{
    if (file.len == 0 || file.len > HF_NAME_MAX || memchr(file.data, '/', file.len) ||
        memchr(file.data, 0, file.len) || file.data[0] == '.' ||
        strlen(o->folder) + file.len + 2 > HF_PATH_MAX)
        return err_set(err, -EINVAL,
                       "tensor '" STR_FMT "' is in a file with a name of %zu bytes that "
                       "is no plain file name",
                       STR_ARG(tensor), file.len);
    uint32_t i = file_named(o, file);
    if (i == o->files->count) {
        if (i == HF_SHARDS_MAX) return err_set(err, -E2BIG, "more than %u files", HF_SHARDS_MAX);
        int rc = open_file(o, file, err);
        if (rc < 0) return rc;
    }
    if (safetensors_find(o->files->at[i].table, tensor)) return 0;
    return err_set(err, -EINVAL, "tensor '" STR_FMT "' is not in " STR_FMT, STR_ARG(tensor),
                   STR_ARG(file));
}

/* Opens the files that "weight_map" names; returns how many tensors it lists. */
static int read_index(struct opening *o, struct str text, size_t *ret, struct err *err)
{
    struct json_reader r;
    json_reader_init(&r, text);
    *ret = 0;
    if (json_next(&r) != JSON_OBJECT) return json_fail(&r, err, "the index");
    while (json_next(&r) == JSON_KEY) {
        if (!json_key_is(&r, "weight_map")) {
            json_skip(&r);
            continue;
        }
        if (json_next(&r) != JSON_OBJECT) return json_fail(&r, err, "weight_map");
        while (json_next(&r) == JSON_KEY) {
            struct str tensor = { "", 0 }, file = { "", 0 };
            int rc = json_text_arena(&r, o->arena, &tensor);
            json_next(&r);
            if (rc == 0) rc = json_text_arena(&r, o->arena, &file);
            if (rc < 0) return err_set(err, rc, "weight_map holds something that is no file name");
            rc = take_shard(o, tensor, file, err);
            if (rc < 0) return rc;
            ++*ret;
        }
    }
    if (r.token != JSON_OBJECT_END) return json_fail(&r, err, "the index");
    return *ret > 0 ? 0 : err_set(err, -EINVAL, "it has no weight_map");
}

int hf_files_open(struct hf_files *f, const char *folder, struct arena *arena, struct err *err)
{
    struct opening opening = { f, folder, arena }, *o = &opening;
    char path[HF_PATH_MAX + 32];
    struct stat st;
    o->files->at = calloc(HF_SHARDS_MAX, sizeof *o->files->at);
    if (!o->files->at) return err_set(err, -ENOMEM, "%s: no memory", o->folder);
    snprintf(path, sizeof path, "%s/" HF_INDEX_NAME, o->folder);
    if (stat(path, &st) < 0) return open_file(o, STR("model.safetensors"), err);
    CLEANUP(buf_fini) struct buf text = { 0 };
    size_t listed = 0, held = 0;
    int rc = hf_folder_read(o->folder, HF_INDEX_NAME, HF_INDEX_BYTES_MAX, &text, err);
    if (rc < 0) return rc;
    rc = read_index(o, buf_view(&text), &listed, err);
    for (uint32_t i = 0; i < o->files->count && rc == 0; i++)
        held += o->files->at[i].table->count;
    if (rc == 0 && held != listed)
        rc = err_set(err, -EINVAL, "it lists %zu tensors, its files hold %zu", listed, held);
    return rc < 0 ? err_prefix(err, rc, "%s", path) : 0;
}

void hf_files_close(struct hf_files *f)
{
    for (uint32_t i = 0; i < f->count; i++) {
        safetensors_free(f->at[i].table);
        gguf_file_close(&f->at[i].file);
    }
    free(f->at);
    *f = (struct hf_files){ 0 };
}

struct hf_part hf_files_find(const struct hf_files *f, uint32_t near, struct str name)
{
    for (uint32_t i = 0; i < f->count; i++) {
        const struct hf_file *file = &f->at[(near + i) % f->count];
        const struct safetensor *t = safetensors_find(file->table, name);
        if (t) return (struct hf_part){ file, t };
    }
    return (struct hf_part){ 0 };
}
