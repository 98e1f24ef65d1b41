/* arch_case.c - makes weights from the names of the checkpoint's tensors, and GGUF's tensors from these. */
#include "tests/unit/engine/arch_case.h"

#include "base/core/own.h"
#include "tests/unit/engine/gguf_make.h"
#include "tests/unit/engine/hf_make.h"
#include "tests/unit/engine/model_folder.h"
#include "tests/unit/read_file.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>

#define NAME_MAX_BYTES 96
#define WORD_BYTES 96

void case_load(struct arch_case *c, const char *name)
{
    char path[128];
    *c = (struct arch_case){ .name = name };
    snprintf(path, sizeof path, "tests/vectors/arch/%s.txt", name);
    read_file(path, &c->text);
    snprintf(path, sizeof path, "tests/vectors/arch/%s.bin", name);
    read_file(path, &c->bin);
    for (size_t at = 0; at < c->text.len;) {
        char *line = c->text.data + at, *end = memchr(line, '\n', c->text.len - at);
        must(end && c->line_count < CASE_LINES_MAX);
        *end = 0;
        c->lines[c->line_count++] = line;
        at = (size_t)(end - c->text.data) + 1;
    }
}

void case_fini(struct arch_case *c)
{
    buf_fini(&c->text);
    buf_fini(&c->bin);
}

const char *case_next(const struct arch_case *c, const char *word, uint32_t *at)
{
    size_t len = strlen(word);
    while (*at < c->line_count) {
        const char *line = c->lines[(*at)++];
        if (strncmp(line, word, len) == 0 && line[len] == ' ') return line + len + 1;
    }
    return NULL;
}

/* Cuts the next word off the text. */
static const char *cut(const char **text, char word[WORD_BYTES])
{
    size_t len = strcspn(*text, " ");
    must(len > 0 && len < WORD_BYTES);
    memcpy(word, *text, len);
    word[len] = 0;
    *text += len + ((*text)[len] == ' ');
    return word;
}

/* ---- weights of the checkpoint */

struct made {
    float *values;
    uint64_t dims[3]; /* slowest first */
    uint32_t n_dims;
    size_t count;
};

static void made_fini(struct made *m)
{
    free(m->values);
}

/* splitmix64 (Steele 2014) from the FNV-1a hash of the name; tests/vectors/arch/README.md */
static void fill(const char *name, float offset, float scale, float *values, size_t count)
{
    uint64_t seed = 0xcbf29ce484222325;
    for (const char *p = name; *p; p++)
        seed = (seed ^ (uint8_t)*p) * 0x100000001b3;
    for (size_t i = 0; i < count; i++) {
        uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
        z = (z ^ z >> 27) * 0x94d049bb133111eb;
        z ^= z >> 31;
        values[i] = ((float)(z >> 40) * 0x1p-23f - 1) * scale + offset;
    }
}

/* Makes the tensor that a line describes: NAME OFFSET SCALE DIM [DIM [DIM]]. */
static struct made make_line(const char *line, char name[WORD_BYTES])
{
    struct made m = { .count = 1, .dims = { 1, 1, 1 } };
    char *at = NULL;
    cut(&line, name);
    float offset = strtof(line, &at), scale = strtof(at, &at);
    for (; *at; m.n_dims++) {
        must(m.n_dims < 3);
        m.dims[m.n_dims] = strtoull(at, &at, 10);
        m.count *= m.dims[m.n_dims];
    }
    m.values = calloc(m.count, sizeof *m.values);
    must(m.values);
    fill(name, offset, scale, m.values, m.count);
    return m;
}

static struct made make_named(const struct arch_case *c, const char *name)
{
    char found[WORD_BYTES];
    uint32_t at = 0;
    for (const char *line; (line = case_next(c, "tensor", &at));)
        if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ' ')
            return make_line(line, found);
    fail_msg("%s: no tensor '%s'", c->name, name);
    return (struct made){ 0 };
}

/* ---- the folder */

void case_folder(const struct arch_case *c, const struct case_damage *damage)
{
    CLEANUP(buf_fini) struct buf header = { 0 }, data = { 0 }, all = { 0 };
    uint32_t at = 0, lines = 0;
    hf_make_file(model_folder, "config.json", str_from(case_next(c, "config", &at)));
    at = 0;
    for (const char *line; (line = case_next(c, "tensor", &at));) {
        char name[WORD_BYTES];
        CLEANUP(made_fini) struct made m = make_line(line, name);
        if (damage && damage->without && strcmp(name, damage->without) == 0) continue;
        size_t from = data.len;
        buf_append(&data, m.values, m.count * sizeof *m.values);
        if (damage && damage->longer && strcmp(name, damage->longer) == 0) {
            buf_append(&data, m.values, m.count / m.dims[0] * sizeof *m.values);
            m.dims[0]++;
        }
        buf_printf(&header, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%llu", lines++ ? "," : "{",
                   name, (unsigned long long)m.dims[0]);
        for (uint32_t d = 1; d < m.n_dims; d++)
            buf_printf(&header, ",%llu", (unsigned long long)m.dims[d]);
        buf_printf(&header, "],\"data_offsets\":[%zu,%zu]}", from, data.len);
    }
    if (damage && damage->more) {
        buf_printf(&header, ",\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[%zu,%zu]}",
                   damage->more, data.len, data.len + sizeof(float));
        buf_append(&data, "\0\0\0\0", sizeof(float));
    }
    buf_byte(&header, '}');
    make_u64_raw(&all, header.len);
    buf_str(&all, buf_view(&header));
    buf_str(&all, buf_view(&data));
    must(all.rc == 0);
    hf_make_file(model_folder, "model.safetensors", buf_view(&all));
}

/* ---- the GGUF file */

static void put_keys(const struct arch_case *c, struct gguf_make *m)
{
    for (uint32_t i = 0; i < c->line_count; i++) {
        const char *rest = c->lines[i];
        char kind[WORD_BYTES], key[WORD_BYTES];
        cut(&rest, kind);
        if (strcmp(kind, "u32") != 0 && strcmp(kind, "f32") != 0 && strcmp(kind, "str") != 0 &&
            strcmp(kind, "bool") != 0 && strcmp(kind, "bools") != 0)
            continue;
        cut(&rest, key);
        if (kind[0] == 'u') make_u32(m, key, (uint32_t)strtoul(rest, NULL, 10));
        if (kind[0] == 'f') make_f32(m, key, strtof(rest, NULL));
        if (kind[0] == 's') make_str(m, key, rest);
        if (strcmp(kind, "bool") == 0) {
            make_key(m, key, GGUF_BOOL);
            buf_byte(&m->values, *rest == '1');
        }
        if (strcmp(kind, "bools") != 0) continue;
        make_key(m, key, GGUF_ARRAY);
        make_u32_raw(&m->values, GGUF_BOOL);
        make_u64_raw(&m->values, (strlen(rest) + 1) / 2);
        for (; *rest; rest += 1 + (rest[1] == ' '))
            buf_byte(&m->values, *rest == '1');
    }
}

static void put_tensor(struct gguf_make *m, const char *name, const float *values, uint32_t n_dims,
                       const uint64_t *dims, const struct case_damage *damage)
{
    size_t count = 1;
    uint64_t changed[3];
    if (damage && damage->without && strcmp(name, damage->without) == 0) return;
    for (uint32_t i = 0; i < n_dims; i++)
        count *= dims[i], changed[i] = dims[i];
    CLEANUP(buf_fini) struct buf data = { 0 };
    buf_append(&data, values, count * sizeof *values);
    if (damage && damage->longer && strcmp(name, damage->longer) == 0) {
        buf_append(&data, values, count / dims[n_dims - 1] * sizeof *values);
        changed[n_dims - 1]++;
    }
    make_tensor(m, name, n_dims, changed, weight_types[WEIGHT_F32].gguf_id, data.data, data.len);
}

/* Moves the halves of each head's rows (or elements) to adjacent pairs. */
static void to_pairs(struct made *m, uint32_t heads)
{
    size_t row = m->count / m->dims[0], half = m->dims[0] / heads / 2;
    float *old = m->values, *to = calloc(m->count, sizeof *to);
    must(to);
    m->values = to;
    for (uint32_t h = 0; h < heads; h++)
        for (size_t j = 0; j < half; j++)
            for (size_t b = 0; b < 2; b++, to += row)
                memcpy(to, old + ((size_t)h * 2 * half + b * half + j) * row, row * sizeof *to);
    free(old);
}

static void put_stack(const struct arch_case *c, struct gguf_make *m, const char *name,
                      uint32_t experts, const char *pattern, const struct case_damage *damage)
{
    CLEANUP(buf_fini) struct buf all = { 0 };
    uint64_t dims[3] = { 0 };
    const char *star = strchr(pattern, '*');
    must(star);
    for (uint32_t e = 0; e < experts; e++) {
        char from[NAME_MAX_BYTES * 2];
        snprintf(from, sizeof from, "%.*s%u%s", (int)(star - pattern), pattern, e, star + 1);
        CLEANUP(made_fini) struct made one = make_named(c, from);
        buf_append(&all, one.values, one.count * sizeof *one.values);
        dims[0] = one.dims[1], dims[1] = one.dims[0], dims[2] = experts;
    }
    put_tensor(m, name, (const float *)(const void *)all.data, 3, dims, damage);
}

/* Puts [expert][row][first + step * i] of the checkpoint as [expert][i][row]. */
static void put_turned(struct gguf_make *m, const char *name, const struct made *from, size_t first,
                       size_t step, const struct case_damage *damage)
{
    const uint64_t rows = from->dims[2] / step, cols = from->dims[1], experts = from->dims[0];
    const uint64_t dims[3] = { cols, rows, experts };
    float *to = calloc(from->count / step, sizeof *to);
    must(to);
    for (size_t e = 0; e < experts; e++)
        for (size_t i = 0; i < rows; i++)
            for (size_t k = 0; k < cols; k++)
                to[(e * rows + i) * cols + k] =
                    from->values[(e * cols + k) * from->dims[2] + first + step * i];
    put_tensor(m, name, to, 3, dims, damage);
    free(to);
}

/* Puts every `step`th element of each row, from `first` on. */
static void put_every(struct gguf_make *m, const char *name, const struct made *from, size_t first,
                      size_t step, const struct case_damage *damage)
{
    const uint64_t dims[2] = { from->dims[1] / step, from->dims[0] };
    float *to = calloc(from->count / step, sizeof *to);
    must(to);
    for (size_t i = 0; i < from->count / step; i++)
        to[i] = from->values[first + step * i];
    put_tensor(m, name, to, 2, dims, damage);
    free(to);
}

/* Puts the rows of K, transposed, or those of V of each head, whose rows begin with those of K. */
static void put_heads(struct gguf_make *m, const char *name, const struct made *from,
                      const char *line, bool of_k, const struct case_damage *damage)
{
    char word[WORD_BYTES];
    const size_t heads = strtoul(cut(&line, word), NULL, 10), cols = from->dims[1];
    const size_t k_rows = strtoul(cut(&line, word), NULL, 10);
    const size_t v_rows = strtoul(cut(&line, word), NULL, 10), rows = of_k ? k_rows : v_rows;
    const uint64_t dims[3] = { of_k ? rows : cols, of_k ? cols : rows, heads };
    float *to = calloc(heads * rows * cols, sizeof *to);
    must(to && from->dims[0] == heads * (k_rows + v_rows));
    for (size_t h = 0; h < heads; h++)
        for (size_t r = 0; r < rows; r++)
            for (size_t i = 0; i < cols; i++)
                to[h * rows * cols + (of_k ? i * rows + r : r * cols + i)] =
                    from->values[(h * (k_rows + v_rows) + (of_k ? 0 : k_rows) + r) * cols + i];
    put_tensor(m, name, to, 3, dims, damage);
    free(to);
}

static void put_line(const struct arch_case *c, struct gguf_make *m, const char *line,
                     const struct case_damage *damage)
{
    char name[WORD_BYTES], how[WORD_BYTES], number[WORD_BYTES];
    cut(&line, name);
    cut(&line, how);
    if (strcmp(how, "values") == 0) {
        float values[64];
        uint64_t count = 0;
        for (char *at = (char *)(uintptr_t)line; *at && count < COUNT_OF(values);)
            values[count++] = strtof(at, &at);
        put_tensor(m, name, values, 1, &count, damage);
        return;
    }
    uint32_t heads = 0;
    if (strcmp(how, "pairs") == 0 || strcmp(how, "stack") == 0)
        heads = (uint32_t)strtoul(cut(&line, number), NULL, 10);
    if (strcmp(how, "stack") == 0) {
        put_stack(c, m, name, heads, line, damage);
        return;
    }
    if (strcmp(how, "turned") == 0 || strcmp(how, "every") == 0) {
        size_t first = strtoul(cut(&line, number), NULL, 10);
        size_t step = strtoul(cut(&line, number), NULL, 10);
        CLEANUP(made_fini) struct made from = make_named(c, line);
        (how[0] == 't' ? put_turned : put_every)(m, name, &from, first, step, damage);
        return;
    }
    if (strcmp(how, "heads_k") == 0 || strcmp(how, "heads_v") == 0) {
        CLEANUP(made_fini) struct made from = make_named(c, strrchr(line, ' ') + 1);
        put_heads(m, name, &from, line, how[6] == 'k', damage);
        return;
    }
    size_t first = strcmp(how, "rows") == 0 ? strtoul(cut(&line, number), NULL, 10) : 0;
    CLEANUP(made_fini) struct made one = make_named(c, line);
    const size_t skipped = one.count / one.dims[0] * first;
    if (heads > 0) to_pairs(&one, heads);
    one.dims[0] -= first;
    for (size_t i = 0; strcmp(how, "one_plus") == 0 && i < one.count; i++)
        one.values[i] += 1;
    const uint64_t dims[2] = { one.dims[one.n_dims - 1], one.dims[0] };
    put_tensor(m, name, one.values + skipped, one.n_dims, dims, damage);
}

void case_gguf(const struct arch_case *c, const char *file, const struct case_damage *damage)
{
    CLEANUP(make_fini) struct gguf_make m;
    CLEANUP(buf_fini) struct buf all = { 0 };
    uint32_t at = 0;
    make_init(&m);
    put_keys(c, &m);
    if (damage && damage->key) make_u32(&m, damage->key, 1);
    for (const char *line; (line = case_next(c, "gguf", &at));)
        put_line(c, &m, line, damage);
    if (damage && damage->more) {
        const float one = 1;
        make_tensor(&m, damage->more, 1, (const uint64_t[1]){ 1 }, weight_types[WEIGHT_F32].gguf_id,
                    &one, sizeof one);
    }
    make_finish(&m, &all);
    hf_make_file(model_folder, file, buf_view(&all));
}
