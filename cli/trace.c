/* trace.c - read Mooncake and Azure traces, every line checked. */
#include "cli/trace.h"

#include "base/core/json.h"
#include "base/io/file.h"

#include <stdlib.h>

/* A growing array doubles; the bounds of trace.h end it. */
static int grow(void **array, size_t count, size_t *capacity, size_t item, size_t count_max)
{
    if (count < *capacity) return 0;
    if (count >= count_max) return -E2BIG;
    size_t wanted = *capacity ? 2 * *capacity : 1024;
    void *more = realloc(*array, wanted * item);
    if (!more) return -ENOMEM;
    *array = more;
    *capacity = wanted;
    return 0;
}

struct reading {
    struct trace *trace;
    size_t request_capacity, id_capacity;
    int64_t first_us;
    size_t id_from; /* of the line being read */
};

static int add_id(struct reading *r, uint64_t id)
{
    struct trace *t = r->trace;
    int rc = grow((void **)&t->ids, t->id_count, &r->id_capacity, sizeof *t->ids, TRACE_IDS_MAX);
    if (rc == 0) t->ids[t->id_count++] = id;
    return rc;
}

static int add_request(struct reading *r, struct trace_request request, struct err *err)
{
    struct trace *t = r->trace;
    if (request.input_tokens == 0) return err_set(err, -EINVAL, "a request without input tokens");
    if (t->count == 0) r->first_us = request.at_us;
    request.at_us -= r->first_us;
    if (t->count > 0 && request.at_us < t->request[t->count - 1].at_us) {
        return err_set(err, -EINVAL, "the time goes back");
    }
    request.id_count = (uint32_t)(t->id_count - r->id_from);
    int rc = grow((void **)&t->request, t->count, &r->request_capacity, sizeof *t->request,
                  TRACE_REQUESTS_MAX);
    if (rc < 0) return rc;
    t->request[t->count++] = request;
    return 0;
}

static int read_ids(struct reading *r, struct json_reader *json)
{
    if (json_next(json) != JSON_ARRAY) return -EINVAL;
    while (json_next(json) == JSON_NUMBER) {
        uint64_t id;
        int rc = json_u64(json, &id);
        if (rc == 0) rc = add_id(r, id);
        if (rc < 0) return rc;
    }
    return json->token == JSON_ARRAY_END ? 0 : -EINVAL;
}

static int read_count(struct json_reader *json, uint32_t *ret)
{
    uint64_t v;
    json_next(json);
    int rc = json_u64(json, &v);
    if (rc < 0) return rc;
    if (v > UINT32_MAX) return -ERANGE;
    *ret = (uint32_t)v;
    return 0;
}

static int read_mooncake(struct reading *r, struct str line, struct err *err)
{
    struct json_reader json;
    json_reader_init(&json, line);
    struct trace_request request = { 0 };
    double at_ms = -1;
    int rc = json_next(&json) == JSON_OBJECT ? 0 : -EINVAL;
    while (rc == 0 && json_next(&json) == JSON_KEY) {
        if (json_key_is(&json, "timestamp")) {
            json_next(&json);
            rc = json_f64(&json, &at_ms);
        } else if (json_key_is(&json, "input_length")) {
            rc = read_count(&json, &request.input_tokens);
        } else if (json_key_is(&json, "output_length")) {
            rc = read_count(&json, &request.output_tokens);
        } else if (json_key_is(&json, "hash_ids")) {
            rc = read_ids(r, &json);
        } else {
            json_skip(&json);
        }
    }
    if (rc == 0 && json.token != JSON_OBJECT_END) rc = -EINVAL;
    if (rc == -EINVAL) return json_fail(&json, err, "not a Mooncake record");
    if (rc < 0) return rc;
    if (at_ms < 0 || at_ms > 1e12) return err_set(err, -EINVAL, "timestamp is missing or absurd");
    request.at_us = (int64_t)(at_ms * 1000);
    return add_request(r, request, err);
}

/* Microseconds of "2023-11-16 18:15:46.6805900"; days are counted by the civil calendar. */
static int read_date(struct str text, int64_t *ret)
{
    static const char seps[] = { '-', '-', ' ', ':', ':' };
    int64_t part[5];
    for (size_t i = 0; i < sizeof seps; i++) {
        if (str_to_i64(str_cut(&text, seps[i]), &part[i]) < 0) return -EINVAL;
    }
    double seconds;
    if (str_to_f64(text, &seconds) < 0 || seconds < 0 || seconds >= 61) return -EINVAL;
    if (part[1] < 1 || part[1] > 12) return -EINVAL;
    /* Days since 0000-03-01: years begin in March, so that the leap day is the last. */
    int64_t year = part[0] - (part[1] <= 2), month = (part[1] + 9) % 12;
    int64_t days =
        365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + part[2];
    *ret = ((days * 24 + part[3]) * 60 + part[4]) * 60000000 + (int64_t)(seconds * 1e6);
    return 0;
}

static int read_azure(struct reading *r, struct str line, struct err *err)
{
    struct trace_request request = { 0 };
    struct str rest = line;
    struct str when = str_cut(&rest, ','), in = str_cut(&rest, ','), out = rest;
    uint64_t input, output;
    if (read_date(str_trim(when), &request.at_us) < 0 || str_to_u64(str_trim(in), &input) < 0 ||
        str_to_u64(str_trim(out), &output) < 0 || input > UINT32_MAX || output > UINT32_MAX) {
        return err_set(err, -EINVAL, "not TIMESTAMP,ContextTokens,GeneratedTokens");
    }
    request.input_tokens = (uint32_t)input;
    request.output_tokens = (uint32_t)output;
    return add_request(r, request, err);
}

static int read_lines(struct reading *r, const char *path, struct str text, struct err *err)
{
    bool mooncake = text.len > 0 && text.data[0] == '{';
    uint32_t number = 0;
    while (text.len > 0) {
        struct str line = str_cut(&text, '\n');
        number++;
        if (str_ends(line, STR("\r"))) line.len--;
        if (line.len == 0 || (!mooncake && number == 1)) continue; /* Azure's first line: names */
        r->id_from = r->trace->id_count;
        int rc = mooncake ? read_mooncake(r, line, err) : read_azure(r, line, err);
        if (rc == -E2BIG) err_set(err, rc, "larger than this program reads");
        if (rc < 0) return err_prefix(err, rc, "%s:%u", path, number);
    }
    if (r->trace->count == 0) return err_set(err, -EINVAL, "%s: no requests in it", path);
    return 0;
}

int trace_load(const char *path, struct trace **ret, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { .max = TRACE_FILE_BYTES_MAX };
    int rc = file_read(path, TRACE_FILE_BYTES_MAX, &text, err);
    if (rc < 0) return rc;
    CLEANUP(trace_freep) struct trace *t = calloc(1, sizeof *t);
    if (!t) return err_set(err, -ENOMEM, "%s: no memory", path);

    struct reading reading = { .trace = t };
    rc = read_lines(&reading, path, buf_view(&text), err);
    if (rc < 0) return rc;

    /* Only now do the ids stand still. */
    size_t at = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        if (t->request[i].id_count > 0) t->request[i].ids = &t->ids[at];
        at += t->request[i].id_count;
    }
    *ret = TAKE(t);
    return 0;
}

void trace_free(struct trace *t)
{
    if (!t) return;
    free(t->request);
    free(t->ids);
    free(t);
}
