/* f_roundtrip.c - takes every message between our processes from struct to text and back.
 *
 * f_wire starts from text and so never meets a struct that its own decoder would not have made: a
 * string with torn UTF-8, a name cut inside a character. Here the input fills the struct, by the table
 * that encodes it: fields_encode is wrapped, and encoding an empty message tells its table. Numbers lie
 * inside their bounds; strings are any bytes within theirs (NUL where the row allows it). Then the
 * decoder must accept the text, and give back every number, flag and item, and every string that is
 * UTF-8. */
#include "base/core/block_key.h"
#include "base/core/own.h"
#include "base/wire/events.h"
#include "base/wire/generate.h"
#include "base/wire/kv_wire.h"
#include "base/wire/launch.h"
#include "base/wire/sync.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define ARENA_BYTES ((size_t)1 << 22)
#define ITEMS_MAX 3 /* of an array, unless its table wants more */
#define MESSAGE_BYTES_MAX 512

int __real_fields_encode(const struct field_set *set, const void *in, struct buf *out);
int __wrap_fields_encode(const struct field_set *set, const void *in, struct buf *out);

static const struct field_set *told; /* the table of the message encoded last */

int __wrap_fields_encode(const struct field_set *set, const void *in, struct buf *out)
{
    told = set;
    return __real_fields_encode(set, in, out);
}

struct fill {
    struct fuzz_choices *c;
    struct arena *arena;
};

static void fill_set(struct fill *f, const struct field_set *set, char *at);

/* ---- values --------------------------------------------------------------------------------- */

static uint64_t draw_u64(struct fill *f)
{
    uint64_t v = 0;
    for (uint32_t n = fuzz_below(f->c, 9); n > 0; n--)
        v = v << 8 | fuzz_u8(f->c);
    return v;
}

/* Draws a finite double, inside the row's bounds if it has some: whole numbers below 2^63. */
static double draw_f64(struct fill *f, const struct field *row)
{
    double v;
    uint64_t bits = draw_u64(f) << fuzz_below(f->c, 57);
    memcpy(&v, &bits, sizeof v);
    bool in = row->max <= 0 || (v >= row->min && v <= row->max);
    if (isfinite(v) && in) return v;
    return row->max > 0 ? row->min + (row->max - row->min) * fuzz_u8(f->c) / 255 : 0.5;
}

static uint64_t draw_whole(struct fill *f, const struct field *row, uint64_t most)
{
    uint64_t v = draw_u64(f), low = row->max > 0 ? (uint64_t)row->min : 0;
    uint64_t high = row->max > 0 && row->max < (double)most ? (uint64_t)row->max : most;
    if (v >= low && v <= high) return v;
    return high - low == UINT64_MAX ? v : low + v % (high - low + 1);
}

static struct str draw_text(struct fill *f, const struct field *row, size_t least, size_t most)
{
    size_t len = fuzz_below(f->c, 4) == 0 ? most : fuzz_u8(f->c);
    len = len < least ? least : len > most ? most : len;
    if (len > MESSAGE_BYTES_MAX && len > least) len = MESSAGE_BYTES_MAX;
    char *text = arena_alloc(f->arena, len + 1);
    must(text);
    uint8_t filler = fuzz_u8(f->c);
    bool digest = least == most; /* a fixed length: hexadecimal digits, nothing else */
    for (size_t i = 0; i < len; i++) {
        char byte = (char)(fuzz_below(f->c, 2) ? fuzz_u8(f->c) : filler);
        text[i] = digest ? "0123456789abcdef"[byte & 15] : byte || row->nul ? byte : 'x';
    }
    return str_of(text, len);
}

static bool is_array(const struct field *row)
{
    return row->type == FIELD_LIST || row->type == FIELD_STRS || row->type == FIELD_IDS ||
           row->type == FIELD_TOKENS || row->type == FIELD_KEYS;
}

static size_t bytes_of(const struct field *row)
{
    if (row->type == FIELD_LIST) return row->of->size;
    if (row->type == FIELD_STRS) return sizeof(struct str);
    return row->type == FIELD_IDS || row->type == FIELD_TOKENS ? sizeof(uint32_t)
                                                               : sizeof(struct block_key);
}

static void fill_item(struct fill *f, const struct field *row, char *at)
{
    if (row->type == FIELD_LIST) {
        fill_set(f, row->of, at);
    } else if (row->type == FIELD_STRS) {
        struct str text = draw_text(f, row, 1, row->each_bytes_max);
        memcpy(at, &text, sizeof text);
    } else {
        uint64_t words[2] = { draw_u64(f), draw_u64(f) };
        if (row->type == FIELD_TOKENS) words[0] &= 0xffffff;
        memcpy(at, words, bytes_of(row));
    }
}

static void fill_array(struct fill *f, const struct field *row, char *in)
{
    uint32_t least = row->required && row->min < 1 ? 1 : (uint32_t)row->min;
    uint32_t count = fuzz_below(f->c, ITEMS_MAX + 1);
    if (count > row->max) count = (uint32_t)row->max;
    if (count < least) count = least;
    size_t each = bytes_of(row);
    char *items = arena_alloc(f->arena, count * each + 1);
    must(items);
    memset(items, 0, count * each);
    for (uint32_t i = 0; i < count; i++)
        fill_item(f, row, items + i * each);
    memcpy(in + row->offset, &items, sizeof items);
    memcpy(in + row->count_offset, &count, sizeof count);
}

static void fill_number(struct fill *f, const struct field *row, char *at)
{
    if (row->type == FIELD_F64) {
        double v = draw_f64(f, row);
        memcpy(at, &v, sizeof v);
    } else if (row->type == FIELD_U32) {
        uint32_t v = (uint32_t)draw_whole(f, row, UINT32_MAX);
        memcpy(at, &v, sizeof v);
    } else {
        uint64_t v = draw_whole(f, row, row->type == FIELD_I64 ? INT64_MAX : UINT64_MAX);
        memcpy(at, &v, sizeof v);
    }
}

static void fill_counts(struct fill *f, const struct field *row, char *at)
{
    for (uint32_t i = 0; i < (uint32_t)row->max; i++) {
        float v = (float)(draw_u64(f) & 0xffffff);
        memcpy(at + i * sizeof v, &v, sizeof v);
    }
}

static void fill_field(struct fill *f, const struct field *row, char *in)
{
    char *at = in + row->offset;
    bool yes = fuzz_below(f->c, 2);
    if (row->present_offset) {
        memcpy(in + row->present_offset, &yes, sizeof yes);
        if (!yes) return;
        yes = fuzz_below(f->c, 2);
    }
    if (row->type == FIELD_BOOL) {
        memcpy(at, &yes, sizeof yes);
    } else if (row->type == FIELD_STR) {
        size_t least = row->required && row->min < 1 ? 1 : (size_t)row->min;
        struct str text = draw_text(f, row, least, (size_t)row->max);
        memcpy(at, &text, sizeof text);
    } else if (row->type == FIELD_ENUM) {
        uint32_t name = fuzz_below(f->c, (uint32_t)row->max);
        memcpy(at, &name, sizeof name);
    } else if (row->type == FIELD_OBJECT) {
        fill_set(f, row->of, at);
    } else if (is_array(row)) {
        fill_array(f, row, in);
    } else if (row->type == FIELD_COUNTS) {
        fill_counts(f, row, at);
    } else if (row->type != FIELD_VERSION) {
        fill_number(f, row, at);
    }
}

static void fill_set(struct fill *f, const struct field_set *set, char *at)
{
    for (uint32_t i = 0; i < set->count; i++)
        fill_field(f, &set->field[i], at);
}

/* ---- comparison ----------------------------------------------------------------------------- */

static void same_set(const struct field_set *set, const char *a, const char *b);

static const char *compared; /* the field in work, for a debugger or a core dump */

/* Compares strings: invalid UTF-8 may come back replaced or shorter, never longer than allowed. */
static void same_text(const char *a, const char *b, double bytes_max)
{
    struct str x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    must((double)y.len <= bytes_max);
    if (str_utf8_valid(x)) must(str_eq(x, y));
}

static void same_array(const struct field *row, const char *a, const char *b)
{
    uint32_t count, other;
    const char *x, *y;
    memcpy(&count, a + row->count_offset, sizeof count);
    memcpy(&other, b + row->count_offset, sizeof other);
    must(count == other);
    memcpy(&x, a + row->offset, sizeof x);
    memcpy(&y, b + row->offset, sizeof y);
    size_t each = bytes_of(row);
    for (uint32_t i = 0; i < count; i++, x += each, y += each) {
        if (row->type == FIELD_LIST)
            same_set(row->of, x, y);
        else if (row->type == FIELD_STRS)
            same_text(x, y, (double)row->each_bytes_max);
        else
            must(memcmp(x, y, each) == 0);
    }
}

static bool is_absent(const struct field *row, const char *a, const char *b)
{
    if (!row->present_offset) return false;
    bool here, there;
    memcpy(&here, a + row->present_offset, sizeof here);
    memcpy(&there, b + row->present_offset, sizeof there);
    must(here == there);
    return !here;
}

static void same_field(const struct field *row, const char *a, const char *b)
{
    static const size_t sizes[FIELD_TYPE_COUNT] = {
        [FIELD_U32] = 4,  [FIELD_U64] = 8,  [FIELD_I64] = 8,   [FIELD_F64] = 8,
        [FIELD_BOOL] = 1, [FIELD_ENUM] = 4, [FIELD_HEX64] = 8,
    };
    if (is_absent(row, a, b)) return;
    if (row->type == FIELD_STR)
        same_text(a + row->offset, b + row->offset, row->max);
    else if (row->type == FIELD_OBJECT)
        same_set(row->of, a + row->offset, b + row->offset);
    else if (is_array(row))
        same_array(row, a, b);
    else if (row->type == FIELD_COUNTS)
        must(memcmp(a + row->offset, b + row->offset, (size_t)row->max * sizeof(float)) == 0);
    else
        must(memcmp(a + row->offset, b + row->offset, sizes[row->type]) == 0);
}

static void same_set(const struct field_set *set, const char *a, const char *b)
{
    for (uint32_t i = 0; i < set->count; i++) {
        compared = set->field[i].name;
        same_field(&set->field[i], a, b);
    }
}

/* ---- messages ------------------------------------------------------------------------------- */

/* Each mend_ function makes a drawn message keep the rules between its fields, which no row states. */

static void mend_generate(struct generate_request *m)
{
    if (m->prompt_tokens > m->id_count) m->prompt_tokens = m->id_count;
    if (m->kv_host.len == 0) m->kv_port = 0;
    if (m->kv_port == 0) m->kv_host = (struct str){ 0 };
}

static void mend_event(struct block_event *m)
{
    if (m->kind == EVENT_HELLO) m->page_tokens = m->block_tokens;
}

static void mend_engine_report(struct engine_report *m)
{
    if (m->pages_free > m->pages_total) m->pages_free = m->pages_total;
    if (m->pages_cached > m->pages_total - m->pages_free) m->pages_cached = 0;
    if (m->host.len == 0 || m->port == 0) m->health = ENGINE_LOADING;
    if (m->work.kv_tokens_decoding > m->work.kv_tokens)
        m->work.kv_tokens_decoding = m->work.kv_tokens;
}

static void mend_agent_report(struct agent_report *m)
{
    if (m->has_engine) mend_engine_report(&m->engine);
}

static void mend_agent_reply(struct agent_reply *m)
{
    if (m->clock > 0 && m->clock < WIRE_CLOCK_MIN) m->clock = 1;
}

static void mend_kv_fetch_reply(struct kv_fetch_reply *m)
{
    if (m->pulled > m->tokens) m->pulled = m->tokens;
}

static void mend_lengths(const struct lengths *from)
{
    struct lengths l;
    memcpy(&l, from, sizeof l);
    l.count = 0;
    for (uint32_t i = 0; i < LENGTH_BINS; i++)
        for (uint32_t k = 0; k < LENGTH_BINS; k++)
            l.count += (double)l.bin[i][k];
    memcpy((void *)(uintptr_t)from, &l, sizeof l);
}

static void mend_router_sync(struct router_sync *m)
{
    for (uint32_t i = 0; i < m->service_count; i++) {
        if (m->services[i].has_expected) mend_lengths(&m->services[i].expected);
        if (m->services[i].has_queued) mend_lengths(&m->services[i].queued);
    }
}

static void mend_router_rules(struct router_rules *m)
{
    static const struct str hash =
        STR("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
    for (uint32_t i = 0; i < m->tenant_count; i++)
        for (uint32_t k = 0; k < m->tenants[i].key_hash_count; k++)
            memcpy((void *)(uintptr_t)&m->tenants[i].key_hashes[k], &hash, sizeof hash);
}

/* The version is the one that the members need. */
static void mend_launch_spec(struct launch_spec *m)
{
    m->v = m->join_file.len > 0 ? LAUNCH_VERSION : 1;
}

static void mend_nothing(void *m)
{
    (void)m;
}
#define mend_generate_frame mend_nothing
#define mend_engine_clock mend_nothing
#define mend_kv_read_request mend_nothing
#define mend_kv_fetch_request mend_nothing

#define GO_ROUND(name, type, draw_kind)                                                     \
    static void name##_round(struct fill *f)                                                \
    {                                                                                       \
        CLEANUP(buf_fini) struct buf empty = { 0 }, first = { 0 }, second = { 0 };          \
        struct type a = { 0 }, b = { 0 };                                                   \
        struct err err = { 0 };                                                             \
        draw_kind;                                                                          \
        name##_encode(&a, &empty);                                                          \
        fill_set(f, told, (char *)&a);                                                      \
        draw_kind;                                                                          \
        mend_##name(&a);                                                                    \
        must(name##_encode(&a, &first) == 0);                                               \
        if (name##_decode(buf_view(&first), f->arena, &b, &err) < 0) refused(&first, &err); \
        same_set(told, (const char *)&a, (const char *)&b);                                 \
        must(name##_encode(&b, &second) == 0);                                              \
        must(str_eq(buf_view(&first), buf_view(&second)));                                  \
    }

static void refused(const struct buf *text, const struct err *err)
{
    fprintf(stderr, "fuzz: our own text is refused: %s\n" STR_FMT "\n", err->text,
            STR_ARG(buf_view(text)));
    abort();
}

/* The table of a call depends on whether it has a grammar. */
static enum grammar_kind grammar_kind;
GO_ROUND(generate, generate_request, a.grammar.kind = grammar_kind)
GO_ROUND(generate_frame, generate_frame, )
GO_ROUND(engine_report, engine_report, )
GO_ROUND(agent_report, agent_report, )
GO_ROUND(agent_reply, agent_reply, )
GO_ROUND(engine_clock, engine_clock, )
GO_ROUND(router_sync, router_sync, )
GO_ROUND(router_rules, router_rules, )
GO_ROUND(kv_read_request, kv_read_request, )
GO_ROUND(kv_fetch_request, kv_fetch_request, )
GO_ROUND(kv_fetch_reply, kv_fetch_reply, )
GO_ROUND(launch_spec, launch_spec, )

/* The table of an event depends on its kind. */
static enum event_kind event_kind;
#define mend_block_event mend_event
GO_ROUND(block_event, block_event, a.kind = event_kind)

static void call_round(struct fill *f)
{
    grammar_kind = (enum grammar_kind)fuzz_below(f->c, GRAMMAR_KIND_COUNT);
    generate_round(f);
}

static void event_round(struct fill *f)
{
    event_kind = (enum event_kind)fuzz_below(f->c, EVENT_KIND_COUNT);
    block_event_round(f);
}

/* Each byte is drawn, encoded and compared; a list multiplies the rows of its items. */
const struct fuzz_cost fuzz_cost = { 2000000, 4000 };

void fuzz_one(const uint8_t *data, size_t len)
{
    static void (*const rounds[])(struct fill *) = {
        call_round,
        generate_frame_round,
        event_round,
        engine_report_round,
        agent_report_round,
        agent_reply_round,
        engine_clock_round,
        router_sync_round,
        router_rules_round,
        kv_read_request_round,
        kv_fetch_request_round,
        kv_fetch_reply_round,
        launch_spec_round,
    };
    CLEANUP(arena_fini) struct arena arena = { 0 };
    struct fuzz_choices c = { data, len };
    struct fill f = { &c, &arena };
    arena_init(&arena, ARENA_BYTES);
    rounds[fuzz_below(&c, COUNT_OF(rounds))](&f);
}
