/* gguf_shards.c - joins the shards of a GGUF file into one table over one source. */
#include "engine/files/gguf_shards.h"

#include "base/core/bits.h"
#include "base/core/hash.h"

#include <stdio.h>
#include <stdlib.h>

#define SHARD_PATH_MAX 4096
#define SHARD_SUFFIX_MAX 64

struct shard {
    struct gguf_file file;
    struct gguf *gguf;
    uint64_t base; /* its first byte in the joint source */
    char path[SHARD_PATH_MAX];
};

struct all_shards {
    struct gguf_shards shards; /* first: the caller's view */
    struct gguf joint;
    struct gguf_tensor *tensors;
    struct gguf_source source;
    struct shard *shard;
    uint32_t count;
};

static struct all_shards *all_of(struct gguf_shards *s)
{
    return (struct all_shards *)(void *)s;
}

void gguf_shards_free(struct gguf_shards *s)
{
    if (!s) return;
    struct all_shards *a = all_of(s);
    for (uint32_t i = 0; i < a->count; i++) {
        gguf_free(a->shard[i].gguf);
        gguf_file_close(&a->shard[i].file);
    }
    free(a->shard);
    free(a->tensors);
    free(a);
}

/* Reads from the shards that hold the bytes; a digest crosses their ends, a tensor does not. */
static int read_joint(void *ctx, uint64_t offset, void *data, size_t len, struct err *err)
{
    const struct all_shards *a = ctx;
    char *to = data;
    for (uint32_t i = 0; i < a->count && len > 0; i++) {
        const struct gguf_source *s = &a->shard[i].file.source;
        if (offset - a->shard[i].base >= s->bytes) continue;
        uint64_t at = offset - a->shard[i].base;
        size_t n = min_size(len, (size_t)(s->bytes - at));
        int rc = s->read(s->ctx, at, to, n, err);
        if (rc < 0) return rc;
        to += n, offset += n, len -= n;
    }
    return 0;
}

static int read_split(const struct gguf *g, uint32_t *ret_no, uint32_t *ret_count, struct err *err)
{
    *ret_no = 0, *ret_count = 1;
    int rc = gguf_get_u32(g, "split.count", ret_count, err);
    if (rc == -ENOENT) return 0;
    if (rc == 0 && *ret_count == 1) return 0; /* whole, whatever its number */
    if (rc == 0) rc = gguf_get_u32(g, "split.no", ret_no, err);
    if (rc < 0) return -EINVAL;
    if (*ret_count == 0 || *ret_count > GGUF_SHARDS_MAX || *ret_no >= *ret_count)
        return err_set(err, -EINVAL, STR_FMT ": shard %u of %u; 1 to %u shards are possible",
                       STR_ARG(g->file), *ret_no, *ret_count, GGUF_SHARDS_MAX);
    return 0;
}

/* Writes "-00001-of-00003.gguf". */
static struct str suffix_of(uint32_t no, uint32_t count, char text[SHARD_SUFFIX_MAX])
{
    int len = snprintf(text, SHARD_SUFFIX_MAX, "-%05u-of-%05u.gguf", no + 1, count);
    return (struct str){ text, (size_t)len };
}

static int open_shard(struct shard *s, struct err *err)
{
    int rc = gguf_file_open(s->path, &s->file, err);
    return rc < 0 ? rc : gguf_parse(&s->file.source, &s->gguf, err);
}

/* Refuses a shard that says it is another one, or that brings metadata of its own. */
static int check_shard(const struct all_shards *a, uint32_t i, struct err *err)
{
    const struct gguf *g = a->shard[i].gguf;
    uint32_t no = 0, count = 0;
    int rc = read_split(g, &no, &count, err);
    if (rc < 0) return rc;
    if (no != i || count != a->count)
        return err_set(err, -EINVAL, "%s: it says that it is shard %u of %u, not %u of %u",
                       a->shard[i].path, no + 1, count, i + 1, a->count);
    for (uint32_t v = 0; v < g->value_count; v++)
        if (!gguf_find(a->shard[0].gguf, g->values[v].key))
            return err_set(err, -EINVAL,
                           "%s: key '" STR_FMT
                           "' is not in the first shard, which has the metadata",
                           a->shard[i].path, STR_ARG(g->values[v].key));
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return str_cmp(((const struct gguf_tensor *)a)->name, ((const struct gguf_tensor *)b)->name);
}

static int join(struct all_shards *a, struct err *err)
{
    const char *path = a->shard[0].path;
    size_t bytes = 0, tensors = 0, used = 0;
    uint64_t identity = 0;
    uint32_t said = 0;
    for (uint32_t i = 0; i < a->count; i++) {
        a->shard[i].base = bytes;
        if (!add_fits(bytes, a->shard[i].file.source.bytes, &bytes))
            return err_set(err, -EINVAL, "%s: its shards have more than 2^64 bytes", path);
        identity = hash64(&a->shard[i].file.source.identity, sizeof identity, identity);
        tensors += a->shard[i].gguf->tensor_count;
    }
    int rc = gguf_get_u32(a->shard[0].gguf, "split.tensors.count", &said, err);
    if (rc < 0) return -EINVAL;
    if (tensors != said || tensors > GGUF_TENSORS_MAX)
        return err_set(
            err, -EINVAL,
            "%s: its shards have %zu tensors, key 'split.tensors.count' says %u (at most "
            "%u are read)",
            path, tensors, said, GGUF_TENSORS_MAX);
    a->tensors = calloc(tensors + 1, sizeof *a->tensors);
    if (!a->tensors) return err_set(err, -ENOMEM, "%s: no memory for the tensor table", path);
    for (uint32_t i = 0; i < a->count; i++) {
        for (uint32_t t = 0; t < a->shard[i].gguf->tensor_count; t++) {
            a->tensors[used] = a->shard[i].gguf->tensors[t];
            a->tensors[used++].offset += a->shard[i].base;
        }
    }
    qsort(a->tensors, tensors, sizeof *a->tensors, by_name);
    for (size_t i = 1; i < tensors; i++)
        if (str_eq(a->tensors[i - 1].name, a->tensors[i].name))
            return err_set(err, -EINVAL, "%s: tensor '" STR_FMT "' is in two shards", path,
                           STR_ARG(a->tensors[i].name));
    a->joint = *a->shard[0].gguf; /* the values are the first one's, which frees them */
    a->joint.tensors = a->tensors;
    a->joint.tensor_count = (uint32_t)tensors;
    a->source = (struct gguf_source){
        .name = path, .bytes = bytes, .identity = identity, .read = read_joint, .ctx = a
    };
    a->shards = (struct gguf_shards){ &a->joint, &a->source };
    return 0;
}

static int open_others(struct all_shards *a, uint32_t no, struct err *err)
{
    char text[SHARD_SUFFIX_MAX];
    struct str path = str_from(a->shard[0].path), suffix = suffix_of(no, a->count, text);
    if (!str_ends(path, suffix))
        return err_set(err, -EINVAL, STR_FMT ": shard %u of %u must be named NAME" STR_FMT,
                       STR_ARG(path), no + 1, a->count, STR_ARG(suffix));
    int stem = (int)(path.len - suffix.len);
    if (no != 0) {
        suffix = suffix_of(0, a->count, text);
        return err_set(err, -EINVAL, STR_FMT ": it is shard %u of %u: give the first, %.*s" STR_FMT,
                       STR_ARG(path), no + 1, a->count, stem, path.data, STR_ARG(suffix));
    }
    int rc = 0;
    for (uint32_t i = 1; i < a->count && rc == 0; i++) {
        suffix = suffix_of(i, a->count, text);
        snprintf(a->shard[i].path, SHARD_PATH_MAX, "%.*s" STR_FMT, stem, path.data,
                 STR_ARG(suffix));
        rc = open_shard(&a->shard[i], err);
        if (rc == 0) rc = check_shard(a, i, err);
    }
    return rc < 0 ? rc : join(a, err);
}

int gguf_shards_open(const char *path, struct gguf_shards **ret, struct err *err)
{
    uint32_t no = 0, count = 1;
    CLEANUP(gguf_shards_freep) struct gguf_shards *s = NULL;
    struct all_shards *a = calloc(1, sizeof *a);
    if (!a) return err_set(err, -ENOMEM, "%s: no memory to read it", path);
    s = &a->shards;
    a->shard = calloc(1, sizeof *a->shard);
    if (!a->shard) return err_set(err, -ENOMEM, "%s: no memory to read it", path);
    a->count = 1;
    a->shard[0].file.fd = -1;
    if (strlen(path) >= SHARD_PATH_MAX)
        return err_set(err, -ENAMETOOLONG, "a path of %zu bytes; at most %d", strlen(path),
                       SHARD_PATH_MAX - 1);
    memcpy(a->shard[0].path, path, strlen(path) + 1);
    int rc = open_shard(&a->shard[0], err);
    if (rc == 0) rc = read_split(a->shard[0].gguf, &no, &count, err);
    if (rc < 0) return rc;
    if (count > 1) {
        struct shard *more = calloc(count, sizeof *more);
        if (!more) return err_set(err, -ENOMEM, "%s: no memory for %u shards", path, count);
        more[0] = a->shard[0];
        free(a->shard);
        a->shard = more;
        a->count = count;
        for (uint32_t i = 1; i < count; i++)
            more[i].file.fd = -1;
        more[0].file.source.ctx = &more[0].file; /* they moved */
        more[0].file.source.name = more[0].path;
        rc = open_others(a, no, err);
        if (rc < 0) return rc;
    } else {
        a->joint = *a->shard[0].gguf;
        a->source = a->shard[0].file.source;
        a->shards = (struct gguf_shards){ &a->joint, &a->source };
    }
    *ret = TAKE(s);
    return 0;
}
