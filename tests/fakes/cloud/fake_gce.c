/* fake_gce.c - speaks the API of Google Compute Engine over a fake fleet.
 *
 * Written from the reference of the API (revision 20261106 of its discovery document): the members of an instance,
 * patterns of names, parameters of methods, the form of operations and errors; and from "Spot VMs", "About GPUs",
 * "Label requirements" of its documentation. What an instance's object has beyond what clients read is left out. */
#include "tests/fakes/cloud/fake_gce.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/date.h"
#include "tests/fakes/cloud/fake_answer.h"
#include "tests/fakes/cloud/fake_form.h"
#include "tests/fakes/cloud/fake_gce_form.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API "https://compute.googleapis.com/compute/v1/projects/"
#define PAGE_MAX 500
#define RESULT_MAX 1024

const char *const fake_gce_permissions[GCE_PERMISSION_COUNT] = {
    [GCE_CREATE] = "compute.instances.create",
    [GCE_DISK] = "compute.disks.create",
    [GCE_SUBNET] = "compute.subnetworks.use",
    [GCE_ADDRESS] = "compute.subnetworks.useExternalIp",
    [GCE_METADATA] = "compute.instances.setMetadata",
    [GCE_LABELS] = "compute.instances.setLabels",
    [GCE_TAGS] = "compute.instances.setTags",
    [GCE_ACCOUNT] = "compute.instances.setServiceAccount",
    [GCE_IMAGE] = "compute.images.useReadOnly",
    [GCE_GET] = "compute.instances.get",
    [GCE_LIST] = "compute.instances.list",
    [GCE_DELETE] = "compute.instances.delete",
    [GCE_OPERATION] = "compute.zoneOperations.get",
    [GCE_BULK] = "compute.instances.create",
    [GCE_REGION_OPERATION] = "compute.regionOperations.get",
    [GCE_RESERVATION] = "compute.reservations.get",
};

/* What one request is answered with. */
struct answer {
    struct fake_gce *g;
    struct fake_fleet *fleet;
    const struct web_ask *ask;
    struct form_target at;
    struct arena *arena;
    int64_t now_us;
    int status;
    struct buf body;
    int64_t retry_after_us;
    const struct fleet_row *row; /* the fault that applies */
};

/* ---- errors ---- */

static void refuse(struct answer *a, int status, const char *reason, const char *message)
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

static void refuse_form(struct answer *a, const char *why)
{
    fake_fleet_bad_form(a->fleet, STR_FMT " " STR_FMT ": %s", STR_ARG(a->ask->method),
                        STR_ARG(a->at.path), why);
    refuse(a, 400, "invalid", why);
}

/* Answers what the fault stands for in this API; false: it is none of those. */
static bool refuse_fault(struct answer *a)
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
        refuse(a, w->status, w->code, w->message);
        return true;
    }
    if (!a->row || a->row->fault != FLEET_THROTTLE) return false;
    a->retry_after_us = a->row->delay_us; /* the one form has the header, the other has not */
    refuse(a, a->row->delay_us > 0 ? 429 : 403, "rateLimitExceeded", "Rate Limit Exceeded");
    return true;
}

/* Notes that a request needs a right, and refuses it without. */
static bool lacks(struct answer *a, enum fake_gce_permission p)
{
    char why[128];
    a->g->needed |= 1u << p;
    if (!(a->g->denied >> p & 1)) return false;
    snprintf(why, sizeof why, "Required '%s' permission", fake_gce_permissions[p]);
    refuse(a, 403, "forbidden", why);
    return true;
}

/* ---- objects ---- */

static void put_time(struct json_writer *w, const struct answer *a, const char *key, int64_t us)
{
    char text[DATE_BYTES];
    date_print(us + a->g->date_us, text);
    json_kv_text(w, key, text);
}

static void put_url(struct json_writer *w, const struct answer *a, const char *key,
                    const char *format, ...) __attribute__((format(printf, 4, 5)));

static void put_url(struct json_writer *w, const struct answer *a, const char *key,
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

static const char *status_of(const struct answer *a, const struct fleet_machine *m)
{
    if (m->notice_us > 0 && a->now_us >= m->notice_us) return "STOPPING";
    if (a->now_us < m->made_us + a->g->operation_us) return "PROVISIONING";
    return a->now_us < m->ready_us ? "STAGING" : "RUNNING";
}

/* True if a mask of members names this one, at whatever level; an empty mask names all. */
static bool asks_for(struct str fields, const char *member)
{
    return fields.len == 0 || str_find(fields, str_from(member)) != SIZE_MAX;
}

static void put_instance(struct json_writer *w, const struct answer *a,
                         const struct fleet_machine *m, struct str fields)
{
    char id[24];
    json_object(w);
    snprintf(id, sizeof id, "%" PRIu64, m->id);
    if (asks_for(fields, "kind")) json_kv_text(w, "kind", "compute#instance");
    if (asks_for(fields, "id")) json_kv_text(w, "id", id);
    if (asks_for(fields, "name")) json_kv_text(w, "name", m->name);
    if (asks_for(fields, "zone")) put_url(w, a, "zone", "zones/%s", m->zone);
    if (asks_for(fields, "machineType"))
        put_url(w, a, "machineType", "zones/%s/machineTypes/%s", m->zone, m->type);
    if (asks_for(fields, "selfLink"))
        put_url(w, a, "selfLink", "zones/%s/instances/%s", m->zone, m->name);
    if (asks_for(fields, "status")) json_kv_text(w, "status", status_of(a, m));
    if (asks_for(fields, "creationTimestamp")) put_time(w, a, "creationTimestamp", m->made_us);
    if (!asks_for(fields, "labels")) {
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

static void put_operation(struct answer *a, const struct fake_gce_operation *o)
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
    put_url(&w, a, "zone", "zones/%s", o->zone);
    put_url(&w, a, "selfLink", "zones/%s/operations/%s", o->zone, text);
    put_url(&w, a, "targetLink", "zones/%s/instances/%s", o->zone, o->name);
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

static struct fake_gce_operation *operate(struct answer *a, const char *type, const char *zone,
                                          const char *name)
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

/* ---- create ---- */

static struct fleet_machine *named(const struct answer *a, const char *zone, const char *name)
{
    for (uint32_t i = 0; i < a->fleet->count; i++) {
        struct fleet_machine *m = &a->fleet->machine[i];
        bool there = m->made_us <= a->now_us && (m->removed_us == 0 || m->removed_us > a->now_us);
        if (there && strcmp(m->name, name) == 0 && strcmp(m->zone, zone) == 0) return m;
    }
    return NULL;
}

/* Of a request that got stuck on its way nothing comes any more: its request id, or its name, is taken. */
static void end_late(const struct answer *a, const char *zone, const char *name)
{
    for (uint32_t i = 0; i < a->fleet->count; i++) {
        struct fleet_machine *m = &a->fleet->machine[i];
        if (m->made_us > a->now_us && strcmp(m->name, name) == 0 && strcmp(m->zone, zone) == 0)
            m->removed_us = m->made_us;
    }
}

static const struct fake_gce_operation *of_request(const struct answer *a, struct str id)
{
    for (uint32_t i = 0; i < a->g->operation_count && id.len > 0 && !a->g->forgets_ids; i++) {
        const struct fake_gce_operation *o = &a->g->operation[i];
        if (a->now_us >= o->from_us && str_eq(str_from(o->request_id), id)) return o;
    }
    return NULL;
}

static const char *operation_code(enum fleet_fault fault)
{
    switch ((int)fault) {
    case FLEET_STOCK_OUT:
        return "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS";
    case FLEET_QUOTA:
        return "QUOTA_EXCEEDED";
    default:
        return fault == FLEET_FINE ? NULL : "INVALID_FIELD_VALUE";
    }
}

/* Carries out an insert that the API has understood. */
static void insert(struct answer *a, const struct fleet_order *order, struct str request_id)
{
    enum fleet_fault fault = a->row ? a->row->fault : FLEET_FINE, made = FLEET_FINE;
    int64_t late_us = fault == FLEET_LATE_SUCCESS ? a->row->delay_us : 0;
    struct fleet_machine *m = NULL;
    if (fault == FLEET_LOST_REQUEST || fault == FLEET_UNREACHABLE) return;
    if (named(a, order->zone, order->name)) {
        refuse(a, 409, "alreadyExists", "The resource already exists");
        return;
    }
    end_late(a, order->zone, order->name);
    const char *code = fault == FLEET_STOCK_OUT ? operation_code(fault) : a->g->failure;
    if (!code) {
        made = fake_fleet_create(a->fleet, order, late_us,
                                 fault == FLEET_SLOW_BOOT ? a->row->delay_us : 0, a->now_us, &m);
        code = operation_code(made);
    }
    struct fake_gce_operation *o = operate(a, "insert", order->zone, order->name);
    snprintf(o->request_id, sizeof o->request_id, STR_FMT, STR_ARG(request_id));
    o->code = code;
    o->machine = m ? m->id : 0;
    o->from_us += late_us;
    o->done_us += late_us;
    put_operation(a, o);
}

static bool lacks_for_insert(struct answer *a, const struct gce_form *f)
{
    return lacks(a, GCE_CREATE) || lacks(a, GCE_DISK) || lacks(a, GCE_SUBNET) ||
           (f->has_address && lacks(a, GCE_ADDRESS)) ||
           (f->has_metadata && lacks(a, GCE_METADATA)) ||
           (f->order.tag_count > 0 && lacks(a, GCE_LABELS)) ||
           (f->has_tags && lacks(a, GCE_TAGS)) || (f->has_account && lacks(a, GCE_ACCOUNT)) ||
           (f->own_image && lacks(a, GCE_IMAGE));
}

static void insert_instance(struct answer *a, const char *zone)
{
    static const char *const parameters[] = { "requestId", "$alt", "alt", NULL };
    struct gce_form f = { .project = a->g->project, .zone = zone };
    char why[FORM_WHY_BYTES];
    struct str id = form_query(a->arena, a->at.query, "requestId");
    bool fine = gce_form_read(a->ask, a->arena, &f, why) == 0;
    a->row = fake_fleet_meet(a->fleet, FLEET_CREATE, f.order.type, zone, a->now_us);
    const struct fake_gce_operation *known = of_request(a, id);
    if (!fine || form_query_check(a->at.query, parameters, why) < 0) {
        refuse_form(a, why);
    } else if (id.data && !gce_form_is_uuid(id)) {
        refuse_form(a, "requestId is no UUID");
    } else if (!lacks_for_insert(a, &f) && !refuse_fault(a)) {
        if (known)
            put_operation(a, known);
        else
            insert(a, &f.order, id);
    }
}

/* ---- bulk inserts ---- */

/* Makes the first that can be had, type by type. NULL: none; *ret_code says why. */
static struct fleet_machine *make_any(struct answer *a, struct gce_form *f, const char **ret_code)
{
    struct fleet_machine *m = NULL;
    const struct fleet_row *row = NULL; /* of the first that is looked at: what befalls the call */
    *ret_code = "VM_MIN_COUNT_NOT_REACHED";
    for (uint32_t t = 0; t < f->type_count; t++)
        for (uint32_t z = 0; z < f->zone_count && !m; z++) {
            const struct fleet_row *now =
                fake_fleet_meet(a->fleet, FLEET_CREATE, f->types[t], f->zones[z], a->now_us);
            enum fleet_fault fault = now ? now->fault : FLEET_FINE;
            if (t == 0 && z == 0) row = now;
            if (fault == FLEET_STOCK_OUT) continue;
            a->row = now;
            if (refuse_fault(a) || fault == FLEET_LOST_REQUEST || fault == FLEET_UNREACHABLE)
                return NULL;
            f->order.type = f->types[t];
            f->order.zone = f->zones[z];
            if (named(a, f->order.zone, f->order.name)) {
                *ret_code = "RESOURCE_ALREADY_EXISTS";
                return NULL;
            }
            end_late(a, f->order.zone, f->order.name);
            enum fleet_fault made = fake_fleet_create(
                a->fleet, &f->order, fault == FLEET_LATE_SUCCESS ? now->delay_us : 0,
                fault == FLEET_SLOW_BOOT ? now->delay_us : 0, a->now_us, &m);
            if (made == FLEET_QUOTA) *ret_code = operation_code(made);
            row = now;
        }
    a->row = row && row->fault == FLEET_STOCK_OUT ? NULL : row;
    if (m) *ret_code = NULL;
    return m;
}

static void bulk_insert(struct answer *a, const char *region)
{
    static const char *const parameters[] = { "requestId", "$alt", "alt", NULL };
    struct gce_form f = { .project = a->g->project };
    char why[FORM_WHY_BYTES];
    const char *code = a->g->failure;
    struct fleet_machine *m = NULL;
    struct str id = form_query(a->arena, a->at.query, "requestId");
    if (gce_form_read_bulk(a->ask, a->arena, &f, why) < 0 ||
        form_query_check(a->at.query, parameters, why) < 0) {
        refuse_form(a, why);
        return;
    }
    if (id.data && !gce_form_is_uuid(id)) refuse_form(a, "requestId is no UUID");
    for (uint32_t z = 0; z < f.zone_count; z++)
        if (strncmp(f.zones[z], region, strlen(region)) != 0)
            refuse_form(a, "a zone of another region");
    if (a->status || lacks(a, GCE_BULK) || lacks_for_insert(a, &f)) return;
    const struct fake_gce_operation *known = of_request(a, id);
    if (known) {
        put_operation(a, known);
        return;
    }
    if (!code) m = make_any(a, &f, &code);
    if (a->status ||
        (a->row && (a->row->fault == FLEET_LOST_REQUEST || a->row->fault == FLEET_UNREACHABLE)))
        return;
    struct fake_gce_operation *o = operate(a, "bulkInsert", region, f.order.name);
    snprintf(o->request_id, sizeof o->request_id, STR_FMT, STR_ARG(id));
    o->code = code;
    o->machine = m ? m->id : 0;
    o->made_in = m ? f.order.zone : NULL;
    for (uint32_t z = 0; z < a->fleet->config.zone_count && m; z++) /* a text that lives */
        if (strcmp(a->fleet->config.zone[z], m->zone) == 0) o->made_in = a->fleet->config.zone[z];
    if (a->row && a->row->fault == FLEET_LATE_SUCCESS) {
        o->from_us += a->row->delay_us;
        o->done_us += a->row->delay_us;
    }
    put_operation(a, o);
}

/* ---- lists ---- */

/* Reads labels.NAME = "VALUE"; an empty name: every instance fits. */
static bool read_filter(struct str filter, char name[FLEET_TEXT], struct str *ret_value)
{
    struct str value = filter, key = str_trim(str_cut(&value, '='));
    value = str_trim(value);
    name[0] = 0;
    if (filter.len == 0) return true;
    if (!str_starts(key, STR("labels.")) || value.len < 3 || value.data[0] != '"' ||
        value.data[value.len - 1] != '"')
        return false;
    snprintf(name, FLEET_TEXT, "%.*s", (int)key.len - 7, key.data + 7);
    *ret_value = str_of(value.data + 1, value.len - 2);
    return true;
}

struct page {
    char label[FLEET_TEXT];
    struct str value, fields;
    uint64_t from, max, seen;
    bool more;
};

static void put_warning(struct json_writer *w, const char *code)
{
    json_key(w, "warning");
    json_object(w);
    json_kv_text(w, "code", code);
    json_kv_text(w, "message", "about this scope");
    json_object_end(w);
}

/* Puts a zone's instances that are on the page. */
static void put_scope(struct json_writer *w, const struct answer *a, const char *zone,
                      struct page *p)
{
    bool any = false;
    char key[FLEET_TEXT + 8];
    snprintf(key, sizeof key, "zones/%s", zone);
    json_key(w, key);
    json_object(w);
    bool missing = a->g->missing && strcmp(a->g->missing, zone) == 0;
    for (uint32_t i = 0; i < a->fleet->count && !missing; i++) {
        const struct fleet_machine *m = &a->fleet->machine[i];
        if (strcmp(m->zone, zone) != 0 || !fake_fleet_shows(a->fleet, m, a->now_us)) continue;
        if (p->label[0] && !str_eq(str_from(fleet_tag_of(m, p->label)), p->value)) continue;
        bool on_page = p->seen >= p->from && p->seen < p->from + p->max;
        p->more = p->more || p->seen >= p->from + p->max;
        p->seen++;
        if (!on_page) continue;
        if (!any) json_key(w, "instances"), json_array(w);
        any = true;
        put_instance(w, a, m, p->fields);
    }
    if (any) json_array_end(w);
    if (!any && asks_for(p->fields, "warning"))
        put_warning(w, missing && !a->g->by_unreachables ? "UNREACHABLE" : "NO_RESULTS_ON_PAGE");
    json_object_end(w);
}

static void put_list(struct answer *a, struct page *p)
{
    struct json_writer w;
    char token[32];
    json_writer_init(&w, &a->body);
    json_object(&w);
    json_kv_text(&w, "kind", "compute#instanceAggregatedList");
    json_key(&w, "items");
    json_object(&w);
    for (uint32_t z = 0; z < a->fleet->config.zone_count; z++)
        put_scope(&w, a, a->fleet->config.zone[z], p);
    json_object_end(&w);
    snprintf(token, sizeof token, "page+%" PRIu64 "/=", p->from + p->max);
    if (p->more && asks_for(p->fields, "nextPageToken")) json_kv_text(&w, "nextPageToken", token);
    if (a->g->missing && a->g->by_unreachables && asks_for(p->fields, "unreachables")) {
        json_key(&w, "unreachables");
        json_array(&w);
        json_put_text(&w, a->g->missing);
        json_array_end(&w);
    }
    json_object_end(&w);
    a->status = 200;
}

static void list_instances(struct answer *a)
{
    static const char *const parameters[] = { "filter",  "maxResults",       "pageToken",
                                              "orderBy", "fields",           "$alt",
                                              "alt",     "includeAllScopes", NULL };
    char why[FORM_WHY_BYTES];
    struct page p = { .max = PAGE_MAX };
    struct str max = form_query(a->arena, a->at.query, "maxResults");
    struct str token = form_query(a->arena, a->at.query, "pageToken");
    p.fields = form_query(a->arena, a->at.query, "fields");
    a->row = fake_fleet_meet(a->fleet, FLEET_LIST, NULL, NULL, a->now_us);
    if (form_query_check(a->at.query, parameters, why) < 0) {
        refuse_form(a, why);
        return;
    }
    if (max.data && (str_to_u64(max, &p.max) < 0 || p.max == 0 || p.max > PAGE_MAX)) {
        refuse_form(a, "maxResults out of range");
        return;
    }
    struct str number = token;
    if (token.data && (!str_starts(token, STR("page+")) || (str_cut(&number, '+'), false) ||
                       str_to_u64(str_cut(&number, '/'), &p.from) < 0)) {
        refuse_form(a, "pageToken is not one of ours");
        return;
    }
    if (!read_filter(form_query(a->arena, a->at.query, "filter"), p.label, &p.value)) {
        refuse_form(a, "a filter that this fake does not read");
        return;
    }
    if (a->g->page > 0 && a->g->page < p.max) p.max = a->g->page;
    if (!lacks(a, GCE_LIST) && !refuse_fault(a)) put_list(a, &p);
}

/* ---- one instance, one operation ---- */

static void get_instance(struct answer *a, const char *zone, const char *name)
{
    const struct fleet_machine *m = named(a, zone, name);
    struct json_writer w;
    a->row = fake_fleet_meet(a->fleet, FLEET_LIST, NULL, NULL, a->now_us);
    if (lacks(a, GCE_GET) || refuse_fault(a)) return;
    if (!m) {
        refuse(a, 404, "notFound", "The resource was not found");
        return;
    }
    json_writer_init(&w, &a->body);
    put_instance(&w, a, m, (struct str){ 0 });
    a->status = 200;
}

static void delete_instance(struct answer *a, const char *zone, const char *name)
{
    static const char *const parameters[] = { "requestId", "$alt", "alt", NULL };
    char why[FORM_WHY_BYTES];
    const struct fleet_machine *m = named(a, zone, name);
    a->row = fake_fleet_meet(a->fleet, FLEET_REMOVE, NULL, NULL, a->now_us);
    enum fleet_fault fault = a->row ? a->row->fault : FLEET_FINE;
    if (form_query_check(a->at.query, parameters, why) < 0) {
        refuse_form(a, why);
        return;
    }
    if (lacks(a, GCE_DELETE) || refuse_fault(a)) return;
    if (fault == FLEET_LOST_REQUEST || fault == FLEET_UNREACHABLE) return;
    if (!m) {
        refuse(a, 404, "notFound", "The resource was not found");
        return;
    }
    fake_fleet_remove(a->fleet, m->id, a->now_us);
    put_operation(a, operate(a, "delete", zone, name));
}

static void show_operation(struct answer *a, const char *zone, struct str name, bool in_region)
{
    uint64_t index = 0;
    struct str number = name;
    a->row = fake_fleet_meet(a->fleet, FLEET_PRICES, NULL, NULL, a->now_us);
    if (lacks(a, in_region ? GCE_REGION_OPERATION : GCE_OPERATION) || refuse_fault(a)) return;
    str_cut(&number, '-');
    if (str_to_u64(number, &index) < 0 || index >= a->g->operation_count ||
        strcmp(a->g->operation[index].zone, zone) != 0)
        refuse(a, 404, "notFound", "The resource was not found");
    else
        put_operation(a, &a->g->operation[index]);
}

static void get_reservation(struct answer *a, const char *zone, struct str name)
{
    struct json_writer w;
    a->row = fake_fleet_meet(a->fleet, FLEET_PRICES, NULL, zone, a->now_us);
    if (lacks(a, GCE_RESERVATION) || refuse_fault(a)) return;
    if (!a->g->reserved || !str_eq(name, str_from(a->g->reserved))) {
        refuse(a, 404, "notFound", "The resource was not found");
        return;
    }
    json_writer_init(&w, &a->body);
    json_object(&w);
    json_kv_text(&w, "kind", "compute#reservation");
    json_kv_text(&w, "name", a->g->reserved);
    put_url(&w, a, "zone", "zones/%s", zone);
    json_kv_text(&w, "status", "READY");
    json_kv_bool(&w, "specificReservationRequired", true);
    json_key(&w, "specificReservation");
    json_object(&w);
    json_kv_text(&w, "count", "4"); /* 64-bit numbers are texts in this API */
    json_kv_text(&w, "inUseCount", "1");
    json_object_end(&w);
    json_object_end(&w);
    a->status = 200;
}

/* ---- requests ---- */

static const char *text_of(struct answer *a, struct str s)
{
    return arena_str(a->arena, s).data;
}

static void route_zone(struct answer *a, struct str rest)
{
    const char *zone = text_of(a, str_cut(&rest, '/'));
    struct str collection = str_cut(&rest, '/'), name = str_cut(&rest, '/'),
               method = a->ask->method;
    bool post = str_eq(method, STR("POST")), get = str_eq(method, STR("GET"));
    bool instances = str_eq(collection, STR("instances"));
    if (instances && post && name.len == 0)
        insert_instance(a, zone);
    else if (instances && get && name.len > 0 && rest.len == 0)
        get_instance(a, zone, text_of(a, name));
    else if (instances && str_eq(method, STR("DELETE")) && name.len > 0)
        delete_instance(a, zone, text_of(a, name));
    else if (str_eq(collection, STR("reservations")) && get && name.len > 0 && rest.len == 0)
        get_reservation(a, zone, name);
    else if (str_eq(collection, STR("operations")) &&
             ((get && rest.len == 0) || (post && str_eq(rest, STR("wait")))))
        show_operation(a, zone, name, false);
    else
        refuse_form(a, "no such path or method");
}

static void route_region(struct answer *a, struct str rest)
{
    const char *region = text_of(a, str_cut(&rest, '/'));
    struct str collection = str_cut(&rest, '/'), name = str_cut(&rest, '/');
    if (str_eq(collection, STR("instances")) && str_eq(name, STR("bulkInsert")) &&
        str_eq(a->ask->method, STR("POST")))
        bulk_insert(a, region);
    else if (str_eq(collection, STR("operations")) && str_eq(a->ask->method, STR("GET")) &&
             rest.len == 0)
        show_operation(a, region, name, true);
    else
        refuse_form(a, "no such path or method");
}

static void route(struct answer *a)
{
    struct str rest = a->at.path, project = str_cut(&rest, '/'), what = str_cut(&rest, '/');
    if (!str_eq(project, str_from(a->g->project)))
        refuse(a, 404, "notFound", "The resource was not found");
    else if (str_eq(what, STR("zones")))
        route_zone(a, rest);
    else if (str_eq(what, STR("regions")))
        route_region(a, rest);
    else if (str_eq(what, STR("aggregated")) && str_eq(rest, STR("instances")) &&
             str_eq(a->ask->method, STR("GET")))
        list_instances(a);
    else
        refuse_form(a, "no such path or method");
}

static bool is_authorized(const struct answer *a)
{
    if (fake_is_bearer(a->ask, a->g->token) && a->now_us < a->g->expires_us) return true;
    return a->g->always && fake_is_bearer(a->ask, a->g->always);
}

static void answer(struct answer *a)
{
    if (form_target(a->ask->url, STR("/compute/v1/projects/"), &a->at) < 0)
        refuse_form(a, "no URL of this API");
    else if (!is_authorized(a))
        refuse(a, 401, "authError", "Invalid Credentials");
    else
        route(a);
}

static int64_t respond(void *ctx, const struct web_ask *ask, int64_t now_us, struct arena *arena,
                       struct web_reply *ret)
{
    struct fake_gce *g = ctx;
    struct answer a = { .g = g, .fleet = g->fleet, .ask = ask, .arena = arena, .now_us = now_us };
    int64_t took_us;
    if (fake_gce_login(g, ask, now_us, arena, ret, &a.row)) {
        fleet_break_reply(a.row, ret, &took_us);
        return took_us;
    }
    answer(&a);
    fake_fill(ret, arena, a.status, &a.body, a.retry_after_us);
    fleet_break_reply(a.row, ret, &took_us);
    return took_us;
}

static void *open_fake(struct fake_fleet *fleet, const char *token, int64_t date_us)
{
    struct fake_gce *g = calloc(1, sizeof *g);
    must(g);
    g->fleet = fleet;
    g->project = "p-1";
    g->always = token;
    g->date_us = date_us;
    g->on_machine = true;
    g->operation_us = 500000;
    return g;
}

static const struct fleet_config sold = {
    .bill_least_s = 60, /* as its price list says */
    .type = { { .name = "e2-standard-4", .price_udollars_h = 134000, .cores = 4, .memory_gib = 16 },
              { .name = "g2-standard-8",
                .price_udollars_h = 850000,
                .spot_udollars_h = 340000,
                .cores = 8,
                .gpus = 1,
                .memory_gib = 32 } },
    .type_count = 2,
    .zone = { "europe-west4-a", "europe-west4-b", "us-central1-a" },
    .zone_count = 3,
};

const struct cloud_fake fake_gce = {
    .name = "gce", .fleet = &sold, .open = open_fake, .respond = respond
};
