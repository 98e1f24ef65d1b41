/* fake_gce_answer.c - writes replies of the fake of Google Compute Engine. */
#include "tests/fakes/cloud/fake_gce_answer.h"

#include "base/core/own.h"
#include "base/io/date.h"
#include "tests/fakes/cloud/fake_answer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define API "https://compute.googleapis.com/compute/v1/projects/"

/* ---- errors ---- */

void fake_gce_refuse(struct gce_answer *a, int status, const char *reason, const char *message)
{
    struct json_writer w;
    buf_clear(&a->body);
    json_writer_init(&w, &a->body);
    json_object(&w);
    json_key(&w, "error");
    json_object(&w);
    json_kv_i64(&w, "code", status);
    json_kv_text(&w, "message", message);
    json_key(&w, "errors");
    json_array(&w);
    json_object(&w);
    json_kv_text(&w, "message", message);
    json_kv_text(&w, "domain", "global");
    json_kv_text(&w, "reason", reason);
    json_object_end(&w);
    json_array_end(&w);
    json_object_end(&w);
    json_object_end(&w);
    a->status = status;
}

void fake_gce_refuse_form(struct gce_answer *a, const char *why)
{
    fake_fleet_bad_form(a->fleet, STR_FMT " " STR_FMT ": %s", STR_ARG(a->ask->method),
                        STR_ARG(a->at.path), why);
    fake_gce_refuse(a, 400, "invalid", why);
}

/* Answers what the fault stands for in this API; false: it is none of those. */
bool fake_gce_refuse_fault(struct gce_answer *a)
{
    static const struct fake_words words[] = {
        { FLEET_QUOTA, 403, "quotaExceeded", "Quota 'CPUS' exceeded.  Limit: 24.0 in region r." },
        { FLEET_AUTH, 401, "authError", "Invalid Credentials" },
        { FLEET_FORBIDDEN, 403, "forbidden", "Required permission is missing" },
        { FLEET_INVALID, 400, "invalid", "Invalid value for field 'resource.machineType'" },
        { FLEET_SERVER_ERROR, 503, "backendError", "Backend Error" },
        { FLEET_UNKNOWN_CODE, 409, "newKindOfError", "words that are in no table" },
        { 0 },
    };
    const struct fake_words *w = fake_words_of(words, a->row);
    if (w) {
        fake_gce_refuse(a, w->status, w->code, w->message);
        return true;
    }
    if (!a->row || a->row->fault != FLEET_THROTTLE) return false;
    a->retry_after_us = a->row->delay_us; /* the one form has the header, the other has not */
    fake_gce_refuse(a, a->row->delay_us > 0 ? 429 : 403, "rateLimitExceeded",
                    "Rate Limit Exceeded");
    return true;
}

/* Notes that a request needs a right, and refuses it without. */
bool fake_gce_lacks(struct gce_answer *a, enum fake_gce_permission p)
{
    char why[128];
    a->g->needed |= 1u << p;
    if (!(a->g->denied >> p & 1)) return false;
    snprintf(why, sizeof why, "Required '%s' permission", fake_gce_permissions[p]);
    fake_gce_refuse(a, 403, "forbidden", why);
    return true;
}

/* ---- objects ---- */

static void put_time(struct json_writer *w, const struct gce_answer *a, const char *key, int64_t us)
{
    char text[DATE_BYTES];
    date_print(us + a->g->date_us, text);
    json_kv_text(w, key, text);
}

void fake_gce_put_url(struct json_writer *w, const struct gce_answer *a, const char *key,
                      const char *format, ...)
{
    CLEANUP(buf_fini) struct buf url = { 0 };
    va_list ap;
    buf_printf(&url, API "%s/", a->g->project);
    va_start(ap, format);
    buf_vprintf(&url, format, ap);
    va_end(ap);
    json_kv_str(w, key, buf_view(&url));
}

static const char *status_of(const struct gce_answer *a, const struct fleet_machine *m)
{
    if (m->notice_us > 0 && a->now_us >= m->notice_us) return "STOPPING";
    int64_t at_us = a->now_us - a->fleet->config.lag_us;
    if (fleet_is_stopped(m, at_us))
        return at_us < m->stopped_us + a->g->operation_us ? "STOPPING" : "TERMINATED";
    if (a->now_us < m->made_us + a->g->operation_us) return "PROVISIONING";
    return a->now_us < m->ready_us ? "STAGING" : "RUNNING";
}

/* True if a mask of members names this one, at whatever level; an empty mask names all. */
bool fake_gce_asks_for(struct str fields, const char *member)
{
    return fields.len == 0 || str_find(fields, str_from(member)) != SIZE_MAX;
}

void fake_gce_put_instance(struct json_writer *w, const struct gce_answer *a,
                           const struct fleet_machine *m, struct str fields)
{
    char id[24];
    json_object(w);
    snprintf(id, sizeof id, "%" PRIu64, m->id);
    if (fake_gce_asks_for(fields, "kind")) json_kv_text(w, "kind", "compute#instance");
    if (fake_gce_asks_for(fields, "id")) json_kv_text(w, "id", id);
    if (fake_gce_asks_for(fields, "name")) json_kv_text(w, "name", m->name);
    if (fake_gce_asks_for(fields, "zone")) fake_gce_put_url(w, a, "zone", "zones/%s", m->zone);
    if (fake_gce_asks_for(fields, "machineType"))
        fake_gce_put_url(w, a, "machineType", "zones/%s/machineTypes/%s", m->zone, m->type);
    if (fake_gce_asks_for(fields, "selfLink"))
        fake_gce_put_url(w, a, "selfLink", "zones/%s/instances/%s", m->zone, m->name);
    if (fake_gce_asks_for(fields, "status")) json_kv_text(w, "status", status_of(a, m));
    if (fake_gce_asks_for(fields, "creationTimestamp"))
        put_time(w, a, "creationTimestamp", m->made_us);
    if (!fake_gce_asks_for(fields, "labels")) {
        json_object_end(w);
        return;
    }
    json_key(w, "labels");
    json_object(w);
    for (uint32_t i = 0; i < m->tag_count; i++)
        json_kv_text(w, m->tag[i].name, m->tag[i].value);
    json_object_end(w);
    json_object_end(w);
}

static void put_failure(struct json_writer *w, const struct fake_gce_operation *o)
{
    json_kv_i64(w, "httpErrorStatusCode", 503);
    json_kv_text(w, "httpErrorMessage", "SERVICE UNAVAILABLE");
    json_key(w, "error");
    json_object(w);
    json_key(w, "errors");
    json_array(w);
    json_object(w);
    json_kv_text(w, "code", o->code);
    json_kv_text(w, "message", "the operation's own words");
    json_object_end(w);
    json_array_end(w);
    json_object_end(w);
}

void fake_gce_put_operation(struct gce_answer *a, const struct fake_gce_operation *o)
{
    struct json_writer w;
    char text[40];
    bool done = a->now_us >= o->done_us;
    size_t index = (size_t)(o - a->g->operation);
    json_writer_init(&w, &a->body);
    json_object(&w);
    json_kv_text(&w, "kind", "compute#operation");
    snprintf(text, sizeof text, "%zu", 7000000 + index);
    json_kv_text(&w, "id", text);
    snprintf(text, sizeof text, "operation-%zu", index);
    json_kv_text(&w, "name", text);
    fake_gce_put_url(&w, a, "zone", "zones/%s", o->zone);
    fake_gce_put_url(&w, a, "selfLink", "zones/%s/operations/%s", o->zone, text);
    fake_gce_put_url(&w, a, "targetLink", "zones/%s/instances/%s", o->zone, o->name);
    json_kv_text(&w, "operationType", o->type);
    json_kv_text(&w, "user", FAKE_GCE_ACCOUNT);
    json_kv_text(&w, "status", done ? "DONE" : "RUNNING");
    json_kv_i64(&w, "progress", done ? 100 : 0);
    put_time(&w, a, "insertTime", o->from_us);
    put_time(&w, a, "startTime", o->from_us);
    if (done) put_time(&w, a, "endTime", o->done_us);
    if (done && o->code) put_failure(&w, o);
    if (o->made_in && done && !a->g->mute_bulk) {
        char location[FLEET_TEXT + 8];
        snprintf(location, sizeof location, "zones/%s", o->made_in);
        json_key(&w, "instancesBulkInsertOperationMetadata");
        json_object(&w);
        json_key(&w, "perLocationStatus");
        json_object(&w);
        json_key(&w, location);
        json_object(&w);
        json_kv_text(&w, "status", "DONE");
        json_kv_i64(&w, "targetVmCount", 1);
        json_kv_i64(&w, "createdVmCount", 1);
        json_object_end(&w);
        json_object_end(&w);
        json_object_end(&w);
    }
    json_object_end(&w);
    a->status = 200;
}

struct fake_gce_operation *fake_gce_operate(struct gce_answer *a, const char *type,
                                            const char *zone, const char *name)
{
    struct fake_gce *g = a->g;
    must(g->operation_count < FAKE_GCE_OPERATIONS_MAX);
    struct fake_gce_operation *o = &g->operation[g->operation_count++];
    *o = (struct fake_gce_operation){ .type = type,
                                      .from_us = a->now_us,
                                      .done_us = a->now_us + g->operation_us };
    snprintf(o->zone, sizeof o->zone, "%s", zone);
    snprintf(o->name, sizeof o->name, "%s", name);
    return o;
}
