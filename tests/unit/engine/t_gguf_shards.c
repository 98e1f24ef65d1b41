/* t_gguf_shards.c - tests that the shards of a file are one model, and that foreign shards are refused. */
#include "base/core/own.h"
#include "engine/files/gguf_shards.h"
#include "engine/files/gguf_write.h"
#include "engine/model/model.h"
#include "tests/unit/engine/model_folder.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SHARDS 3

static const char *shard_name(uint32_t no)
{
    static char name[2][64];
    static unsigned turn;
    char *n = name[turn++ % 2];
    snprintf(n, sizeof name[0], "m-%05u-of-%05u.gguf", no + 1, SHARDS);
    return n;
}

/* How one shard differs from what it should be. */
struct damage {
    uint32_t shard;              /* that is damaged */
    uint32_t no, count, tensors; /* written instead of the right ones */
    const char *extra;           /* a key that only this shard has */
    bool repeat;                 /* it has the first tensor of the shard before, too */
};

/* Writes the tensors whose index modulo SHARDS is `no`. */
static void write_shard(const struct gguf *g, const struct gguf_source *source, uint32_t no,
                        const struct damage *d)
{
    CLEANUP(gguf_writer_freep) struct gguf_writer *w = NULL;
    bool bad = d && d->shard == no;
    must(gguf_writer_new(folder_at(shard_name(no)), &w, NULL) == 0);
    for (uint32_t i = 0; i < g->value_count && no == 0; i++)
        gguf_put_value(w, &g->values[i]);
    gguf_put_u32(w, "split.no", bad ? d->no : no);
    gguf_put_u32(w, "split.count", bad ? d->count : SHARDS);
    gguf_put_u32(w, "split.tensors.count", bad ? d->tensors : g->tensor_count);
    if (bad && d->extra) gguf_put_u32(w, d->extra, 1);
    uint32_t order[64] = { 0 }, count = 0;
    for (uint32_t i = 0; i < g->tensor_count; i++)
        if (i % SHARDS == no) order[count++] = i;
    if (bad && d->repeat) order[0]--;
    for (uint32_t i = 0; i < count; i++) {
        const struct gguf_tensor *t = &g->tensors[order[i]];
        gguf_put_tensor(w, t->name, t->n_dims, t->dims, t->type);
    }
    must(gguf_writer_begin(w, NULL, NULL) == 0);
    for (uint32_t i = 0; i < count; i++) {
        const struct gguf_tensor *t = &g->tensors[order[i]];
        char *data = malloc((size_t)t->bytes);
        must(data && source->read(source->ctx, t->offset, data, (size_t)t->bytes, NULL) == 0);
        must(gguf_writer_data(w, data, (size_t)t->bytes, NULL) == 0);
        free(data);
    }
    must(gguf_writer_finish(w, NULL) == 0);
}

static void write_shards(const struct damage *d)
{
    CLEANUP(gguf_file_close) struct gguf_file file = { .fd = -1 };
    CLEANUP(gguf_freep) struct gguf *g = NULL;
    must(gguf_file_open(folder_at("whole.gguf"), &file, NULL) == 0);
    must(gguf_parse(&file.source, &g, NULL) == 0);
    for (uint32_t i = 0; i < SHARDS; i++)
        write_shard(g, &file.source, i, d);
}

static void shards_are_one_model(void **state)
{
    (void)state;
    CLEANUP(gguf_shards_freep) struct gguf_shards *whole = NULL, *parts = NULL;
    CLEANUP(model_freep) struct model *model = NULL;
    struct err err = { { 0 } };
    char digest[2][SHA256_HEX + 1];
    write_shards(NULL);
    assert_int_equal(gguf_shards_open(folder_at("whole.gguf"), &whole, &err), 0);
    if (gguf_shards_open(folder_at(shard_name(0)), &parts, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(parts->gguf->tensor_count, whole->gguf->tensor_count);
    for (uint32_t i = 0; i < whole->gguf->tensor_count; i++) {
        const struct gguf_tensor *t = &whole->gguf->tensors[i], *u = &parts->gguf->tensors[i];
        assert_true(str_eq(t->name, u->name) && t->bytes == u->bytes && t->type == u->type);
        char *a = malloc((size_t)t->bytes), *b = malloc((size_t)t->bytes);
        must(a && b);
        must(whole->source->read(whole->source->ctx, t->offset, a, (size_t)t->bytes, NULL) == 0);
        must(parts->source->read(parts->source->ctx, u->offset, b, (size_t)u->bytes, NULL) == 0);
        assert_memory_equal(a, b, t->bytes);
        free(a), free(b);
    }
    if (model_load(folder_at(shard_name(0)), NULL, &model, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(model_info(model)->n_layers, 2);
    /* The digest is that of the files one behind another, read in pieces that cross their ends. */
    assert_int_equal(gguf_digest(parts->source, digest[0], &err), 0);
    assert_string_equal(model_info(model)->digest, digest[0]);
    assert_int_equal(gguf_digest(whole->source, digest[1], &err), 0);
    assert_string_not_equal(digest[0], digest[1]);
}

static void foreign_shards_are_refused(void **state)
{
    (void)state;
    static const struct {
        struct damage damage;
        const char *says;
    } rows[] = {
        { { 1, 2, SHARDS, 21, NULL, false }, "it says that it is shard 3 of 3, not 2 of 3" },
        { { 1, 1, 4, 21, NULL, false }, "it says that it is shard 2 of 4, not 2 of 3" },
        { { 2, 9, SHARDS, 21, NULL, false }, "shard 9 of 3; 1 to 1024 shards are possible" },
        { { 0, 0, 0, 21, NULL, false }, "shard 0 of 0; 1 to 1024" },
        { { 0, 0, 2000, 21, NULL, false }, "shard 0 of 2000; 1 to 1024" },
        { { 0, 0, 4, 21, NULL, false }, "shard 1 of 4 must be named NAME-00001-of-00004.gguf" },
        { { 0, 0, SHARDS, 20, NULL, false }, "21 tensors, key 'split.tensors.count' says 20" },
        { { 2, 2, SHARDS, 21, "llama.rope.freq_base", false }, NULL },
        { { 2, 2, SHARDS, 21, "llama.expert_count", false }, "is not in the first shard" },
        { { 1, 1, SHARDS, 21, NULL, true }, "is in two shards" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(gguf_shards_freep) struct gguf_shards *s = NULL;
        struct err err = { { 0 } };
        write_shards(&rows[i].damage);
        int rc = gguf_shards_open(folder_at(shard_name(0)), &s, &err);
        if (!rows[i].says) assert_int_equal(rc, 0);
        if (rows[i].says && (rc != -EINVAL || !strstr(err.text, rows[i].says)))
            fail_msg("row %zu: %d \"%s\", expected \"%s\"", i, rc, err.text, rows[i].says);
    }
}

static void others_than_the_first_and_missing_ones_are_named(void **state)
{
    (void)state;
    CLEANUP(gguf_shards_freep) struct gguf_shards *s = NULL;
    struct err err = { { 0 } };
    write_shards(NULL);
    assert_int_equal(gguf_shards_open(folder_at(shard_name(1)), &s, &err), -EINVAL);
    assert_non_null(strstr(err.text, "it is shard 2 of 3: give the first, "));
    assert_non_null(strstr(err.text, "m-00001-of-00003.gguf"));
    unlink(folder_at(shard_name(2)));
    assert_int_equal(gguf_shards_open(folder_at(shard_name(0)), &s, &err), -ENOENT);
    assert_non_null(strstr(err.text, "m-00003-of-00003.gguf: No such"));
}

static int make_folder(void **state)
{
    if (model_folder_make(state) < 0) return -1;
    folder_llama("whole.gguf", WEIGHT_Q8_0, false, 3);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_are_one_model),
        cmocka_unit_test(foreign_shards_are_refused),
        cmocka_unit_test(others_than_the_first_and_missing_ones_are_named),
    };
    return cmocka_run_group_tests(tests, make_folder, model_folder_remove);
}
