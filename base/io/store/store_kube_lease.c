/* store_kube_lease.c - reads and writes the Lease of store_kube.c.
 *
 *     annotations  muster.dev/lease:  "1 EPOCH BEAT HELD TERM_US HOLDER ADDRESS LIFE COMPLETE"
 *                  muster.dev/writes: for each object of the store, how often it was written
 *
 * Holder, times and transitions in its spec are for people and their tools; the store reads its annotations. */
#include "base/io/store/store_kube_lease.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/date.h"
#include "base/io/loop/clock.h"

#include <inttypes.h>
#include <stdio.h>

#define FORMAT "1"
#define LEASE_NOTE "muster.dev/lease"
#define WRITES_NOTE "muster.dev/writes"
#define LEASE_NOTE_BYTES (STORE_ADDRESS_BYTES + 192)
#define WRITES_NOTE_BYTES (LEASE_OBJECTS * 21 + 1)

/* ---- reading ---- */

static bool cut_number(struct str *rest, uint64_t *ret)
{
    return str_to_u64(str_cut(rest, ' '), ret) == 0;
}

static bool cut_name(struct str *rest, char *to, size_t size)
{
    struct str word = str_cut(rest, ' ');
    if (word.len == 0 || word.len >= size) return false;
    memcpy(to, word.data, word.len);
    to[word.len] = 0;
    if (strcmp(to, "-") == 0) to[0] = 0;
    return true;
}

static int read_note(struct str text, struct lease_object *ret)
{
    struct str rest = text;
    uint64_t held, term_us, complete;
    struct store_lease *l = &ret->is;
    bool good = str_eq(str_cut(&rest, ' '), STR(FORMAT)) && cut_number(&rest, &l->epoch) &&
                cut_number(&rest, &l->beat) && cut_number(&rest, &held) &&
                cut_number(&rest, &term_us) && term_us < INT64_MAX &&
                cut_name(&rest, l->holder, sizeof l->holder) &&
                cut_name(&rest, l->address, sizeof l->address) &&
                cut_name(&rest, ret->life, sizeof ret->life) && cut_number(&rest, &complete);
    if (!good) return -EILSEQ;
    l->held = held != 0;
    l->term_us = (int64_t)term_us;
    ret->complete = complete != 0;
    return 0;
}

static int read_writes(struct str text, struct lease_object *ret)
{
    struct str rest = text;
    for (uint32_t s = 0; s < LEASE_OBJECTS; s++)
        if (!cut_number(&rest, &ret->writes[s])) return -EILSEQ;
    return 0;
}

static int read_notes(struct json_reader *r, struct lease_object *ret)
{
    int rc = 0;
    if (json_next(r) != JSON_OBJECT) return r->token == JSON_NULL ? 0 : -EILSEQ;
    while (rc == 0 && json_next(r) == JSON_KEY) {
        CLEANUP(buf_fini) struct buf text = { 0 };
        bool lease = json_key_is(r, LEASE_NOTE), writes = json_key_is(r, WRITES_NOTE);
        if (!lease && !writes) {
            json_skip(r);
            continue;
        }
        json_next(r);
        rc = json_text(r, &text);
        if (rc == 0)
            rc = lease ? read_note(buf_view(&text), ret) : read_writes(buf_view(&text), ret);
    }
    return rc < 0 || r->token != JSON_OBJECT_END ? -EILSEQ : 0;
}

static int read_spec(struct json_reader *r, struct lease_object *ret, bool *is_others)
{
    char holder[KUBE_NAME_BYTES] = "";
    int rc = 0;
    if (json_next(r) != JSON_OBJECT) return r->token == JSON_NULL ? 0 : -EILSEQ;
    while (rc == 0 && json_next(r) == JSON_KEY) {
        bool transitions = json_key_is(r, "leaseTransitions");
        if (!transitions && !json_key_is(r, "holderIdentity")) {
            json_skip(r);
            continue;
        }
        if (json_next(r) == JSON_NULL) continue;
        rc = transitions ? json_i64(r, &ret->transitions) : kube_text(r, holder, sizeof holder);
    }
    *is_others = holder[0] != 0;
    return rc < 0 || r->token != JSON_OBJECT_END ? -EILSEQ : 0;
}

static int read_fields(struct str object, struct lease_object *ret, bool *is_others)
{
    struct json_reader r;
    int rc = 0;
    json_reader_init(&r, object);
    if (json_next(&r) != JSON_OBJECT) return -EILSEQ;
    while (rc == 0 && json_next(&r) == JSON_KEY) {
        if (json_key_is(&r, "spec")) {
            rc = read_spec(&r, ret, is_others);
        } else if (json_key_is(&r, "metadata") && json_next(&r) == JSON_OBJECT) {
            while (rc == 0 && json_next(&r) == JSON_KEY) {
                if (json_key_is(&r, "annotations"))
                    rc = read_notes(&r, ret);
                else
                    json_skip(&r);
            }
        } else {
            json_skip(&r);
        }
    }
    return rc < 0 || r.token != JSON_OBJECT_END ? -EILSEQ : 0;
}

int lease_object_read(const char *name, struct str object, struct lease_object *ret,
                      struct err *err)
{
    struct lease_object l = { .exists = true };
    struct kube_meta meta;
    bool is_others = false;
    int rc = kube_meta_read(object, &meta, err);
    if (rc < 0) return rc;
    if (read_fields(object, &l, &is_others) < 0)
        return err_set(err, -EILSEQ,
                       "store: Lease %s-store cannot be read, or is of another release", name);
    if (l.is.epoch == 0 && is_others)
        return err_set(err, -EILSEQ, "store: Lease %s-store belongs to another program", name);
    memcpy(l.version, meta.version, sizeof l.version);
    *ret = l;
    return 0;
}

/* ---- writing ---- */

static void put_notes(const struct lease_object *l, struct json_writer *w)
{
    char note[LEASE_NOTE_BYTES], writes[WRITES_NOTE_BYTES];
    size_t at = 0;
    snprintf(note, sizeof note, FORMAT " %" PRIu64 " %" PRIu64 " %d %lld %s %s %s %d", l->is.epoch,
             l->is.beat, l->is.held, (long long)l->is.term_us, l->is.holder,
             l->is.address[0] ? l->is.address : "-", l->life[0] ? l->life : "-", l->complete);
    for (uint32_t s = 0; s < LEASE_OBJECTS; s++)
        at += (size_t)snprintf(writes + at, sizeof writes - at, "%s%" PRIu64, s ? " " : "",
                               l->writes[s]);
    json_key(w, "annotations");
    json_object(w);
    json_kv_text(w, LEASE_NOTE, note);
    json_kv_text(w, WRITES_NOTE, writes);
    json_object_end(w);
}

void lease_object_print(const struct lease_object *l, const char *name, bool acquired,
                        struct buf *out)
{
    struct json_writer w;
    char now[DATE_BYTES];
    date_print(clock_wall_us(), now);
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_text(&w, "apiVersion", "coordination.k8s.io/v1");
    json_kv_text(&w, "kind", "Lease");
    json_key(&w, "metadata");
    json_object(&w);
    json_kv_text(&w, "name", name);
    if (l->version[0]) {
        json_kv_text(&w, "resourceVersion", l->version);
    } else {
        json_key(&w, "labels");
        json_object(&w);
        json_kv_text(&w, "app.kubernetes.io/name", "muster");
        json_kv_text(&w, "app.kubernetes.io/component", "store");
        json_object_end(&w);
    }
    put_notes(l, &w);
    json_object_end(&w);
    json_key(&w, "spec");
    json_object(&w);
    json_kv_text(&w, "holderIdentity", l->is.held ? l->is.holder : "");
    json_kv_i64(&w, "leaseDurationSeconds", max_i64((l->is.term_us + 999999) / 1000000, 1));
    json_kv_i64(&w, "leaseTransitions", l->transitions);
    json_kv_text(&w, "renewTime", now);
    if (acquired) json_kv_text(&w, "acquireTime", now);
    json_object_end(&w);
    json_object_end(&w);
}
