/* trace.c - parses traces, appends requests in arrival order, and cuts, superposes and speeds them up.
 *
 * Superposing merges sorted copies. Copy k is the trace turned by k / scale of its period, so it is two
 * runs, each in order: the part that wraps to the front, then the rest. The period is the span and one
 * mean gap, else the last request of one turn and the first of the next coincide.
 *
 * Features: turns are linked once, and a request's features are made when it arrives. */

#include "simulator/trace.h"

#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/core/heap.h"
#include "base/core/json.h"
#include "base/core/map.h"
#include "base/core/rng.h"
#include "policies/predict/text.h"

#include <stdlib.h>
#include <string.h>

/* Grows an array by doubling, up to its bound. */
static int grow(void **array, size_t count, size_t *capacity, size_t item, size_t count_max)
{
    if (count <= *capacity) return 0;
    if (count > count_max) return -E2BIG;
    size_t wanted = *capacity ? 2 * *capacity : 1024;
    wanted = min_size(wanted > count ? wanted : count, count_max);
    void *more = realloc(*array, wanted * item);
    if (!more) return -ENOMEM;
    *array = more;
    *capacity = wanted;
    return 0;
}

int trace_new(struct trace **ret, struct err *err)
{
    struct trace *t = calloc(1, sizeof *t);
    if (!t) return err_set(err, -ENOMEM, "no memory for a trace");
    *ret = t;
    return 0;
}

void trace_free(struct trace *t)
{
    if (!t) return;
    free(t->request);
    free(t->block);
    free(t->text);
    free(t);
}

static int check(const struct trace *t, const struct trace_request *r, struct err *err)
{
    if (r->prompt_tokens == 0) return err_set(err, -EINVAL, "a request without prompt tokens");
    if (r->output_tokens == 0) return err_set(err, -EINVAL, "a request without output tokens");
    if (r->at_us < 0) return err_set(err, -EINVAL, "a negative time");
    if (t->count > 0 && r->at_us < t->request[t->count - 1].at_us) {
        return err_set(err, -EINVAL, "the time goes back");
    }
    if (r->block_count > 0 && (t->block_tokens == 0 ||
                               r->block_count > ceil_div_u32(r->prompt_tokens, t->block_tokens))) {
        return err_set(err, -EINVAL, "%u blocks are more than %u tokens fill", r->block_count,
                       r->prompt_tokens);
    }
    return 0;
}

int trace_append(struct trace *t, const struct trace_request *r, const uint64_t *blocks,
                 struct str text, struct err *err)
{
    int rc = check(t, r, err);
    if (rc < 0) return rc;
    rc = grow((void **)&t->request, (size_t)t->count + 1, &t->request_capacity, sizeof *t->request,
              TRACE_REQUESTS_MAX);
    if (rc == 0) {
        rc = grow((void **)&t->block, t->block_count + r->block_count, &t->block_capacity,
                  sizeof *t->block, TRACE_BLOCKS_MAX);
    }
    if (rc == 0 && text.len > UINT32_MAX) rc = -E2BIG;
    if (rc == 0) {
        rc = grow((void **)&t->text, t->text_bytes + text.len, &t->text_capacity, 1,
                  TRACE_TEXT_BYTES_MAX);
    }
    if (rc == -E2BIG)
        return err_set(err, rc, "more than %u requests, %u prefix blocks or 1 GiB of text",
                       TRACE_REQUESTS_MAX, TRACE_BLOCKS_MAX);
    if (rc < 0) return err_set(err, rc, "no memory for a trace");
    struct trace_request *mine = &t->request[t->count++];
    *mine = *r;
    mine->block_first = t->block_count;
    mine->text_first = t->text_bytes;
    mine->text_bytes = (uint32_t)text.len;
    if (r->block_count > 0) {
        memcpy(&t->block[t->block_count], blocks, r->block_count * sizeof *blocks);
        t->block_count += r->block_count;
    }
    if (text.len > 0) memcpy(&t->text[t->text_bytes], text.data, text.len);
    t->text_bytes += text.len;
    t->has_tenants |= r->tenant > 0;
    t->has_sessions |= r->session > 0;
    return 0;
}

/* One of the sorted runs that a superposition merges. */
struct run {
    struct heap_node node; /* by its next request's time; equal times: the lower run */
    uint32_t next, end;
    uint32_t copy;
    bool wrapped;
    int64_t shift_us;
};

struct superposition {
    const struct trace *from;
    uint32_t tenants, sessions; /* the highest of the original */
    uint64_t *block;            /* scratch, for the longest prompt */
    struct run *run;
    struct heap heap;
};

/* Appends a copy's request, which shares blocks, tenants and sessions with its own copy only. */
static int append_copy(struct superposition *s, const struct run *run, struct trace *to,
                       struct err *err)
{
    const struct trace_request *from = &s->from->request[run->next];
    struct trace_request r = *from;
    r.at_us += run->shift_us;
    if (r.tenant > 0) r.tenant += run->copy * s->tenants;
    if (r.session > 0) r.session += (2 * run->copy + run->wrapped) * s->sessions;
    for (uint32_t i = 0; i < r.block_count; i++) {
        uint64_t id = s->from->block[from->block_first + i];
        s->block[i] = run->copy == 0 ? id : rng_at(run->copy, id);
    }
    struct str text = { 0 };
    if (r.text_bytes > 0) text = str_of(&s->from->text[r.text_first], r.text_bytes);
    return trace_append(to, &r, s->block, text, err);
}

static int run_offer(struct superposition *s, struct run *run)
{
    if (run->next == run->end) return 0;
    return heap_push(&s->heap, &run->node, s->from->request[run->next].at_us + run->shift_us);
}

static int offer_copies(struct superposition *s, uint32_t scale)
{
    const struct trace *t = s->from;
    int64_t span = t->request[t->count - 1].at_us;
    int64_t period = span + (t->count > 1 ? span / (t->count - 1) : 0);
    int rc = 0;
    for (uint32_t k = 0; rc == 0 && k < scale; k++) {
        int64_t shift = (int64_t)((double)period * k / scale);
        uint32_t cut = t->count;
        while (cut > 0 && t->request[cut - 1].at_us + shift >= period && shift > 0)
            cut--;
        s->run[2 * k] = (struct run){
            .next = cut, .end = t->count, .copy = k, .wrapped = true, .shift_us = shift - period
        };
        s->run[2 * k + 1] = (struct run){ .end = cut, .copy = k, .shift_us = shift };
        rc = run_offer(s, &s->run[2 * k]);
        if (rc == 0) rc = run_offer(s, &s->run[2 * k + 1]);
    }
    return rc;
}

static int merge(struct superposition *s, uint32_t scale, struct trace *to, struct err *err)
{
    int rc = offer_copies(s, scale);
    struct heap_node *top;
    while (rc == 0 && (top = heap_pop(&s->heap))) {
        struct run *run = (struct run *)top; /* its first member */
        rc = append_copy(s, run, to, err);
        if (rc < 0) return rc;
        run->next++;
        rc = run_offer(s, run);
    }
    return rc < 0 ? err_set(err, rc, "no memory for a trace") : 0;
}

static int superpose(struct trace *t, uint32_t scale, struct err *err)
{
    struct superposition s = { .from = t };
    uint32_t blocks = 1;
    for (uint32_t i = 0; i < t->count; i++) {
        s.tenants = max_u32(s.tenants, t->request[i].tenant);
        s.sessions = max_u32(s.sessions, t->request[i].session);
        blocks = max_u32(blocks, t->request[i].block_count);
    }
    if ((uint64_t)s.sessions * 2 * scale > UINT32_MAX || (uint64_t)s.tenants * scale > UINT32_MAX) {
        return err_set(err, -E2BIG, "tenants or sessions of %u copies are too many", scale);
    }
    CLEANUP(trace_freep) struct trace *to = NULL;
    int rc = trace_new(&to, err);
    if (rc < 0) return rc;
    to->block_tokens = t->block_tokens;
    heap_init(&s.heap, 2 * (size_t)scale);
    s.block = malloc(blocks * sizeof *s.block);
    s.run = calloc(2 * (size_t)scale, sizeof *s.run);
    rc = s.block && s.run ? merge(&s, scale, to, err)
                          : err_set(err, -ENOMEM, "no memory for a trace");
    heap_fini(&s.heap);
    free(s.block);
    free(s.run);
    if (rc < 0) return rc;
    struct trace old = *t;
    *t = *to;
    *to = old;
    return 0;
}

int trace_shape(struct trace *t, uint32_t requests_max, uint32_t scale, double speed,
                struct err *err)
{
    if (scale < 1 || scale > TRACE_SCALE_MAX) {
        return err_set(err, -EINVAL, "%u copies: out of range 1..%d", scale, TRACE_SCALE_MAX);
    }
    if (!(speed > 0)) return err_set(err, -EINVAL, "a speed of %g is not above 0", speed);
    if (requests_max > 0) t->count = min_u32(t->count, requests_max);
    if (scale > 1 && t->count > 0) {
        int rc = superpose(t, scale, err);
        if (rc < 0) return rc;
    }
    if (speed == 1) return 0;
    for (uint32_t i = 0; i < t->count; i++)
        t->request[i].at_us = (int64_t)((double)t->request[i].at_us / speed);
    return 0;
}

void trace_stats_get(const struct trace *t, struct trace_stats *ret)
{
    *ret = (struct trace_stats){ 0 };
    if (t->count == 0) return;
    double count = t->count;
    for (uint32_t i = 0; i < t->count; i++) {
        ret->prompt_mean += t->request[i].prompt_tokens / count;
        ret->output_mean += t->request[i].output_tokens / count;
    }
    ret->span_s = (double)(t->request[t->count - 1].at_us - t->request[0].at_us) * 1e-6;
    if (ret->span_s > 0) ret->rate_s = (count - 1) / ret->span_s;
}

/* ---- parsing: Azure's and Mooncake's files and our text traces ----
 *
 * Every line is checked, and read whole into one struct before it is appended, so that a refused line leaves
 * nothing. A refusal names the member or column, the values it takes, and the value that was there. */

#define LINE_BLOCKS_MAX 1000000 /* of one prompt: 512 million tokens */

const char *const trace_format_names[TRACE_FORMAT_COUNT + 1] = { "auto", "azure", "mooncake",
                                                                 "text" };

enum { AZURE_WHEN, AZURE_PROMPT, AZURE_OUTPUT, AZURE_COLUMNS };

#define AZURE_WIDTH_MAX 16 /* columns of a file, of which three are read */
#define AZURE_NAMES "TIMESTAMP,ContextTokens,GeneratedTokens"
#define NOT_AZURE "not " AZURE_NAMES
#define SHOWN_BYTES 40 /* of a field that is refused */

static const char *const azure_names[AZURE_COLUMNS] = { "TIMESTAMP", "ContextTokens",
                                                        "GeneratedTokens" };

struct parser {
    struct trace *trace;
    enum trace_format format;
    struct buf block; /* of this line, 8 bytes each */
    struct buf text;  /* of this line */
    bool has_text;
    int64_t first_us;
    uint32_t column[AZURE_COLUMNS]; /* where the header has them */
    uint32_t width;                 /* columns of the header */
};

static int add(struct parser *p, struct trace_request *r, struct err *err)
{
    if (p->trace->count == 0) p->first_us = r->at_us;
    if (r->at_us < p->first_us)
        return err_set(err, -EINVAL, "the time goes back: sort the lines by it");
    r->at_us -= p->first_us;
    r->block_count = (uint32_t)(p->block.len / sizeof(uint64_t));
    if (r->block_count > 0) p->trace->block_tokens = TRACE_MOONCAKE_BLOCK;
    /* A buffer's memory comes from realloc and is aligned for any type. */
    const uint64_t *blocks = (const uint64_t *)(const void *)p->block.data;
    return trace_append(p->trace, r, blocks, buf_view(&p->text), err);
}

static int read_ids(struct parser *p, struct json_reader *json)
{
    if (json_next(json) != JSON_ARRAY) return -EINVAL;
    while (json_next(json) == JSON_NUMBER) {
        uint64_t id;
        int rc = json_u64(json, &id);
        if (rc == 0) rc = buf_append(&p->block, &id, sizeof id);
        if (rc < 0) return rc;
    }
    return json->token == JSON_ARRAY_END ? 0 : -EINVAL;
}

static int read_u32(struct json_reader *json, uint32_t *ret)
{
    uint64_t v;
    json_next(json);
    int rc = json_u64(json, &v);
    if (rc == 0 && v > UINT32_MAX) rc = -ERANGE;
    if (rc == 0) *ret = (uint32_t)v;
    return rc;
}

static int read_text(struct parser *p, struct json_reader *json)
{
    if (json_next(json) != JSON_STRING) return -EINVAL;
    p->has_text = true;
    return json_text(json, &p->text);
}

enum { READ_MS, READ_COUNT, READ_IDS, READ_TEXT, READ_KINDS };

static const char *const takes[READ_KINDS] = {
    [READ_MS] = "milliseconds from 0 to 1e12",
    [READ_COUNT] = "a whole number from 0 to 4294967295",
    [READ_IDS] = "a list of whole numbers from 0 on",
    [READ_TEXT] = "a text",
};

#define AT(member) offsetof(struct trace_request, member)

static const struct member {
    const char *name;
    uint8_t kind;
    bool needed;
    size_t offset; /* of a READ_COUNT */
} members[] = {
    { "timestamp", READ_MS, true, 0 },
    { "input_length", READ_COUNT, true, AT(prompt_tokens) },
    { "output_length", READ_COUNT, true, AT(output_tokens) },
    { "hash_ids", READ_IDS, false, 0 },
    { "prompt", READ_TEXT, false, 0 },
    { "output_max", READ_COUNT, false, AT(output_max) },
    { "tenant", READ_COUNT, false, AT(tenant) },
    { "service", READ_COUNT, false, AT(service) },
    { "session", READ_COUNT, false, AT(session) },
    { "turn", READ_COUNT, false, AT(turn) },
    { "group", READ_COUNT, false, AT(group) },
};

static int read_value(struct parser *p, struct json_reader *json, const struct member *m,
                      struct trace_request *r)
{
    if (m->kind == READ_IDS) return read_ids(p, json);
    if (m->kind == READ_TEXT) return read_text(p, json);
    if (m->kind == READ_COUNT) {
        return read_u32(json, (uint32_t *)(void *)((char *)r + m->offset));
    }
    double at_ms;
    json_next(json);
    int rc = json_f64(json, &at_ms);
    if (rc == 0 && !(at_ms >= 0 && at_ms <= 1e12)) rc = -ERANGE;
    if (rc == 0) r->at_us = (int64_t)(at_ms * 1000);
    return rc;
}

/* Reads the value behind the current key; *seen has a bit for each member that was read. */
static int read_member(struct parser *p, struct json_reader *json, struct trace_request *r,
                       uint32_t *seen, struct err *err)
{
    for (size_t i = 0; i < COUNT_OF(members); i++) {
        const struct member *m = &members[i];
        if (!json_key_is(json, m->name)) continue;
        if (m->kind == READ_TEXT && p->format == TRACE_MOONCAKE) break;
        if (*seen & (1u << i)) return err_set(err, -EINVAL, "%s is given twice", m->name);
        *seen |= 1u << i;
        int rc = read_value(p, json, m, r);
        if ((rc == -EINVAL || rc == -ERANGE) && !json->problem)
            return err_set(err, rc, "%s takes %s", m->name, takes[m->kind]);
        return rc;
    }
    json_skip(json);
    return 0;
}

static int read_json(struct parser *p, struct str line, struct err *err)
{
    struct json_reader json;
    json_reader_init(&json, line);
    struct trace_request r = { 0 };
    uint32_t seen = 0;
    struct err said = { 0 };
    int rc = json_next(&json) == JSON_OBJECT ? 0 : -EINVAL;
    while (rc == 0 && json_next(&json) == JSON_KEY)
        rc = read_member(p, &json, &r, &seen, &said);
    if (rc < 0 && said.text[0]) return err_set(err, -EINVAL, "%s", said.text);
    if (rc == 0 && (json.token != JSON_OBJECT_END || json_next(&json) != JSON_END)) rc = -EINVAL;
    if (rc == -EINVAL) {
        return json_fail(&json, err,
                         p->format == TRACE_TEXT ? "not a text record" : "not a Mooncake record");
    }
    if (rc < 0) return rc;
    if (p->format == TRACE_AUTO) p->format = p->has_text ? TRACE_TEXT : TRACE_MOONCAKE;
    if (p->format == TRACE_TEXT && !p->has_text) return err_set(err, -EINVAL, "no prompt");
    for (size_t i = 0; i < COUNT_OF(members); i++) {
        if (members[i].needed && !(seen & (1u << i)))
            return err_set(err, -EINVAL, "%s is missing", members[i].name);
    }
    return add(p, &r, err);
}

/* Reads "2023-11-16 18:15:46.6805900" as microseconds; days are counted by the civil calendar. */
static int read_date(struct str text, int64_t *ret)
{
    static const struct {
        char sep;
        int64_t min, max;
    } rows[] = {
        { '-', 1970, 9999 }, { '-', 1, 12 }, { ' ', 1, 31 }, { ':', 0, 23 }, { ':', 0, 59 }
    };
    int64_t part[5];
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        if (str_to_i64(str_cut(&text, rows[i].sep), &part[i]) < 0) return -EINVAL;
        if (part[i] < rows[i].min || part[i] > rows[i].max) return -EINVAL;
    }
    /* Months have 30 or 31 days; February has 28, or 29 in a leap year. */
    bool leap = part[0] % 4 == 0 && (part[0] % 100 != 0 || part[0] % 400 == 0);
    int64_t days_max = part[1] == 2 ? 28 + leap : 30 + (part[1] + part[1] / 8) % 2;
    if (part[2] > days_max) return -EINVAL;
    double seconds;
    if (str_ends(text, STR("+00:00"))) text.len -= strlen("+00:00");
    if (str_to_f64(text, &seconds) < 0 || seconds < 0 || seconds >= 61) return -EINVAL;
    /* Days since 0000-03-01: years begin in March, so that the leap day is the last. */
    int64_t year = part[0] - (part[1] <= 2), month = (part[1] + 9) % 12;
    int64_t days =
        365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + part[2];
    *ret = ((days * 24 + part[3]) * 60 + part[4]) * 60000000 + (int64_t)(seconds * 1e6 + 0.5);
    return 0;
}

/* Splits a line into parts, trimmed; missing ones are empty. Returns how many there are. */
static uint32_t split(struct str line, struct str ret[AZURE_WIDTH_MAX])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < AZURE_WIDTH_MAX; i++) {
        count += line.len > 0;
        ret[i] = str_trim(str_cut(&line, ','));
    }
    return count;
}

/* Finds the columns by their names, so that another order is not read as this one. */
static int read_azure_names(struct parser *p, struct str line, struct err *err)
{
    struct str part[AZURE_WIDTH_MAX];
    uint32_t count = split(line, part);
    for (uint32_t c = 0; c < AZURE_COLUMNS; c++) {
        uint32_t at = 0;
        while (at < count && !str_eq(part[at], str_from(azure_names[c])))
            at++;
        if (at == count && p->format == TRACE_AUTO)
            return err_set(err, -EINVAL,
                           "not a trace: neither JSON lines, {...} each, nor Azure's CSV with the "
                           "columns " AZURE_NAMES " (%s is missing)",
                           azure_names[c]);
        if (at == count) return err_set(err, -EINVAL, NOT_AZURE ": no column %s", azure_names[c]);
        p->column[c] = at;
    }
    p->width = count;
    return 0;
}

/* Says why column c does not take `part`. */
static int not_taken(uint32_t c, struct str part, struct err *err)
{
    if (part.len == 0) return err_set(err, -EINVAL, "%s is missing", azure_names[c]);
    if (part.len > SHOWN_BYTES) part.len = SHOWN_BYTES;
    return err_set(err, -EINVAL, "%s takes %s, not '" STR_FMT "'", azure_names[c],
                   c == AZURE_WHEN ? "a time such as 2023-11-16 18:15:46.68" : takes[READ_COUNT],
                   STR_ARG(part));
}

static int read_azure(struct parser *p, struct str line, struct err *err)
{
    struct trace_request r = { 0 };
    uint32_t *const value[AZURE_COLUMNS] = { NULL, &r.prompt_tokens, &r.output_tokens };
    struct str part[AZURE_WIDTH_MAX];
    uint32_t count = split(line, part);
    if (count > p->width)
        return err_set(err, -EINVAL, "%u fields, the first line names %u", count, p->width);
    for (uint32_t c = 0; c < AZURE_COLUMNS; c++) {
        struct str text = part[p->column[c]];
        uint64_t v = 0;
        int rc = c == AZURE_WHEN ? read_date(text, &r.at_us) : str_to_u64(text, &v);
        if (rc < 0 || v > UINT32_MAX) return not_taken(c, text, err);
        if (value[c]) *value[c] = (uint32_t)v;
    }
    return add(p, &r, err);
}

static int read_lines(struct parser *p, struct str text, struct err *err)
{
    if (str_starts(text, STR("\xef\xbb\xbf"))) str_cut(&text, '\xbf'); /* of some editors */
    bool azure = p->format == TRACE_AZURE ||
                 (p->format == TRACE_AUTO && text.len > 0 && text.data[0] != '{');
    uint32_t number = 0;
    while (text.len > 0) {
        struct str line = str_cut(&text, '\n');
        number++;
        if (str_ends(line, STR("\r"))) line.len--;
        if (line.len == 0) continue;
        buf_clear(&p->block);
        buf_clear(&p->text);
        p->has_text = false;
        int rc = !azure        ? read_json(p, line, err)
                 : number == 1 ? read_azure_names(p, line, err)
                               : read_azure(p, line, err);
        if (rc < 0) {
            if (err && !err->text[0]) err_set(err, rc, "larger than this program reads");
            return err_prefix(err, rc, "line %u", number);
        }
    }
    if (p->trace->count == 0) return err_set(err, -EINVAL, "no requests in it");
    return 0;
}

int trace_parse(struct str text, enum trace_format format, struct trace **ret, struct err *err)
{
    CLEANUP(trace_freep) struct trace *t = NULL;
    struct err said = { 0 };
    int rc = trace_new(&t, err);
    if (rc < 0) return rc;
    struct parser p = { .trace = t,
                        .format = format,
                        .block = { .max = LINE_BLOCKS_MAX * sizeof(uint64_t) } };
    rc = read_lines(&p, text, &said);
    buf_fini(&p.block);
    buf_fini(&p.text);
    if (rc < 0) return err_set(err, rc, "%s", err_text(&said, rc));
    *ret = TAKE(t);
    return 0;
}

static int link_sessions(struct trace_features *f)
{
    struct map last;
    int rc = 0;
    map_init(&last, sizeof(uint64_t), sizeof(uint64_t), f->trace->count, MAP_OWN);
    for (uint32_t i = 0; rc == 0 && i < f->trace->count; i++) {
        uint64_t session = f->trace->request[i].session;
        if (session == 0) continue;
        uint64_t *at = map_put(&last, &session, NULL);
        if (!at) rc = -ENOMEM;
        if (at && f->trace->request[i].turn > 0) f->previous[i] = (uint32_t)*at;
        if (at) *at = i + 1;
    }
    map_fini(&last);
    return rc;
}

/* Returns the owner of the deepest block of `r` that ended an earlier prompt, or 0. */
static uint32_t owner_of(const struct map *ended, const struct trace *t,
                         const struct trace_request *r)
{
    for (uint32_t b = r->block_count; b-- > 1;) {
        const uint64_t *at = map_get(ended, &t->block[r->block_first + b]);
        if (at) return (uint32_t)*at;
    }
    return 0;
}

static int link_blocks(struct trace_features *f)
{
    const struct trace *t = f->trace;
    struct map ended;
    int rc = 0;
    map_init(&ended, sizeof(uint64_t), sizeof(uint64_t), t->count, MAP_OWN);
    for (uint32_t i = 0; rc == 0 && i < t->count; i++) {
        const struct trace_request *r = &t->request[i];
        uint32_t whole = r->prompt_tokens / t->block_tokens, owner = owner_of(&ended, t, r);
        if (owner && t->request[owner - 1].prompt_tokens < r->prompt_tokens) f->previous[i] = owner;
        if (whole == 0 || whole > r->block_count) continue;
        uint64_t *at = map_put(&ended, &t->block[r->block_first + whole - 1], NULL);
        if (at) *at = i + 1;
        rc = at ? 0 : -ENOMEM;
    }
    map_fini(&ended);
    return rc;
}

static uint32_t have_of(const struct trace_features *f)
{
    uint32_t have = PREDICT_TRUTH;
    for (uint32_t i = 0; i < f->trace->count; i++) {
        const struct trace_request *r = &f->trace->request[i];
        if (r->text_bytes > 0) have |= PREDICT_TEXT;
        if (r->tenant > 0) have |= PREDICT_TENANT;
        if (r->group > 0) have |= PREDICT_GROUP;
        if (f->previous[i] > 0) have |= PREDICT_PREVIOUS;
    }
    return have;
}

int trace_features_new(const struct trace *t, struct trace_features **ret, struct err *err)
{
    CLEANUP(trace_features_freep) struct trace_features *f = calloc(1, sizeof *f);
    if (f) f->previous = calloc(t->count ? t->count : 1, sizeof *f->previous);
    if (!f || !f->previous) return err_set(err, -ENOMEM, "features of %u requests", t->count);
    f->trace = t;
    int rc = 0;
    if (t->has_sessions) {
        rc = link_sessions(f);
    } else if (t->block_tokens > 0 && t->block_count > 0) {
        rc = link_blocks(f);
    }
    if (rc < 0) return err_set(err, rc, "features of %u requests", t->count);
    f->have = have_of(f);
    *ret = TAKE(f);
    return 0;
}

void trace_features_free(struct trace_features *f)
{
    if (!f) return;
    free(f->previous);
    free(f);
}

static uint64_t features_name(uint32_t number, uint64_t seed)
{
    return number ? hash64(&number, sizeof number, seed) : 0;
}

void trace_features_of(const struct trace_features *f, uint32_t request, uint64_t prefix,
                       struct predict_features *ret)
{
    const struct trace_request *r = &f->trace->request[request];
    uint32_t before = f->previous[request];
    struct str text =
        r->text_bytes ? str_of(f->trace->text + r->text_first, r->text_bytes) : (struct str){ 0 };
    *ret = (struct predict_features){
        .tenant = features_name(r->tenant, 1),
        .prefix = prefix ? prefix : features_name(r->group, 2),
        .group = features_name(r->group, 3),
        .ask = text_ask(text),
        .text = text,
        .prompt_tokens = r->prompt_tokens,
        .output_max = r->output_max ? r->output_max : UINT32_MAX,
        .previous_tokens = before ? f->trace->request[before - 1].output_tokens : 0,
        .truth_tokens = r->output_tokens,
    };
}
