/* t_imatrix.c - tests importance matrices: what is gathered against numpy's sums (tests/vectors/imatrix) and against
 * what experts and fused matrices must share, the files, what files round by, and files that are refused. */
#include "base/core/own.h"
#include "engine/model/decoder.h"
#include "engine/model/imatrix.h"
#include "engine/model/rewrite_model.h"
#include "tests/unit/engine/arch_case.h"
#include "tests/unit/engine/gguf_make.h"
#include "tests/unit/engine/model_folder.h"
#include "tests/unit/engine/model_rig.h"
#include "tests/unit/read_file.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MODEL_PATH "models/muster-tiny-q8_0.gguf"
#define IDS_MAX 256
#define COLUMNS 6 /* of each matrix in the vectors */

/* ---- gathering */

/* Computes the ids in chunks, with the logits of all, and gathers; the last token's logits go to `ret_last`. */
static struct importance *gather(struct model_rig *r, const uint32_t *ids, uint32_t count,
                                 uint32_t chunk, uint32_t threads, float *ret_last)
{
    struct importance *im = NULL;
    struct err err = { { 0 } };
    const uint32_t vocab = model_info(r->model)->vocab_size;
    float *logits = calloc((size_t)chunk * vocab, sizeof *logits);
    must(logits);
    if (importance_new(r->model, &im, &err) < 0) fail_msg("%s", err.text);
    const struct model_runner_options opt = {
        .tokens_max = 300, .seqs_max = 1, .threads = threads, .importance = im
    };
    model_runner_free(r->runner);
    if (model_runner_new(r->model, r->kv, &opt, &r->runner, &err) < 0) fail_msg("%s", err.text);
    for (uint32_t at = 0; at < count; at += chunk) {
        const uint32_t n = min_u32(chunk, count - at);
        const struct batch_item item = { .ids = ids + at,
                                         .count = n,
                                         .position = at,
                                         .page_table = r->table,
                                         .pages = RIG_PAGES,
                                         .want_logits = true,
                                         .rows_before = n - 1,
                                         .logits = logits };
        if (model_step(r->runner, &item, 1, &err) < 0) fail_msg("%s", err.text);
        if (ret_last) memcpy(ret_last, logits + (size_t)(n - 1) * vocab, vocab * sizeof *logits);
    }
    free(logits);
    return im;
}

static const struct importance_entry *entry_of(const struct importance *im, const char *name)
{
    for (uint32_t i = 0; i < im->count; i++)
        if (str_eq(im->entries[i].name, str_from(name))) return &im->entries[i];
    fail_msg("no entry %s", name);
    return NULL;
}

static uint32_t read_ids(const char *text, uint32_t ids[IDS_MAX])
{
    uint32_t count = 0;
    for (char *at = (char *)(uintptr_t)text; *at && *at != '\n'; count++) {
        must(count < IDS_MAX);
        ids[count] = (uint32_t)strtoul(at, &at, 10);
    }
    return count;
}

/* Compares an entry with a line "sums NAME COLUMNS TOTAL MOMENT X ..." behind its name. */
static void check_sums(const struct importance_entry *e, const char *line)
{
    char *at = (char *)(uintptr_t)line;
    double total = 0, moment = 0;
    assert_int_equal(strtoul(at, &at, 10), e->cols);
    for (uint32_t i = 0; i < e->cols; i++)
        total += e->sums[i], moment += e->sums[i] * (i + 1);
    for (int32_t i = -2; i < COLUMNS; i++) {
        const double got = i == -2 ? total : i == -1 ? moment : e->sums[i];
        const double wanted = strtod(at, &at);
        if (!(fabs(got / wanted - 1) < 1e-4))
            fail_msg("%.*s, %d: %g instead of %g", STR_ARG(e->name), i, got, wanted);
    }
}

static void sums_are_those_of_numpy(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(model_rig_fini) struct model_rig r;
    CLEANUP(importance_freep) struct importance *im = NULL;
    uint32_t ids[IDS_MAX], count = 0, checked = 0;
    read_file("tests/vectors/imatrix/imatrix.txt", &text);
    buf_byte(&text, 0);
    model_rig_init(&r, MODEL_PATH, "ref", KV_F32);
    for (char *line = text.data; line && *line; line = strchr(line, '\n')) {
        char name[GGUF_NAME_BYTES_MAX + 1];
        line += *line == '\n';
        if (strncmp(line, "ids ", 4) == 0) {
            count = read_ids(line + 4, ids);
            im = gather(&r, ids, count, 50, 2, NULL);
        } else if (sscanf(line, "sums %64s", name) == 1) {
            const struct importance_entry *e = entry_of(im, name);
            assert_int_equal(e->rows[0], count);
            check_sums(e, line + 5 + strlen(name));
            checked++;
        }
    }
    must(im);
    assert_int_equal(checked, 43);
    assert_int_equal(im->count, 43);
}

static void assert_same(const struct importance *a, const struct importance *b)
{
    assert_int_equal(a->count, b->count);
    for (uint32_t i = 0; i < a->count; i++) {
        const struct importance_entry *e = &a->entries[i], *f = &b->entries[i];
        const size_t columns = (size_t)e->cols * e->count;
        assert_true(str_eq(e->name, f->name) && e->count == f->count);
        assert_memory_equal(e->sums, f->sums, columns * sizeof *e->sums);
        assert_memory_equal(e->rows, f->rows, e->count * sizeof *e->rows);
    }
}

/* Makes the model of a case of tests/vectors/arch and reads its prompt. */
static uint32_t rig_of(struct model_rig *r, const char *name, uint32_t ids[IDS_MAX])
{
    CLEANUP(case_fini) struct arch_case c;
    uint32_t at = 0;
    case_load(&c, name);
    case_gguf(&c, "m.gguf", NULL);
    model_rig_init(r, folder_at("m.gguf"), NULL, KV_F32);
    return read_ids(case_next(&c, "ids", &at), ids);
}

static void threads_chunks_and_gathering_change_no_bit(void **state)
{
    (void)state;
    static const char *const names[] = { "llama", "mixtral", "phi3", "deepseek_v2",
                                         "deepseek_v2_lite" };
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        CLEANUP(model_rig_fini) struct model_rig r;
        float with[512], without[512];
        uint32_t ids[IDS_MAX];
        const uint32_t count = rig_of(&r, names[i], ids);
        model_rig_feed(&r, NULL, ids, 0, count, 300, without);
        struct importance *whole = gather(&r, ids, count, 300, 1, with);
        struct importance *cut = gather(&r, ids, count, 5, 3, NULL);
        assert_same(whole, cut);
        assert_memory_equal(with, without, model_info(r.model)->vocab_size * sizeof *with);
        importance_free(whole);
        importance_free(cut);
    }
}

/* Each token's input of the router goes to all experts that it chooses. */
static void experts_share_what_the_router_sees(void **state)
{
    (void)state;
    CLEANUP(model_rig_fini) struct model_rig r;
    uint32_t ids[IDS_MAX];
    const uint32_t count = rig_of(&r, "mixtral", ids);
    const uint32_t used = ((const struct decoder *)r.model->arch_model)->experts_used;
    CLEANUP(importance_freep) struct importance *im = gather(&r, ids, count, 300, 1, NULL);
    const struct importance_entry *router = entry_of(im, "blk.1.ffn_gate_inp.weight");
    const struct importance_entry *gate = entry_of(im, "blk.1.ffn_gate_exps.weight");
    const struct importance_entry *down = entry_of(im, "blk.1.ffn_down_exps.weight");
    uint64_t rows = 0;
    assert_true(gate->count > used && used > 1);
    assert_int_equal(router->rows[0], count);
    for (uint32_t e = 0; e < gate->count; e++) {
        rows += gate->rows[e];
        assert_int_equal(down->rows[e], gate->rows[e]);
    }
    assert_int_equal(rows, (uint64_t)count * used);
    for (uint32_t c = 0; c < gate->cols; c++) {
        double sum = 0;
        for (uint32_t e = 0; e < gate->count; e++)
            sum += gate->sums[(size_t)e * gate->cols + c];
        assert_true(fabs(sum / (used * router->sums[c]) - 1) < 1e-12);
    }
}

/* Q, K and V of one tensor read the same rows: they are counted once. */
static void parts_of_a_tensor_count_once(void **state)
{
    (void)state;
    CLEANUP(model_rig_fini) struct model_rig r;
    uint32_t ids[IDS_MAX];
    const uint32_t count = rig_of(&r, "phi3", ids);
    CLEANUP(importance_freep) struct importance *im = gather(&r, ids, count, 300, 1, NULL);
    assert_int_equal(entry_of(im, "blk.0.attn_qkv.weight")->rows[0], count);
    assert_int_equal(entry_of(im, "blk.3.ffn_up.weight")->rows[0], count);
    assert_int_equal(entry_of(im, "blk.3.ffn_down.weight")->rows[0], count);
}

/* Each head's matrix of latent attention reads its own rows. Where both of a head are one tensor, of which a part is
 * transposed, that has no entry. */
static void heads_of_latent_attention_are_counted_each(void **state)
{
    (void)state;
    static const char *const names[] = { "deepseek_v2_lite", "deepseek_v2" };
    for (size_t n = 0; n < COUNT_OF(names); n++) {
        CLEANUP(model_rig_fini) struct model_rig r;
        uint32_t ids[IDS_MAX], heads = 0, whole = 0;
        const uint32_t count = rig_of(&r, names[n], ids);
        CLEANUP(importance_freep) struct importance *im = gather(&r, ids, count, 300, 1, NULL);
        for (uint32_t i = 0; i < im->count; i++) {
            const struct importance_entry *e = &im->entries[i];
            heads += str_ends(e->name, STR(".attn_k_b.weight")) ||
                     str_ends(e->name, STR(".attn_v_b.weight"));
            whole += str_ends(e->name, STR(".attn_kv_b.weight"));
        }
        assert_true(heads == (n == 0 ? 8 : 0) && whole == 0);
        assert_int_equal(entry_of(im, "blk.1.attn_kv_a_mqa.weight")->rows[0], count);
        if (n > 0) continue;
        const struct importance_entry *k = entry_of(im, "blk.1.attn_k_b.weight");
        assert_true(k->count == model_info(r.model)->n_heads && k->rows[0] == count);
        for (uint32_t h = 1; h < k->count; h++) {
            assert_int_equal(k->rows[h], count);
            assert_memory_not_equal(k->sums, k->sums + (size_t)h * k->cols,
                                    k->cols * sizeof *k->sums);
        }
    }
}

/* A folder's matrices have the names that its GGUF file gives them. */
static void folders_give_the_same(void **state)
{
    (void)state;
    static const char *const names[] = { "mixtral", "phi3" };
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        CLEANUP(model_rig_fini) struct model_rig file, folder;
        CLEANUP(case_fini) struct arch_case c;
        uint32_t ids[IDS_MAX];
        const uint32_t count = rig_of(&file, names[i], ids);
        case_load(&c, names[i]);
        case_folder(&c, NULL);
        model_rig_init(&folder, model_folder, NULL, KV_F32);
        struct importance *a = gather(&file, ids, count, 300, 1, NULL);
        struct importance *b = gather(&folder, ids, count, 300, 1, NULL);
        assert_int_equal(a->count, b->count);
        for (uint32_t m = 0; m < a->count; m++) {
            const struct importance_entry *e = &a->entries[m];
            char name[GGUF_NAME_BYTES_MAX + 1];
            snprintf(name, sizeof name, STR_FMT, STR_ARG(e->name));
            const struct importance_entry *f = entry_of(b, name);
            assert_true(f->cols == e->cols && f->count == e->count && f->rows[0] == e->rows[0]);
            for (size_t k = 0; k < (size_t)e->cols * e->count; k++)
                assert_true(fabs(f->sums[k] - e->sums[k]) <= 1e-4 * e->sums[k]);
        }
        importance_free(a);
        importance_free(b);
    }
}

static void encoders_are_refused(void **state)
{
    (void)state;
    struct importance *im = NULL;
    struct err err = { { 0 } };
    CLEANUP(case_fini) struct arch_case c;
    CLEANUP(model_freep) struct model *m = NULL;
    case_load(&c, "bert");
    case_gguf(&c, "bert.gguf", NULL);
    if (model_load(folder_at("bert.gguf"), NULL, &m, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(importance_new(m, &im, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "is an encoder"));
    assert_null(im);
}

/* ---- files */

static const struct imatrix_origin origin = { { "some text.txt", 13 }, 3, 512 };

/* Writes the importance of the mixture, of a prompt so short that some experts see nothing. */
static struct importance *write_mixture(struct model_rig *r, uint32_t prompt)
{
    struct err err = { { 0 } };
    uint32_t ids[IDS_MAX];
    rig_of(r, "mixtral", ids);
    struct importance *im = gather(r, ids, prompt, 300, 1, NULL);
    if (imatrix_write(folder_at("im.gguf"), im, &origin, &err) < 0) fail_msg("%s", err.text);
    return im;
}

static void files_hold_what_was_gathered(void **state)
{
    (void)state;
    CLEANUP(gguf_file_close) struct gguf_file file = { .fd = -1 }, model_file = { .fd = -1 };
    CLEANUP(imatrix_freep) struct imatrix *read = NULL;
    CLEANUP(model_rig_fini) struct model_rig rig;
    CLEANUP(importance_freep) struct importance *im = write_mixture(&rig, 2);
    CLEANUP(gguf_freep) struct gguf *g = folder_open("im.gguf", &file);
    CLEANUP(gguf_freep) struct gguf *model = folder_open("m.gguf", &model_file);
    struct err err = { { 0 } };
    uint32_t blanks = 0;
    const struct gguf_tensor *counts = gguf_tensor_find(g, STR("blk.0.ffn_up_exps.weight.counts"));
    assert_non_null(counts);
    assert_int_equal(counts->dims[0], 1);
    assert_int_equal(counts->dims[1], entry_of(im, "blk.0.ffn_up_exps.weight")->count);
    assert_null(gguf_tensor_find(g, STR("token_embd.weight.counts"))); /* no product reads it */
    if (imatrix_open(folder_at("im.gguf"), &read, &err) < 0) fail_msg("%s", err.text);
    assert_true(str_eq(read->origin.dataset, origin.dataset));
    assert_true(read->origin.chunks == 3 && read->origin.chunk_size == 512);
    assert_int_equal(read->entries, im->count - 1);
    if (imatrix_check(read, model, &err) < 0) fail_msg("%s", err.text);
    for (uint32_t i = 0; i < im->count; i++) {
        const struct importance_entry *e = &im->entries[i];
        float *w = NULL;
        uint32_t blank = 0, empty = 0;
        assert_int_equal(imatrix_weights(read, gguf_tensor_find(model, e->name), &w, &blank, &err),
                         0);
        assert_true((w == NULL) == str_eq(e->name, STR("token_embd.weight")));
        for (uint32_t m = 0; m < e->count && w; m++) {
            double sum = 0;
            const double *sums = e->sums + (size_t)m * e->cols;
            for (uint32_t c = 0; c < e->cols; c++)
                sum += sums[c];
            for (uint32_t c = 0; c < e->cols; c++) {
                double wanted = sum > 0 ? fmax(sums[c] / sum * e->cols, 1e-4) : 1;
                assert_true(fabs((double)w[(size_t)m * e->cols + c] / wanted - 1) < 1e-5);
            }
            empty += e->rows[m] == 0;
        }
        if (w) assert_int_equal(blank, empty);
        blanks += blank;
        free(w);
    }
    assert_true(blanks > 0);
}

/* ---- rounding by one */

/* Compares a tensor's rows with those rounded with the weights. */
static void check_rows(const struct gguf_file *from, const struct gguf_tensor *t,
                       const struct gguf_file *to, const struct gguf_tensor *u, const float *w)
{
    const uint32_t cols = (uint32_t)t->dims[0];
    const size_t row_bytes = weight_row_bytes(u->type, cols);
    float *x = malloc((size_t)t->bytes);
    char *got = malloc((size_t)u->bytes), *row = malloc(row_bytes);
    must(x && got && row && t->type == WEIGHT_F32);
    must(from->source.read(from->source.ctx, t->offset, x, (size_t)t->bytes, NULL) == 0);
    must(to->source.read(to->source.ctx, u->offset, got, (size_t)u->bytes, NULL) == 0);
    for (uint64_t r = 0; r < t->elements / cols; r++) {
        if (w)
            weight_types[u->type].from_f32_weighted(x + r * cols, w + r / t->dims[1] * cols, cols,
                                                    row);
        else
            weight_types[u->type].from_f32(x + r * cols, cols, row);
        assert_memory_equal(got + r * row_bytes, row, row_bytes);
    }
    free(x), free(got), free(row);
}

static void rows_are_rounded_by_their_matrix(void **state)
{
    (void)state;
    CLEANUP(model_rig_fini) struct model_rig rig;
    CLEANUP(importance_freep) struct importance *im = write_mixture(&rig, 2);
    CLEANUP(imatrix_freep) struct imatrix *read = NULL;
    CLEANUP(gguf_file_close) struct gguf_file from = { .fd = -1 }, to = { .fd = -1 };
    struct quantise_result result;
    struct err err = { { 0 } };
    struct quantise_ask ask = { .type = WEIGHT_Q4_0, .imatrix = folder_at("im.gguf") };
    if (quantise_model(folder_at("m.gguf"), folder_at("to.gguf"), &ask, &result, &err) < 0)
        fail_msg("%s", err.text);
    if (imatrix_open(folder_at("im.gguf"), &read, &err) < 0) fail_msg("%s", err.text);
    CLEANUP(gguf_freep) struct gguf *a = folder_open("m.gguf", &from);
    CLEANUP(gguf_freep) struct gguf *b = folder_open("to.gguf", &to);
    uint32_t blanks = 0, weighted = 0, number = 0;
    for (uint32_t i = 0; i < a->tensor_count; i++) {
        const struct gguf_tensor *t = &a->tensors[i], *u = &b->tensors[i];
        float *w = NULL;
        uint32_t blank = 0;
        if (u->type != WEIGHT_Q4_0) continue;
        assert_int_equal(imatrix_weights(read, t, &w, &blank, &err), 0);
        check_rows(&from, t, &to, u, w);
        blanks += blank, weighted += w != NULL;
        free(w);
    }
    assert_true(result.has_imatrix && result.weighted == weighted && result.blank == blanks);
    assert_int_equal(result.unweighted, 1);
    assert_int_equal(result.weighted + result.unweighted + result.fallback, result.tensors);
    struct str text = { 0 };
    assert_int_equal(gguf_get_str(b, "quantize.imatrix.dataset", &text, &err), 0);
    assert_true(str_eq(text, STR("some text.txt")));
    assert_int_equal(gguf_get_str(b, "quantize.imatrix.file", &text, &err), 0);
    assert_true(str_ends(text, STR("im.gguf")));
    assert_int_equal(gguf_get_u32(b, "quantize.imatrix.entries_count", &number, &err), 0);
    assert_int_equal(number, im->count - 1);
    assert_int_equal(gguf_get_u32(b, "quantize.imatrix.chunks_count", &number, &err), 0);
    assert_int_equal(number, 3);
}

/* A file that is rounded again without a matrix does not claim the old one. */
static void a_second_rounding_forgets_the_matrix(void **state)
{
    (void)state;
    CLEANUP(gguf_file_close) struct gguf_file file = { .fd = -1 };
    struct quantise_result result;
    struct err err = { { 0 } };
    const struct quantise_ask ask = { .type = WEIGHT_Q4_1, .again = true };
    if (quantise_model(folder_at("to.gguf"), folder_at("again.gguf"), &ask, &result, &err) < 0)
        fail_msg("%s", err.text);
    CLEANUP(gguf_freep) struct gguf *g = folder_open("again.gguf", &file);
    assert_null(gguf_find(g, STR("quantize.imatrix.file")));
    assert_false(result.has_imatrix);
}

/* ---- files that are refused */

/* How a file for one matrix of 2 rows and 32 columns, NAME "m", is made. */
struct wrong {
    const char *says;
    const char *type;  /* general.type; NULL: imatrix */
    const char *entry; /* NULL: m */
    uint64_t columns, counts;
    float sum, count; /* of the first column, and of all counts */
    bool f16, no_counts, vector;
};

static int check_wrong(const struct wrong *c, struct err *err)
{
    CLEANUP(make_fini) struct gguf_make m, model;
    CLEANUP(buf_fini) struct buf bytes = { 0 }, model_bytes = { 0 };
    CLEANUP(gguf_freep) struct gguf *g = NULL;
    CLEANUP(imatrix_freep) struct imatrix *im = NULL;
    char name[64];
    float x[64] = { c->sum, 1, 2 }, n[64] = { c->count, c->count, c->count };
    const char *entry = c->entry ? c->entry : "m";
    make_init(&m);
    make_init(&model);
    make_str(&m, "general.type", c->type ? c->type : "imatrix");
    snprintf(name, sizeof name, "%s.in_sum2", entry);
    make_tensor(&m, name, 2, (uint64_t[2]){ c->columns, 1 }, c->f16, x,
                c->columns * (c->f16 ? 2 : 4));
    snprintf(name, sizeof name, "%s.counts", c->no_counts ? "other" : entry);
    make_tensor(&m, name, 2, (uint64_t[2]){ 1, c->counts }, 0, n, c->counts * 4);
    make_tensor(&model, "m", c->vector ? 1 : 2, (uint64_t[2]){ 32, 2 }, 0, x,
                c->vector ? 128 : 256);
    make_finish(&m, &bytes);
    make_finish(&model, &model_bytes);
    struct str file = buf_view(&bytes), model_file = buf_view(&model_bytes);
    struct gguf_source source = memory_source(&file), model_source = memory_source(&model_file);
    if (gguf_parse(&model_source, &g, err) < 0) fail_msg("%s", err->text);
    int rc = imatrix_parse(&source, &im, err);
    return rc < 0 ? rc : imatrix_check(im, g, err);
}

static void what_is_not_of_the_model_is_refused(void **state)
{
    (void)state;
    const struct wrong rows[] = {
        { .says = "general.type is 'model', not 'imatrix'", .type = "model" },
        { .says = "'other' is no tensor of the model", .entry = "other" },
        { .says = "'m' has 16 sums and 1 counts, the model's tensor has 1 matrices of 32",
          .columns = 16 },
        { .says = "'m' has 32 sums and 2 counts", .counts = 2 },
        { .says = "'m' is no matrix of the model", .vector = true },
        { .says = "'m.in_sum2' is F16, importance is read in F32", .f16 = true },
        { .says = "'m.in_sum2' has no counterpart 'm.counts'", .no_counts = true },
        { .says = "number 0 of 'm.in_sum2' is -1", .sum = -1 },
        { .says = "number 0 of 'm.in_sum2' is nan", .sum = NAN },
        { .says = "number 0 of 'm.in_sum2' is inf", .sum = INFINITY },
        { .says = "number 0 of 'm.counts' is -1", .count = -1 },
        { .says = "number 0 of 'm.counts' is nan", .count = NAN },
        { .says = "matrix 0 of 'm' has sums, and a count of 0", .count = 0 },
    };
    struct err err = { { 0 } };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct wrong c = rows[i];
        if (c.columns == 0) c.columns = 32;
        if (c.counts == 0) c.counts = 1;
        if (i + 1 < COUNT_OF(rows) && c.count == 0) c.count = 4;
        int rc = check_wrong(&c, &err);
        if (rc != -EINVAL || !strstr(err.text, c.says))
            fail_msg("%d \"%s\", expected \"%s\"", rc, err.text, c.says);
    }
    const struct wrong right = { .columns = 32, .counts = 1, .count = 4 };
    if (check_wrong(&right, &err) != 0) fail_msg("%s", err.text);
}

static void expect(int rc, int wanted, const struct err *err, const char *says)
{
    if (rc != wanted || !strstr(err->text, says))
        fail_msg("%d \"%s\", expected %d with \"%s\"", rc, err->text, wanted, says);
    if (access(folder_at("none.gguf"), F_OK) == 0 ||
        access(folder_at("none.gguf.partial"), F_OK) == 0)
        fail_msg("a file was left behind");
}

static void a_refusal_leaves_no_file(void **state)
{
    (void)state;
    struct quantise_result result;
    struct err err = { { 0 } };
    CLEANUP(model_rig_fini) struct model_rig rig;
    CLEANUP(importance_freep) struct importance *im = write_mixture(&rig, 2);
    char path[128];
    struct quantise_ask ask = { .type = WEIGHT_Q8_0, .imatrix = path };
    snprintf(path, sizeof path, "%s", folder_at("im.gguf"));
    folder_llama("llama.gguf", WEIGHT_F32, true, 1);
    int rc = quantise_model(folder_at("m.gguf"), folder_at("none.gguf"), &ask, &result, &err);
    expect(rc, -ENOTSUP, &err, "Q8_0 rounds each weight by itself");
    ask.type = WEIGHT_Q4_0;
    rc = quantise_model(folder_at("llama.gguf"), folder_at("none.gguf"), &ask, &result, &err);
    expect(rc, -EINVAL, &err, "it was gathered from another");
    snprintf(path, sizeof path, "%s", folder_at("m.gguf"));
    rc = quantise_model(folder_at("m.gguf"), folder_at("none.gguf"), &ask, &result, &err);
    expect(rc, -EINVAL, &err, "no importance matrix: general.type is");
    ask.imatrix = "CMakeLists.txt";
    rc = quantise_model(folder_at("m.gguf"), folder_at("none.gguf"), &ask, &result, &err);
    expect(rc, -EINVAL, &err, "llama.cpp's older form (.dat) becomes one by");
    im->entries[0].rows[0] = 1, im->entries[0].sums[0] = HUGE_VAL;
    rc = imatrix_write(folder_at("none.gguf"), im, &origin, &err);
    expect(rc, -EINVAL, &err, "adds up to inf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_numpy),
        cmocka_unit_test(threads_chunks_and_gathering_change_no_bit),
        cmocka_unit_test(experts_share_what_the_router_sees),
        cmocka_unit_test(parts_of_a_tensor_count_once),
        cmocka_unit_test(heads_of_latent_attention_are_counted_each),
        cmocka_unit_test(folders_give_the_same),
        cmocka_unit_test(encoders_are_refused),
        cmocka_unit_test(files_hold_what_was_gathered),
        cmocka_unit_test(rows_are_rounded_by_their_matrix),
        cmocka_unit_test(a_second_rounding_forgets_the_matrix),
        cmocka_unit_test(what_is_not_of_the_model_is_refused),
        cmocka_unit_test(a_refusal_leaves_no_file),
    };
    return cmocka_run_group_tests(tests, model_folder_make, model_folder_remove);
}
