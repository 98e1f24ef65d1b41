/* f_hf_packed.c - reads any bytes as a safetensors file with weights of few bits: each tensor is whole, belongs to
 * another, or is the first of a matrix that unpacks whole or is refused with a sentence.
 *
 * Two bytes come first: the method, and what config.json says of zero points and groups. */
#include "engine/files/hf_parts.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/engine/gguf_make.h"

#include <stdlib.h>

const struct fuzz_cost fuzz_cost = { 300000, 1000 };

static void unpack(const struct hf_packed *p)
{
    struct err err = { { 0 } };
    char *to = malloc(hf_packed_bytes(p));
    if (!to) return;
    int rc = hf_packed_read(p, to, &err);
    must(rc == 0 || (rc < 0 && err.text[0] != 0));
    free(to);
}

static void one_stack(const struct hf_files *files, const struct safetensor *t)
{
    const struct hf_family *family = hf_family_of(STR("gpt_oss"));
    char name[GGUF_NAME_BYTES_MAX + 1];
    const struct hf_stack_row *row;
    struct str end;
    for (uint32_t i = 0; (row = hf_family_stack(family, t->name, i, name, &end)); i++) {
        enum hf_role role;
        struct hf_packed p = { 0 };
        uint32_t experts = 0;
        uint64_t stride = 0;
        struct err err = { { 0 } };
        int rc = hf_parts_stack(row, end, files, 0, t, &role, &p, &experts, &stride, &err);
        must(rc == 0 || err.text[0] != 0);
        if (rc < 0 || role != HF_MATRIX) continue;
        unpack(&p);
        p.skip = (experts - 1) * stride;
        unpack(&p);
    }
}

static void all_tensors(const struct hf_quant *q, const struct hf_files *files)
{
    struct arena arena;
    arena_init(&arena, (size_t)1 << 22);
    for (uint32_t i = 0; i < files->at->table->count; i++) {
        const struct safetensor *t = &files->at->table->tensors[i];
        enum hf_role role = HF_WHOLE;
        struct hf_packed p = { 0 };
        struct str name;
        struct err err = { { 0 } };
        int rc = hf_parts_of(q, files, 0, t, &arena, &role, &name, &p, &err);
        must(rc == 0 || err.text[0] != 0);
        if (rc == 0 && role == HF_MATRIX) unpack(&p);
        one_stack(files, t);
    }
    arena_fini(&arena);
}

void fuzz_one(const uint8_t *data, size_t len)
{
    if (len < 2) return;
    struct str text = str_of(data + 2, len - 2);
    struct hf_file file = { .file = { .fd = -1, .source = memory_source(&text) } };
    struct hf_files files = { &file, 1 };
    struct hf_quant q = { .method = data[0] % HF_QUANT_METHODS,
                          .symmetric = data[1] & 1,
                          .zeros_whole = data[1] >> 1 & 1,
                          .group = data[1] >> 2 & 1 ? -1 : 0,
                          .block = { data[1] >> 3, data[1] >> 3 } };
    if (safetensors_parse(&file.file.source, &file.table, NULL) < 0) return;
    all_tensors(&q, &files);
    safetensors_free(file.table);
}
