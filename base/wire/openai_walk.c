/* openai_walk.c - reads the values of a request's keys: numbers, strings, lists, and their ranges. */
#include "base/wire/openai_walk.h"

int walk_broken(struct openai_walk *p)
{
    const char *problem = p->r.problem ? p->r.problem : "not what belongs here";
    if (p->r.beyond)
        return INVALID(p, p->key, "%s: %s at byte %zu.", p->key ? p->key : "The body", problem,
                       p->r.start);
    return INVALID(p, NULL, "The body is not valid JSON: %s at byte %zu.", problem, p->r.start);
}

int walk_wrong_type(struct openai_walk *p, const char *name, const char *wanted)
{
    if (p->r.token == JSON_ERROR) return walk_broken(p);
    return INVALID(p, name, "%s must be %s.", name, wanted);
}

int walk_no_memory(struct openai_walk *p, const char *name)
{
    return openai_error_set(p->e, -ENOMEM, OPENAI_TOO_LARGE, name,
                            "%s needs more memory than one request may use.", name);
}

int walk_out_of_range(struct openai_walk *p, const struct openai_key *k)
{
    return INVALID(p, k->name, "%s: %.*s is outside %.15g..%.15g.", k->name,
                   (int)min_size(p->r.raw.len, 32), p->r.raw.data, k->min, k->max);
}

int openai_take_f64(struct openai_walk *p, const struct openai_key *k)
{
    double v = 0;
    int rc = json_f64(&p->r, &v);
    if (rc == -EINVAL) return walk_wrong_type(p, k->name, "a number");
    if (rc < 0 || v < k->min || v > k->max) return walk_out_of_range(p, k);
    memcpy((char *)p + k->offset, &v, sizeof v);
    return 0;
}

int walk_whole(struct openai_walk *p, const struct openai_key *k, int64_t *ret)
{
    int64_t v = 0;
    int rc = json_i64(&p->r, &v);
    if (rc == -EINVAL) return walk_wrong_type(p, k->name, "a whole number");
    if (rc < 0 || (double)v < k->min || (double)v > k->max) return walk_out_of_range(p, k);
    *ret = v;
    return 0;
}

/* Reads a uint32_t. A value below zero (top_k: -1) means off, as 0 does. */
int openai_take_u32(struct openai_walk *p, const struct openai_key *k)
{
    int64_t v = 0;
    int rc = walk_whole(p, k, &v);
    if (rc < 0) return rc;
    uint32_t narrow = v < 0 ? 0 : (uint32_t)v;
    memcpy((char *)p + k->offset, &narrow, sizeof narrow);
    return 0;
}

int openai_take_bool(struct openai_walk *p, const struct openai_key *k)
{
    bool v;
    if (json_bool(&p->r, &v) < 0) return walk_wrong_type(p, k->name, "true or false");
    memcpy((char *)p + k->offset, &v, sizeof v);
    return 0;
}

/* Copies the current string, unescaped, into the arena; `name` is for the error sentence. */
int walk_string(struct openai_walk *p, const char *name, double bytes_min, double bytes_max,
                struct str *ret)
{
    struct str text;
    int rc = json_text_arena(&p->r, p->arena, &text);
    if (rc == -ENOMEM) return walk_no_memory(p, name);
    if (rc < 0) return walk_wrong_type(p, name, "a string");
    if ((double)text.len < bytes_min || (double)text.len > bytes_max)
        return INVALID(p, name, "%s: %zu bytes are outside %.15g..%.15g.", name, text.len,
                       bytes_min, bytes_max);
    *ret = text;
    return 0;
}

int openai_take_str(struct openai_walk *p, const struct openai_key *k)
{
    struct str text;
    int rc = walk_string(p, k->name, k->min, k->max, &text);
    if (rc == 0) memcpy((char *)p + k->offset, &text, sizeof text);
    return rc;
}

/* Returns the bytes of a value as they stand in the body; the current token is its first. */
int walk_raw(struct openai_walk *p, struct str *ret)
{
    size_t start = p->r.start;
    if (json_skip_rest(&p->r) == JSON_ERROR) return walk_broken(p);
    *ret = str_of(p->r.text.data + start, p->r.pos - start);
    return 0;
}

int openai_take_nothing(struct openai_walk *p, const struct openai_key *k)
{
    struct str raw, only = str_from(k->only);
    int rc = walk_raw(p, &raw);
    if (rc < 0) return rc;
    while (only.len)
        if (str_eq(raw, str_cut(&only, '|'))) return 0;
    if (k->only) return UNSERVED(p, k->name, "%s is not served; only %s is.", k->name, k->only);
    return UNSERVED(p, k->name, "%s is not served; leave it out.", k->name);
}

/* Counts the items of an array; the current token is its opening bracket. */
int walk_count(struct openai_walk *p, const char *name, uint32_t most, uint32_t *ret)
{
    struct json_reader ahead = p->r;
    uint32_t inside = ahead.depth, count = 0;
    while (json_skip(&ahead) != JSON_ERROR && ahead.depth >= inside)
        if (++count > most) return INVALID(p, name, "%s: more than %u items.", name, most);
    if (ahead.token == JSON_ERROR) {
        p->r = ahead;
        return walk_broken(p);
    }
    *ret = count;
    return 0;
}

int openai_take_stop(struct openai_walk *p, const struct openai_key *k)
{
    uint32_t count = 1;
    bool array = p->r.token == JSON_ARRAY;
    if (!array && p->r.token != JSON_STRING)
        return walk_wrong_type(p, k->name, "a string or an array of strings");
    int rc = array ? walk_count(p, k->name, OPENAI_STOP_MAX, &count) : 0;
    if (rc < 0) return rc;
    struct str *stop = arena_array(p->arena, count, sizeof *stop);
    if (!stop) return walk_no_memory(p, k->name);
    for (uint32_t i = 0; i < count; i++) {
        if (array) json_next(&p->r);
        rc = walk_string(p, k->name, k->min, k->max, &stop[i]);
        if (rc < 0) return rc;
    }
    if (array) json_next(&p->r); /* the closing bracket */
    p->req.stop = stop;
    p->req.stop_count = count;
    return 0;
}

int openai_take_stream_options(struct openai_walk *p, const struct openai_key *k)
{
    if (p->r.token != JSON_OBJECT) return walk_wrong_type(p, k->name, "an object");
    p->has_stream_options = true;
    while (json_next(&p->r) == JSON_KEY) {
        bool wanted = json_key_is(&p->r, "include_usage");
        json_skip(&p->r);
        if (!wanted || p->r.token == JSON_NULL) continue;
        if (json_bool(&p->r, &p->req.include_usage) < 0)
            return walk_wrong_type(p, "stream_options.include_usage", "true or false");
    }
    return p->r.token == JSON_OBJECT_END ? 0 : walk_broken(p);
}

int openai_take_object(struct openai_walk *p, const struct openai_key *k)
{
    struct str raw;
    if (p->r.token != JSON_OBJECT) return walk_wrong_type(p, k->name, "an object");
    int rc = walk_raw(p, &raw);
    if (rc == 0) memcpy((char *)p + k->offset, &raw, sizeof raw);
    return rc;
}
