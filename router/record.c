/* record.c - writes and reads a head, then entries: a fixed part and the part of its kind.
 *
 *     head      magic, version, sizes of the four structs
 *     entry     kind, bytes, decision, time
 *       policy    name, 64 bytes
 *       decision  view without its pointer, request, verdict, instances
 *       event     as told to the policy
 *
 * Structs are written as they lie in memory: a record is read by the build that wrote it, or by one
 * with the same layout, which the sizes in the head make sure of well enough. A policy that is asked
 * again needs every field anyway, and encoding a view of 256 instances field by field would cost more
 * than deciding.
 */
#include "router/record.h"

#include "base/core/bits.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC "mstroute"
#define VERSION 1

struct head {
    char magic[8];
    uint32_t version;
    uint32_t instance_bytes, req_bytes, verdict_bytes, event_bytes;
};

struct fixed {
    uint32_t kind, bytes; /* bytes: of the part that follows */
    uint64_t id;
    int64_t at_us;
};

struct scene {
    uint32_t instance_count, has_load;
    double load, link_bytes_s;
    uint64_t kv_bytes_per_token;
};

struct record {
    FILE *file;
    uint64_t bytes, bytes_max, left_out;
    struct dispatch_watch watch;
};

/* Begins an entry if the whole of it has room; else it is left out: half an entry would end the reading. */
static bool begin(struct record *r, enum record_kind kind, size_t bytes, uint64_t id, int64_t at_us)
{
    struct fixed f = { .kind = kind, .bytes = (uint32_t)bytes, .id = id, .at_us = at_us };
    if (r->bytes + sizeof f + bytes > r->bytes_max) {
        r->left_out++;
        r->bytes_max =
            r->bytes; /* leaves out all later ones, smaller ones too: no gaps before the end */
        return false;
    }
    r->bytes += sizeof f + bytes;
    return fwrite(&f, sizeof f, 1, r->file) == 1;
}

static void on_decided(void *arg, uint64_t id, const struct route_view *view,
                       const struct route_req *req, const struct route_verdict *verdict,
                       int64_t now_us)
{
    struct record *r = arg;
    struct scene s = { .instance_count = view->instance_count,
                       .has_load = view->has_load,
                       .load = view->load,
                       .link_bytes_s = view->link_bytes_s,
                       .kv_bytes_per_token = view->kv_bytes_per_token };
    size_t instances = view->instance_count * sizeof *view->instance;
    size_t bytes = sizeof s + sizeof *req + sizeof *verdict + instances;
    if (!begin(r, RECORD_DECISION, bytes, id, now_us)) return;
    fwrite(&s, sizeof s, 1, r->file);
    fwrite(req, sizeof *req, 1, r->file);
    fwrite(verdict, sizeof *verdict, 1, r->file);
    if (instances > 0) fwrite(view->instance, instances, 1, r->file);
}

static void on_event(void *arg, uint64_t id, const struct route_event *ev)
{
    struct record *r = arg;
    if (begin(r, RECORD_EVENT, sizeof *ev, id, ev->at_us)) fwrite(ev, sizeof *ev, 1, r->file);
}

void record_row(struct record *r, const struct route_policy *policy)
{
    if (!r) return;
    char name[64] = "";
    snprintf(name, sizeof name, "%s", policy->name);
    if (begin(r, RECORD_ROW, sizeof name, 0, 0)) fwrite(name, sizeof name, 1, r->file);
}

int record_open(const char *path, uint64_t bytes_max, const struct route_policy *policy,
                struct record **ret, struct err *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return err_set(err, -errno, "%s: %s", path, strerror(errno));
    struct record *r = calloc(1, sizeof *r);
    FILE *file = r ? fdopen(fd, "w") : NULL;
    if (!file) {
        close(fd);
        free(r);
        return err_set(err, -ENOMEM, "%s: no memory", path);
    }
    *r = (struct record){ .file = file, .bytes_max = bytes_max };
    r->watch = (struct dispatch_watch){ .arg = r, .decided = on_decided, .event = on_event };
    struct head h = { .version = VERSION,
                      .instance_bytes = sizeof(struct route_instance),
                      .req_bytes = sizeof(struct route_req),
                      .verdict_bytes = sizeof(struct route_verdict),
                      .event_bytes = sizeof(struct route_event) };
    memcpy(h.magic, MAGIC, sizeof h.magic);
    r->bytes = sizeof h;
    fwrite(&h, sizeof h, 1, file);
    record_row(r, policy);
    *ret = r;
    return 0;
}

uint64_t record_close(struct record *r)
{
    if (!r) return 0;
    uint64_t left_out = r->left_out;
    fclose(r->file);
    free(r);
    return left_out;
}

const struct dispatch_watch *record_watch(struct record *r)
{
    return &r->watch;
}

/* ---- reading -------------------------------------------------------------------------------- */

static bool take(struct str *from, void *to, size_t bytes)
{
    if (from->len < bytes) return false;
    memcpy(to, from->data, bytes);
    *from = str_of(from->data + bytes, from->len - bytes);
    return true;
}

int record_read_begin(struct record_reader *r, struct str file, struct err *err)
{
    struct head h;
    r->rest = file;
    r->torn = false;
    if (!take(&r->rest, &h, sizeof h) || memcmp(h.magic, MAGIC, sizeof h.magic) != 0) {
        return err_set(err, -EINVAL, "not a record of routing decisions (router.record makes one)");
    }
    if (h.version != VERSION || h.instance_bytes != sizeof(struct route_instance) ||
        h.req_bytes != sizeof(struct route_req) ||
        h.verdict_bytes != sizeof(struct route_verdict) ||
        h.event_bytes != sizeof(struct route_event)) {
        return err_set(err, -EINVAL, "recorded by another version of muster");
    }
    return 0;
}

/* Returns true if the byte is a bool's: a bool or enum of any other value must not be read as one. */
static bool is_bool(const bool *b)
{
    unsigned char byte;
    memcpy(&byte, b, sizeof byte);
    return byte <= 1;
}

static bool is_role(const enum role *role)
{
    unsigned value;
    memcpy(&value, role, sizeof value);
    return value < ROLE_COUNT;
}

/* Returns true if a policy can use the instance. Policies index tables by id and divide by budgets, and
 * the file may come from anywhere. */
static bool instance_is_sound(const struct route_instance *in)
{
    return is_bool(&in->accepts) && is_bool(&in->has_perf) && is_role(&in->role) &&
           in->id < DISPATCH_ENDPOINTS && in->token_budget > 0 && in->seqs_max > 0 &&
           (!in->has_perf || perf_coef_valid(&in->perf));
}

static bool take_decision(struct record_reader *r, struct str *body, struct record_entry *ret)
{
    struct scene s;
    if (!take(body, &s, sizeof s) || !take(body, &ret->req, sizeof ret->req) ||
        !take(body, &ret->verdict, sizeof ret->verdict) || s.instance_count > DISPATCH_ENDPOINTS ||
        ret->req.prompt_tokens == 0 || !is_bool(&ret->verdict.reject)) {
        return false;
    }
    ret->view = (struct route_view){ .instance = r->instance,
                                     .instance_count = s.instance_count,
                                     .has_load = s.has_load != 0,
                                     .load = s.load,
                                     .link_bytes_s = s.link_bytes_s,
                                     .kv_bytes_per_token = (uint32_t)s.kv_bytes_per_token };
    if (!take(body, r->instance, s.instance_count * sizeof *r->instance)) return false;
    for (uint32_t i = 0; i < s.instance_count; i++)
        if (!instance_is_sound(&r->instance[i])) return false;
    return true;
}

static bool event_is_sound(const struct route_event *ev)
{
    return ev->kind < ROUTE_EVENT_COUNT && ev->instance_id < DISPATCH_ENDPOINTS &&
           ev->hit_tokens <= ev->prompt_tokens;
}

int record_read(struct record_reader *r, struct record_entry *ret, struct err *err)
{
    struct fixed f;
    if (r->rest.len == 0) return 0;
    r->torn = !take(&r->rest, &f, sizeof f) || r->rest.len < f.bytes;
    if (r->torn) return 0;
    struct str body = str_of(r->rest.data, f.bytes);
    r->rest = str_of(r->rest.data + f.bytes, r->rest.len - f.bytes);
    ret->id = f.id;
    ret->at_us = f.at_us;
    bool good = f.kind < RECORD_KIND_COUNT;
    if (good) ret->kind = (enum record_kind)f.kind;
    if (f.kind == RECORD_ROW) {
        good = take(&body, ret->row, sizeof ret->row);
        ret->row[sizeof ret->row - 1] = '\0';
    } else if (f.kind == RECORD_DECISION) {
        good = take_decision(r, &body, ret);
    } else if (f.kind == RECORD_EVENT) {
        good = take(&body, &ret->event, sizeof ret->event) && event_is_sound(&ret->event);
    }
    if (good && body.len == 0) return 1;
    return err_set(err, -EINVAL, "damaged at %zu bytes from its end", r->rest.len + f.bytes);
}
