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
#include "tests/fakes/cloud/fake_answer.h"
#include "tests/fakes/cloud/fake_form.h"
#include "tests/fakes/cloud/fake_gce_answer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_MAX 500

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
    [GCE_STOP] = "compute.instances.stop",
    [GCE_START] = "compute.instances.start",
    [GCE_TEMPLATE] = "compute.instanceTemplates.useReadOnly",
    [GCE_IMPERSONATE] = "iam.serviceAccounts.getAccessToken",
};

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
static void put_scope(struct json_writer *w, const struct gce_answer *a, const char *zone,
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
        fake_gce_put_instance(w, a, m, p->fields);
    }
    if (any) json_array_end(w);
    if (!any && fake_gce_asks_for(p->fields, "warning"))
        put_warning(w, missing && !a->g->by_unreachables ? "UNREACHABLE" : "NO_RESULTS_ON_PAGE");
    json_object_end(w);
}

static void put_list(struct gce_answer *a, struct page *p)
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
    if (p->more && fake_gce_asks_for(p->fields, "nextPageToken"))
        json_kv_text(&w, "nextPageToken", token);
    if (a->g->missing && a->g->by_unreachables && fake_gce_asks_for(p->fields, "unreachables")) {
        json_key(&w, "unreachables");
        json_array(&w);
        json_put_text(&w, a->g->missing);
        json_array_end(&w);
    }
    json_object_end(&w);
    a->status = 200;
}

static void list_instances(struct gce_answer *a)
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
        fake_gce_refuse_form(a, why);
        return;
    }
    if (max.data && (str_to_u64(max, &p.max) < 0 || p.max == 0 || p.max > PAGE_MAX)) {
        fake_gce_refuse_form(a, "maxResults out of range");
        return;
    }
    struct str number = token;
    if (token.data && (!str_starts(token, STR("page+")) || (str_cut(&number, '+'), false) ||
                       str_to_u64(str_cut(&number, '/'), &p.from) < 0)) {
        fake_gce_refuse_form(a, "pageToken is not one of ours");
        return;
    }
    if (!read_filter(form_query(a->arena, a->at.query, "filter"), p.label, &p.value)) {
        fake_gce_refuse_form(a, "a filter that this fake does not read");
        return;
    }
    if (a->g->page > 0 && a->g->page < p.max) p.max = a->g->page;
    if (!fake_gce_lacks(a, GCE_LIST) && !fake_gce_refuse_fault(a)) put_list(a, &p);
}

/* ---- one instance, one operation ---- */

static void get_instance(struct gce_answer *a, const char *zone, const char *name)
{
    const struct fleet_machine *m = fake_gce_named(a, zone, name);
    struct json_writer w;
    a->row = fake_fleet_meet(a->fleet, FLEET_LIST, NULL, NULL, a->now_us);
    if (fake_gce_lacks(a, GCE_GET) || fake_gce_refuse_fault(a)) return;
    if (!m) {
        fake_gce_refuse(a, 404, "notFound", "The resource was not found");
        return;
    }
    json_writer_init(&w, &a->body);
    fake_gce_put_instance(&w, a, m, (struct str){ 0 });
    a->status = 200;
}

static void delete_instance(struct gce_answer *a, const char *zone, const char *name)
{
    static const char *const parameters[] = { "requestId", "$alt", "alt", NULL };
    char why[FORM_WHY_BYTES];
    const struct fleet_machine *m = fake_gce_named(a, zone, name);
    a->row = fake_fleet_meet(a->fleet, FLEET_REMOVE, NULL, NULL, a->now_us);
    enum fleet_fault fault = a->row ? a->row->fault : FLEET_FINE;
    if (form_query_check(a->at.query, parameters, why) < 0) {
        fake_gce_refuse_form(a, why);
        return;
    }
    if (fake_gce_lacks(a, GCE_DELETE) || fake_gce_refuse_fault(a)) return;
    if (fault == FLEET_LOST_REQUEST || fault == FLEET_UNREACHABLE) return;
    if (!m) {
        fake_gce_refuse(a, 404, "notFound", "The resource was not found");
        return;
    }
    fake_fleet_remove(a->fleet, m->id, a->now_us);
    fake_gce_put_operation(a, fake_gce_operate(a, "delete", zone, name));
}

/* Capacity for a start is told by the operation, as for an insert. */
static void turn_instance(struct gce_answer *a, const char *zone, const char *name, bool on)
{
    static const char *const parameters[] = { "requestId", "$alt", "alt", "discardLocalSsd", NULL };
    char why[FORM_WHY_BYTES];
    const struct fleet_machine *m = fake_gce_named(a, zone, name);
    a->row = fake_fleet_meet(a->fleet, on ? FLEET_START : FLEET_STOP, NULL, zone, a->now_us);
    enum fleet_fault fault = a->row ? a->row->fault : FLEET_FINE, got = FLEET_FINE;
    if (form_query_check(a->at.query, parameters, why) < 0 || a->ask->body.len > 0) {
        fake_gce_refuse_form(a, a->ask->body.len > 0 ? "a body" : why);
        return;
    }
    if (fake_gce_lacks(a, on ? GCE_START : GCE_STOP) || fake_gce_refuse_fault(a)) return;
    if (fault == FLEET_LOST_REQUEST || fault == FLEET_UNREACHABLE) return;
    if (!m) {
        fake_gce_refuse(a, 404, "notFound", "The resource was not found");
        return;
    }
    if (!on)
        fake_fleet_stop(a->fleet, m->id, a->now_us);
    else if (fault == FLEET_STOCK_OUT)
        got = FLEET_STOCK_OUT;
    else
        got = fake_fleet_start(a->fleet, m->id, a->now_us);
    struct fake_gce_operation *o = fake_gce_operate(a, on ? "start" : "stop", zone, name);
    if (got != FLEET_FINE) o->code = "ZONE_RESOURCE_POOL_EXHAUSTED";
    fake_gce_put_operation(a, o);
}

static void show_operation(struct gce_answer *a, const char *zone, struct str name, bool in_region)
{
    uint64_t index = 0;
    struct str number = name;
    a->row = fake_fleet_meet(a->fleet, FLEET_PRICES, NULL, NULL, a->now_us);
    if (fake_gce_lacks(a, in_region ? GCE_REGION_OPERATION : GCE_OPERATION) ||
        fake_gce_refuse_fault(a))
        return;
    str_cut(&number, '-');
    if (str_to_u64(number, &index) < 0 || index >= a->g->operation_count ||
        strcmp(a->g->operation[index].zone, zone) != 0)
        fake_gce_refuse(a, 404, "notFound", "The resource was not found");
    else
        fake_gce_put_operation(a, &a->g->operation[index]);
}

static void get_reservation(struct gce_answer *a, const char *zone, struct str name)
{
    struct json_writer w;
    a->row = fake_fleet_meet(a->fleet, FLEET_PRICES, NULL, zone, a->now_us);
    if (fake_gce_lacks(a, GCE_RESERVATION) || fake_gce_refuse_fault(a)) return;
    if (!a->g->reserved || !str_eq(name, str_from(a->g->reserved))) {
        fake_gce_refuse(a, 404, "notFound", "The resource was not found");
        return;
    }
    json_writer_init(&w, &a->body);
    json_object(&w);
    json_kv_text(&w, "kind", "compute#reservation");
    json_kv_text(&w, "name", a->g->reserved);
    fake_gce_put_url(&w, a, "zone", "zones/%s", zone);
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

static const char *text_of(struct gce_answer *a, struct str s)
{
    return arena_str(a->arena, s).data;
}

static void route_zone(struct gce_answer *a, struct str rest)
{
    const char *zone = text_of(a, str_cut(&rest, '/'));
    struct str collection = str_cut(&rest, '/'), name = str_cut(&rest, '/'),
               method = a->ask->method;
    bool post = str_eq(method, STR("POST")), get = str_eq(method, STR("GET"));
    bool instances = str_eq(collection, STR("instances"));
    if (instances && post && name.len == 0)
        fake_gce_insert_instance(a, zone);
    else if (instances && get && name.len > 0 && rest.len == 0)
        get_instance(a, zone, text_of(a, name));
    else if (instances && post && (str_eq(rest, STR("stop")) || str_eq(rest, STR("start"))))
        turn_instance(a, zone, text_of(a, name), str_eq(rest, STR("start")));
    else if (instances && str_eq(method, STR("DELETE")) && name.len > 0)
        delete_instance(a, zone, text_of(a, name));
    else if (str_eq(collection, STR("reservations")) && get && name.len > 0 && rest.len == 0)
        get_reservation(a, zone, name);
    else if (str_eq(collection, STR("operations")) &&
             ((get && rest.len == 0) || (post && str_eq(rest, STR("wait")))))
        show_operation(a, zone, name, false);
    else
        fake_gce_refuse_form(a, "no such path or method");
}

static void route_region(struct gce_answer *a, struct str rest)
{
    const char *region = text_of(a, str_cut(&rest, '/'));
    struct str collection = str_cut(&rest, '/'), name = str_cut(&rest, '/');
    if (str_eq(collection, STR("instances")) && str_eq(name, STR("bulkInsert")) &&
        str_eq(a->ask->method, STR("POST")))
        fake_gce_bulk_insert(a, region);
    else if (str_eq(collection, STR("operations")) && str_eq(a->ask->method, STR("GET")) &&
             rest.len == 0)
        show_operation(a, region, name, true);
    else
        fake_gce_refuse_form(a, "no such path or method");
}

static void route(struct gce_answer *a)
{
    struct str rest = a->at.path, project = str_cut(&rest, '/'), what = str_cut(&rest, '/');
    if (!str_eq(project, str_from(a->g->project)))
        fake_gce_refuse(a, 404, "notFound", "The resource was not found");
    else if (str_eq(what, STR("zones")))
        route_zone(a, rest);
    else if (str_eq(what, STR("regions")))
        route_region(a, rest);
    else if (str_eq(what, STR("aggregated")) && str_eq(rest, STR("instances")) &&
             str_eq(a->ask->method, STR("GET")))
        list_instances(a);
    else
        fake_gce_refuse_form(a, "no such path or method");
}

static bool is_authorized(const struct gce_answer *a)
{
    if (fake_is_bearer(a->ask, a->g->token) && a->now_us < a->g->expires_us) return true;
    return a->g->always && fake_is_bearer(a->ask, a->g->always);
}

static void answer(struct gce_answer *a)
{
    if (form_target(a->ask->url, STR("/compute/v1/projects/"), &a->at) < 0)
        fake_gce_refuse_form(a, "no URL of this API");
    else if (!is_authorized(a))
        fake_gce_refuse(a, 401, "authError", "Invalid Credentials");
    else
        route(a);
}

static int64_t respond(void *ctx, const struct web_ask *ask, int64_t now_us, struct arena *arena,
                       struct web_reply *ret)
{
    struct fake_gce *g = ctx;
    struct gce_answer a = {
        .g = g, .fleet = g->fleet, .ask = ask, .arena = arena, .now_us = now_us
    };
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
    g->subject = FAKE_GCE_SUBJECT;
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
