/* trace_parse.c - Azure's and Mooncake's files and our text traces, every line checked.
 *
 * A line is read whole into one struct before it is appended, so a refused line leaves nothing. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "simulator/trace.h"

#include <stdlib.h>
#include <string.h>

#define LINE_BLOCKS_MAX 1000000 /* of one prompt: 512 million tokens */

const char *const trace_format_names[TRACE_FORMAT_COUNT + 1] = { "auto", "azure", "mooncake",
                                                                 "text" };

enum { AZURE_WHEN, AZURE_PROMPT, AZURE_OUTPUT, AZURE_COLUMNS };
#define AZURE_WIDTH_MAX 16 /* columns of a file, of which three are read */
#define AZURE_NAMES "TIMESTAMP,ContextTokens,GeneratedTokens"
#define NOT_AZURE "not " AZURE_NAMES

struct parser {
    struct trace *trace;
    enum trace_format format;
    struct buf block; /* of this line, 8 bytes each */
    struct buf text;  /* of this line */
    bool has_text;
    int64_t first_us;
    uint32_t column[AZURE_COLUMNS]; /* where the header has them */
};

static int add(struct parser *p, struct trace_request *r, struct err *err)
{
    if (p->trace->count == 0) p->first_us = r->at_us;
    if (r->at_us < p->first_us) return err_set(err, -EINVAL, "the time goes back");
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

/* The value behind the current key. */
static int read_member(struct parser *p, struct json_reader *json, struct trace_request *r,
                       double *at_ms)
{
    const struct {
        const char *name;
        uint32_t *value;
    } counts[] = {
        { "input_length", &r->prompt_tokens },
        { "output_length", &r->output_tokens },
        { "output_max", &r->output_max },
        { "tenant", &r->tenant },
        { "service", &r->service },
        { "session", &r->session },
        { "turn", &r->turn },
        { "group", &r->group },
    };
    if (json_key_is(json, "timestamp")) {
        json_next(json);
        return json_f64(json, at_ms);
    }
    if (json_key_is(json, "hash_ids")) return read_ids(p, json);
    if (json_key_is(json, "prompt") && p->format != TRACE_MOONCAKE) return read_text(p, json);
    for (size_t i = 0; i < COUNT_OF(counts); i++)
        if (json_key_is(json, counts[i].name)) return read_u32(json, counts[i].value);
    json_skip(json);
    return 0;
}

static int read_json(struct parser *p, struct str line, struct err *err)
{
    struct json_reader json;
    json_reader_init(&json, line);
    struct trace_request r = { 0 };
    double at_ms = -1;
    int rc = json_next(&json) == JSON_OBJECT ? 0 : -EINVAL;
    while (rc == 0 && json_next(&json) == JSON_KEY)
        rc = read_member(p, &json, &r, &at_ms);
    if (rc == 0 && (json.token != JSON_OBJECT_END || json_next(&json) != JSON_END)) rc = -EINVAL;
    if (rc == -EINVAL) {
        return json_fail(&json, err,
                         p->format == TRACE_TEXT ? "not a text record" : "not a Mooncake record");
    }
    if (rc == -ERANGE) return err_set(err, -EINVAL, "a number is out of range");
    if (rc < 0) return rc;
    if (p->format == TRACE_AUTO) p->format = p->has_text ? TRACE_TEXT : TRACE_MOONCAKE;
    if (p->format == TRACE_TEXT && !p->has_text) return err_set(err, -EINVAL, "no prompt");
    if (at_ms < 0 || at_ms > 1e12) return err_set(err, -EINVAL, "timestamp is missing or absurd");
    r.at_us = (int64_t)(at_ms * 1000);
    return add(p, &r, err);
}

/* Microseconds of "2023-11-16 18:15:46.6805900"; days are counted by the civil calendar. */
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

/* The parts of a line, trimmed; those that it does not have are empty. */
static uint32_t split(struct str line, struct str ret[AZURE_WIDTH_MAX])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < AZURE_WIDTH_MAX; i++) {
        count += line.len > 0;
        ret[i] = str_trim(str_cut(&line, ','));
    }
    return count;
}

/* Columns go by their names, so that another order is not read as this one. */
static int read_azure_names(struct parser *p, struct str line, struct err *err)
{
    static const char *const names[AZURE_COLUMNS] = { "TIMESTAMP", "ContextTokens",
                                                      "GeneratedTokens" };
    struct str part[AZURE_WIDTH_MAX];
    uint32_t count = split(line, part);
    for (uint32_t c = 0; c < AZURE_COLUMNS; c++) {
        uint32_t at = 0;
        while (at < count && !str_eq(part[at], str_from(names[c])))
            at++;
        if (at == count && p->format == TRACE_AUTO)
            return err_set(err, -EINVAL,
                           "not a trace: neither JSON lines, {...} each, nor Azure's CSV with the "
                           "columns " AZURE_NAMES " (%s is missing)",
                           names[c]);
        if (at == count) return err_set(err, -EINVAL, NOT_AZURE ": no column %s", names[c]);
        p->column[c] = at;
    }
    return 0;
}

static int read_azure(struct parser *p, struct str line, struct err *err)
{
    struct trace_request r = { 0 };
    struct str part[AZURE_WIDTH_MAX];
    uint64_t prompt, output;
    split(line, part);
    if (read_date(part[p->column[AZURE_WHEN]], &r.at_us) < 0 ||
        str_to_u64(part[p->column[AZURE_PROMPT]], &prompt) < 0 ||
        str_to_u64(part[p->column[AZURE_OUTPUT]], &output) < 0 || prompt > UINT32_MAX ||
        output > UINT32_MAX) {
        return err_set(err, -EINVAL, NOT_AZURE);
    }
    r.prompt_tokens = (uint32_t)prompt;
    r.output_tokens = (uint32_t)output;
    return add(p, &r, err);
}

static int read_lines(struct parser *p, struct str text, struct err *err)
{
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
