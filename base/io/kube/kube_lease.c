/* kube_lease.c - reads and writes a Lease as kube_elect says, and tells when leadership begins and ends.
 *
 * A write is a merge patch with the resourceVersion that it was decided on: it fails when the Lease has
 * changed, and it leaves labels and owners alone, which a replacement would have to repeat.
 *
 * Times are read from the clock and not from the loop, whose time is that of the turn's begin: what is seen
 * at the end of a long turn would count as seen earlier than it was written. */
#include "base/io/kube/kube_lease.h"

#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/io/date.h"
#include "base/io/loop/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define PROBLEM_BYTES 512

static const struct kube_resource leases = { "coordination.k8s.io", "v1", "leases", false };

struct kube_lease {
    struct kube_client *client;
    struct loop *loop;
    char ns[KUBE_NS_BYTES], name[KUBE_NAME_BYTES];
    struct kube_elect elect;
    struct kube_call *call;
    struct loop_timer timer;
    struct loop_task task; /* asks the state machine again */
    bool told;             /* the leadership that on_change was told last */
    int64_t told_epoch;
    struct kube_lease_state state;
    char problem[PROBLEM_BYTES];
    bool releasing, has_release;
    struct kube_lease_record release;
    void (*on_released)(void *arg);
    void *released_arg;
    void (*on_change)(void *arg, bool leads, int64_t epoch);
    void *arg;
};

/* ---- the object ---- */

static int read_spec(struct json_reader *r, struct kube_lease_record *ret)
{
    int64_t seconds = 0;
    int rc = 0;
    if (json_next(r) == JSON_NULL) return 0;
    if (r->token != JSON_OBJECT) return -EINVAL;
    while (rc == 0 && json_next(r) == JSON_KEY) {
        int64_t *number = json_key_is(r, "leaseDurationSeconds") ? &seconds
                          : json_key_is(r, "leaseTransitions")   ? &ret->transitions
                                                                 : NULL;
        if (number) {
            if (json_next(r) != JSON_NULL) rc = json_i64(r, number);
        } else if (json_key_is(r, "holderIdentity")) {
            json_next(r);
            rc = kube_text(r, ret->holder, sizeof ret->holder);
        } else {
            json_skip(r);
        }
    }
    ret->lease_us = max_i64(0, min_i64(seconds, KUBE_LEASE_US_MAX / 1000000)) * 1000000;
    return rc == 0 && r->token == JSON_OBJECT_END ? 0 : -EINVAL;
}

static int lease_read(struct str json, struct kube_lease_record *ret, struct err *err)
{
    struct kube_lease_record record = { .exists = true };
    struct kube_meta meta;
    struct json_reader r;
    int rc = kube_meta_read(json, &meta, err);
    if (rc < 0) return rc;
    json_reader_init(&r, json);
    json_next(&r);
    while (rc == 0 && json_next(&r) == JSON_KEY) {
        if (json_key_is(&r, "spec"))
            rc = read_spec(&r, &record);
        else
            json_skip(&r);
    }
    if (rc < 0) return json_fail(&r, err, "the Lease");
    /* Without a version a write would have no condition. */
    if (meta.version[0] == 0) return err_set(err, -EINVAL, "the Lease has no resourceVersion");
    memcpy(record.version, meta.version, sizeof record.version);
    *ret = record;
    return 0;
}

/* Writes the body of a create, or of a patch when the record has a version. `acquired`: the holder changes. */
static void lease_put(const struct kube_lease *l, const struct kube_lease_record *record,
                      bool acquired, struct buf *out)
{
    struct json_writer w;
    char now[DATE_BYTES];
    date_print(clock_wall_us(), now); /* for people: nobody compares it */
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_text(&w, "apiVersion", "coordination.k8s.io/v1");
    json_kv_text(&w, "kind", "Lease");
    json_key(&w, "metadata");
    json_object(&w);
    json_kv_text(&w, "name", l->name);
    json_kv_text(&w, "namespace", l->ns);
    if (record->version[0]) json_kv_text(&w, "resourceVersion", record->version);
    json_object_end(&w);
    json_key(&w, "spec");
    json_object(&w);
    json_kv_text(&w, "holderIdentity", record->holder);
    json_kv_i64(&w, "leaseDurationSeconds", (record->lease_us + 999999) / 1000000);
    json_kv_i64(&w, "leaseTransitions", record->transitions);
    json_kv_text(&w, "renewTime", now);
    if (acquired) json_kv_text(&w, "acquireTime", now);
    json_object_end(&w);
    json_object_end(&w);
}

/* ---- telling ---- */

bool kube_lease_leads(const struct kube_lease *l, int64_t *ret_epoch)
{
    if (!kube_elect_leads(&l->elect, clock_mono_us())) return false;
    if (ret_epoch) *ret_epoch = l->elect.epoch;
    return true;
}

static void tell(struct kube_lease *l)
{
    int64_t epoch = l->told_epoch;
    bool leads = kube_lease_leads(l, &epoch);
    if (leads == l->told && epoch == l->told_epoch) return;
    if (l->told && leads) l->on_change(l->arg, false, l->told_epoch); /* another epoch */
    l->told = leads;
    l->told_epoch = epoch;
    l->on_change(l->arg, leads, epoch);
}

/* ---- acts ---- */

static void failed(struct kube_lease *l, int rc, const char *problem)
{
    l->state.failures++;
    snprintf(l->problem, sizeof l->problem, "%s", problem[0] ? problem : strerror(-rc));
}

static void succeeded(struct kube_lease *l)
{
    l->state.confirmed_us = loop_now_us(l->loop);
    l->problem[0] = 0;
}

static void on_end(void *arg, const struct kube_reply *reply)
{
    struct kube_lease *l = arg;
    struct kube_elect *e = &l->elect;
    struct rng *rng = kube_client_rng(l->client);
    struct kube_lease_record record = { 0 };
    struct err err = { 0 };
    int rc = reply->rc;
    bool reads = e->busy == KUBE_ELECT_READ;
    l->call = NULL;
    bool absent = reads && rc == -ENOENT;
    if (rc == 0) rc = lease_read(reply->body, &record, &err);
    if (absent) rc = 0;
    if (rc < 0)
        failed(l, rc, reply->rc < 0 ? reply->problem : err.text);
    else
        succeeded(l);
    /* A refusal is known not to have been carried out only when nothing about it is unsure. */
    if (!reads && rc < 0 && reply->unsure) rc = -ETIMEDOUT;
    if (reads)
        kube_elect_read(e, rc, &record, clock_mono_us(), rng);
    else
        kube_elect_wrote(e, rc, record.version, clock_mono_us(), rng);
    loop_defer(l->loop, &l->task);
}

static void act(struct kube_lease *l, enum kube_elect_act act)
{
    struct kube_elect *e = &l->elect;
    struct kube_lease_record write = { 0 };
    CLEANUP(buf_fini) struct buf body = { 0 };
    struct err err = { 0 };
    bool acquired = strcmp(e->seen.holder, e->identity) != 0;
    kube_elect_begin(e, act, clock_mono_us(), clock_wall_us(), &write);
    if (act != KUBE_ELECT_READ) lease_put(l, &write, acquired, &body);
    static const enum kube_verb verbs[] = { [KUBE_ELECT_READ] = KUBE_GET,
                                            [KUBE_ELECT_CREATE] = KUBE_CREATE,
                                            [KUBE_ELECT_WRITE] = KUBE_PATCH };
    const struct kube_request req = {
        .verb = verbs[act],
        .resource = &leases,
        .ns = str_from(l->ns),
        .name = str_from(l->name),
        .body = buf_view(&body),
        .urgent = true,
        /* An answer that comes later than two rounds is worth no more than another try. */
        .deadline_us = loop_now_us(l->loop) + 2 * e->config.retry_us,
        .on_end = on_end,
        .arg = l,
    };
    if (act == KUBE_ELECT_READ)
        l->state.reads++;
    else
        l->state.writes++;
    int rc = body.rc < 0 ? body.rc : kube_start(l->client, &req, &l->call, &err);
    if (rc == 0) return;
    failed(l, rc, err.text);
    struct rng *rng = kube_client_rng(l->client);
    if (act == KUBE_ELECT_READ)
        kube_elect_read(e, rc, &write, clock_mono_us(), rng);
    else
        kube_elect_wrote(e, rc, "", clock_mono_us(), rng);
}

static void release(struct kube_lease *l);

static void step(void *arg)
{
    struct kube_lease *l = arg;
    int64_t at_us;
    if (l->releasing) {
        if (!l->call) release(l);
        tell(l);
        return;
    }
    enum kube_elect_act next = kube_elect_next(&l->elect, clock_mono_us(), &at_us);
    if (next != KUBE_ELECT_WAIT) {
        act(l, next);
        kube_elect_next(&l->elect, clock_mono_us(), &at_us);
    }
    if (at_us == INT64_MAX)
        loop_timer_clear(l->loop, &l->timer);
    else if (loop_timer_set(l->loop, &l->timer, at_us) < 0)
        loop_defer(l->loop, &l->task);
    tell(l);
}

/* ---- release ---- */

static void release_end(struct kube_lease *l)
{
    void (*done)(void *) = l->on_released;
    l->on_released = NULL;
    if (done) done(l->released_arg);
}

static void on_release_end(void *arg, const struct kube_reply *reply)
{
    struct kube_lease *l = arg;
    l->call = NULL;
    if (reply->rc < 0)
        failed(l, reply->rc, reply->problem);
    else
        succeeded(l);
    release_end(l);
}

/* Writes the release, once nothing else is under way. */
static void release(struct kube_lease *l)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    struct err err = { 0 };
    if (!l->on_released) return;
    if (!l->has_release) l->has_release = kube_elect_resign(&l->elect, &l->release);
    if (!l->has_release) {
        release_end(l);
        return;
    }
    lease_put(l, &l->release, false, &body);
    const struct kube_request req = {
        .verb = KUBE_PATCH,
        .resource = &leases,
        .ns = str_from(l->ns),
        .name = str_from(l->name),
        .body = buf_view(&body),
        .urgent = true,
        .deadline_us = loop_now_us(l->loop) + 2 * l->elect.config.retry_us,
        .on_end = on_release_end,
        .arg = l,
    };
    l->state.writes++;
    if (body.rc == 0 && kube_start(l->client, &req, &l->call, &err) == 0) return;
    failed(l, body.rc < 0 ? body.rc : -EAGAIN, err.text);
    release_end(l);
}

void kube_lease_release(struct kube_lease *l, void (*on_done)(void *arg), void *arg)
{
    must(!l->releasing);
    l->releasing = true;
    l->on_released = on_done;
    l->released_arg = arg;
    /* Not a leader from here on; a write under way is waited for, so that its version is known. */
    l->has_release = kube_elect_resign(&l->elect, &l->release) && !l->call;
    loop_timer_clear(l->loop, &l->timer);
    loop_defer(l->loop, &l->task);
}

/* ---- life ---- */

int kube_lease_identity(struct str name, char ret[KUBE_HOLDER_BYTES], struct err *err)
{
    uint8_t random[8];
    char hex[2 * sizeof random + 1];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return err_set(err, -EIO, "no random bytes for the identity of this process");
    hex_from(random, sizeof random, hex);
    struct str cut = name.len > 96 ? str_of(name.data, 96) : name;
    snprintf(ret, KUBE_HOLDER_BYTES, STR_FMT "_%s", STR_ARG(cut), hex);
    return 0;
}

int kube_lease_start(struct kube_client *c, const struct kube_lease_request *req,
                     struct kube_lease **ret, struct err *err)
{
    must(req->on_change);
    struct kube_lease *l = calloc(1, sizeof *l);
    if (!l) return err_set(err, -ENOMEM, "no memory for a lease");
    l->client = c;
    l->loop = kube_client_loop(c);
    l->on_change = req->on_change;
    l->arg = req->arg;
    l->timer = (struct loop_timer){ .fn = step, .arg = l };
    l->task = (struct loop_task){ .fn = step, .arg = l };
    int rc = kube_elect_init(&l->elect, &req->times, req->identity, err);
    if (rc == 0 &&
        (req->ns.len >= sizeof l->ns || req->name.len >= sizeof l->name || req->name.len == 0))
        rc = err_set(err, -EINVAL, "a lease needs a name and a namespace");
    if (rc < 0) {
        free(l);
        return rc;
    }
    snprintf(l->ns, sizeof l->ns, STR_FMT, STR_ARG(req->ns));
    snprintf(l->name, sizeof l->name, STR_FMT, STR_ARG(req->name));
    loop_defer(l->loop, &l->task);
    *ret = l;
    return 0;
}

void kube_lease_free(struct kube_lease *l)
{
    if (!l) return;
    if (l->call) kube_cancel(l->call);
    loop_timer_clear(l->loop, &l->timer);
    loop_defer_clear(l->loop, &l->task);
    free(l);
}

void kube_lease_state_get(const struct kube_lease *l, struct kube_lease_state *ret)
{
    *ret = l->state;
    ret->leads = kube_lease_leads(l, NULL);
    ret->epoch = l->elect.epoch;
    snprintf(ret->holder, sizeof ret->holder, "%s", l->elect.seen.holder);
    ret->problem = l->problem;
}
