/* fake_gce_make.c - makes instances of the fake of Google Compute Engine: in a zone, or one of several types and
 * zones. */
#include "tests/fakes/cloud/fake_gce_answer.h"
#include "tests/fakes/cloud/fake_gce_form.h"

#include <stdio.h>
#include <string.h>

/* ---- create ---- */

struct fleet_machine *fake_gce_named(const struct gce_answer *a, const char *zone, const char *name)
{
    for (uint32_t i = 0; i < a->fleet->count; i++) {
        struct fleet_machine *m = &a->fleet->machine[i];
        bool there = m->made_us <= a->now_us && (m->removed_us == 0 || m->removed_us > a->now_us);
        if (there && strcmp(m->name, name) == 0 && strcmp(m->zone, zone) == 0) return m;
    }
    return NULL;
}

/* Of a request that got stuck on its way nothing comes any more: its request id, or its name, is taken. */
static void end_late(const struct gce_answer *a, const char *zone, const char *name)
{
    for (uint32_t i = 0; i < a->fleet->count; i++) {
        struct fleet_machine *m = &a->fleet->machine[i];
        if (m->made_us > a->now_us && strcmp(m->name, name) == 0 && strcmp(m->zone, zone) == 0)
            m->removed_us = m->made_us;
    }
}

static const struct fake_gce_operation *of_request(const struct gce_answer *a, struct str id)
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
static void insert(struct gce_answer *a, const struct fleet_order *order, struct str request_id)
{
    enum fleet_fault fault = a->row ? a->row->fault : FLEET_FINE, made = FLEET_FINE;
    int64_t late_us = fault == FLEET_LATE_SUCCESS ? a->row->delay_us : 0;
    struct fleet_machine *m = NULL;
    if (fault == FLEET_LOST_REQUEST || fault == FLEET_UNREACHABLE) return;
    if (fake_gce_named(a, order->zone, order->name)) {
        fake_gce_refuse(a, 409, "alreadyExists", "The resource already exists");
        return;
    }
    end_late(a, order->zone, order->name);
    const char *code = fault == FLEET_STOCK_OUT ? operation_code(fault) : a->g->failure;
    if (!code) {
        made = fake_fleet_create(a->fleet, order, late_us,
                                 fault == FLEET_SLOW_BOOT ? a->row->delay_us : 0, a->now_us, &m);
        code = operation_code(made);
    }
    struct fake_gce_operation *o = fake_gce_operate(a, "insert", order->zone, order->name);
    snprintf(o->request_id, sizeof o->request_id, STR_FMT, STR_ARG(request_id));
    o->code = code;
    o->machine = m ? m->id : 0;
    o->from_us += late_us;
    o->done_us += late_us;
    fake_gce_put_operation(a, o);
}

/* The user has one template. */
static bool lacks_template(struct gce_answer *a, struct gce_form *f)
{
    if (!f->of_template) return false;
    if (fake_gce_lacks(a, GCE_TEMPLATE)) return true;
    if (!str_eq(f->template, STR("projects/p-1/global/instanceTemplates/" GCE_USER_TEMPLATE))) {
        fake_gce_refuse(a, 404, "notFound", "The resource was not found");
        return true;
    }
    if (!f->order.image || !f->order.image[0]) f->order.image = GCE_USER_IMAGE;
    return false;
}

static bool lacks_for_insert(struct gce_answer *a, const struct gce_form *f)
{
    return fake_gce_lacks(a, GCE_CREATE) || fake_gce_lacks(a, GCE_DISK) ||
           fake_gce_lacks(a, GCE_SUBNET) || (f->has_address && fake_gce_lacks(a, GCE_ADDRESS)) ||
           (f->has_metadata && fake_gce_lacks(a, GCE_METADATA)) ||
           (f->order.tag_count > 0 && fake_gce_lacks(a, GCE_LABELS)) ||
           (f->has_tags && fake_gce_lacks(a, GCE_TAGS)) ||
           (f->has_account && fake_gce_lacks(a, GCE_ACCOUNT)) ||
           (f->own_image && fake_gce_lacks(a, GCE_IMAGE));
}

void fake_gce_insert_instance(struct gce_answer *a, const char *zone)
{
    static const char *const parameters[] = { "requestId", "sourceInstanceTemplate", "$alt", "alt",
                                              NULL };
    struct gce_form f = { .project = a->g->project, .zone = zone };
    char why[FORM_WHY_BYTES];
    f.template = form_query(a->arena, a->at.query, "sourceInstanceTemplate");
    f.of_template = f.template.len > 0;
    struct str id = form_query(a->arena, a->at.query, "requestId");
    bool fine = gce_form_read(a->ask, a->arena, &f, why) == 0;
    a->row = fake_fleet_meet(a->fleet, FLEET_CREATE, f.order.type, zone, a->now_us);
    const struct fake_gce_operation *known = of_request(a, id);
    if (!fine || form_query_check(a->at.query, parameters, why) < 0) {
        fake_gce_refuse_form(a, why);
    } else if (id.data && !gce_form_is_uuid(id)) {
        fake_gce_refuse_form(a, "requestId is no UUID");
    } else if (!lacks_for_insert(a, &f) && !fake_gce_refuse_fault(a) && !lacks_template(a, &f)) {
        if (known)
            fake_gce_put_operation(a, known);
        else
            insert(a, &f.order, id);
    }
}

/* ---- bulk inserts ---- */

/* Makes the first that can be had, type by type. NULL: none; *ret_code says why. */
static struct fleet_machine *make_any(struct gce_answer *a, struct gce_form *f,
                                      const char **ret_code)
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
            if (fake_gce_refuse_fault(a) || fault == FLEET_LOST_REQUEST ||
                fault == FLEET_UNREACHABLE)
                return NULL;
            f->order.type = f->types[t];
            f->order.zone = f->zones[z];
            if (fake_gce_named(a, f->order.zone, f->order.name)) {
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

void fake_gce_bulk_insert(struct gce_answer *a, const char *region)
{
    static const char *const parameters[] = { "requestId", "$alt", "alt", NULL };
    struct gce_form f = { .project = a->g->project };
    char why[FORM_WHY_BYTES];
    const char *code = a->g->failure;
    struct fleet_machine *m = NULL;
    struct str id = form_query(a->arena, a->at.query, "requestId");
    if (gce_form_read_bulk(a->ask, a->arena, &f, why) < 0 ||
        form_query_check(a->at.query, parameters, why) < 0) {
        fake_gce_refuse_form(a, why);
        return;
    }
    if (id.data && !gce_form_is_uuid(id)) fake_gce_refuse_form(a, "requestId is no UUID");
    for (uint32_t z = 0; z < f.zone_count; z++)
        if (strncmp(f.zones[z], region, strlen(region)) != 0)
            fake_gce_refuse_form(a, "a zone of another region");
    if (a->status || fake_gce_lacks(a, GCE_BULK) || lacks_for_insert(a, &f) ||
        lacks_template(a, &f))
        return;
    const struct fake_gce_operation *known = of_request(a, id);
    if (known) {
        fake_gce_put_operation(a, known);
        return;
    }
    if (!code) m = make_any(a, &f, &code);
    if (a->status ||
        (a->row && (a->row->fault == FLEET_LOST_REQUEST || a->row->fault == FLEET_UNREACHABLE)))
        return;
    struct fake_gce_operation *o = fake_gce_operate(a, "bulkInsert", region, f.order.name);
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
    fake_gce_put_operation(a, o);
}
