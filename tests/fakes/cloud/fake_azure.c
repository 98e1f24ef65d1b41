/* fake_azure.c - speaks Azure's Compute API over a fake fleet.
 *
 * Written from the reference of "Virtual Machines", version 2024-11-01: the members of a machine, what deleteOption and
 * evictionPolicy may say, If-None-Match; from "Track asynchronous Azure operations" and "Azure Retail Prices
 * overview". */
#include "tests/fakes/cloud/fake_azure.h"

#include "base/core/base64.h"
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/date.h"
#include "tests/fakes/cloud/fake_answer.h"
#include "tests/fakes/cloud/fake_form.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOST "https://management.azure.com"
#define VERSION "2024-11-01"
#define MACHINES                                                                  \
    "/subscriptions/" FAKE_AZURE_SUBSCRIPTION "/resourceGroups/" FAKE_AZURE_GROUP \
    "/providers/Microsoft.Compute/virtualMachines"
#define OPERATIONS                            \
    "/subscriptions/" FAKE_AZURE_SUBSCRIPTION \
    "/providers/Microsoft.Compute/locations/" FAKE_AZURE_REGION "/operations"
#define CUSTOM_DATA_MAX 65535

const char *const fake_azure_actions[AZURE_ACTION_COUNT] = {
    [AZURE_WRITE] = "Microsoft.Compute/virtualMachines/write",
    [AZURE_READ] = "Microsoft.Compute/virtualMachines/read",
    [AZURE_DELETE] = "Microsoft.Compute/virtualMachines/delete",
    [AZURE_SUBNET] = "Microsoft.Network/virtualNetworks/subnets/join/action",
    [AZURE_INTERFACE] = "Microsoft.Network/networkInterfaces/write",
    [AZURE_ADDRESS] = "Microsoft.Network/publicIPAddresses/write",
    [AZURE_GUARD] = "Microsoft.Network/networkSecurityGroups/join/action",
    [AZURE_IDENTITY] = "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action",
    [AZURE_DEALLOCATE] = "Microsoft.Compute/virtualMachines/deallocate/action",
    [AZURE_START] = "Microsoft.Compute/virtualMachines/start/action",
    [AZURE_LOOK] = "Microsoft.Compute/locations/operations/read",
};

/* Holds the reply to one request. */
struct answer {
    struct fake_azure *z;
    struct fake_fleet *fleet;
    const struct web_ask *ask;
    struct form_target at;
    struct arena *arena;
    int64_t now_us;
    int status;
    struct buf body;
    int64_t retry_after_us;
    char operation[200];         /* header; empty: none */
    const struct fleet_row *row; /* the fault that applies */
};

/* ---- errors ---- */

static void put_error(struct json_writer *w, const char *code, const char *message)
{
    json_key(w, "error");
    json_object(w);
    json_kv_text(w, "code", code);
    json_kv_text(w, "message", message);
    json_object_end(w);
}

static void refuse(struct answer *a, int status, const char *code, const char *message)
{
    struct json_writer w;
    buf_clear(&a->body);
    json_writer_init(&w, &a->body);
    json_object(&w);
    put_error(&w, code, message);
    json_object_end(&w);
    a->status = status;
}

static void refuse_form(struct answer *a, const char *why)
{
    fake_fleet_bad_form(a->fleet, STR_FMT " " STR_FMT ": %s", STR_ARG(a->ask->method),
                        STR_ARG(a->ask->url), why);
    refuse(a, 400, "InvalidRequestContent", why);
}

static bool refuse_fault(struct answer *a)
{
    static const struct fake_words words[] = {
        { FLEET_QUOTA, 409, "OperationNotAllowed",
          "exceeding approved standardNCFamily Cores quota" },
        { FLEET_THROTTLE, 429, "TooManyRequests", "the request was throttled" },
        { FLEET_AUTH, 401, "ExpiredAuthenticationToken", "the access token expiry is in the past" },
        { FLEET_FORBIDDEN, 403, "AuthorizationFailed", "the client has no authorization" },
        { FLEET_INVALID, 400, "InvalidParameter", "the value of vmSize is invalid" },
        { FLEET_SERVER_ERROR, 503, "ServerTimeout", "try later" },
        { FLEET_UNKNOWN_CODE, 409, "NewKindOfError", "words that are in no table" },
        { 0 },
    };
    const struct fake_words *w = fake_words_of(words, a->row);
    if (!w) return false;
    refuse(a, w->status, w->code, w->message);
    a->retry_after_us = w->fault == FLEET_THROTTLE ? a->row->delay_us : 0;
    return true;
}

static bool lacks(struct answer *a, enum fake_azure_action action)
{
    char why[160];
    a->z->actions |= (uint64_t)1 << action;
    if (!(a->z->denied >> action & 1)) return false;
    snprintf(why, sizeof why, "no authorization to perform action '%s'",
             fake_azure_actions[action]);
    refuse(a, 403,
           action > AZURE_DELETE && action < AZURE_LOOK ? "LinkedAuthorizationFailed"
                                                        : "AuthorizationFailed",
           why);
    return true;
}

/* ---- operations ---- */

static struct fake_azure_operation *operate(struct answer *a)
{
    struct fake_azure *z = a->z;
    must(z->operation_count < FAKE_AZURE_OPERATIONS_MAX);
    snprintf(a->operation, sizeof a->operation, "%s" OPERATIONS "/op-%u?api-version=" VERSION,
             z->names_strangers ? "https://example.org" : HOST, z->operation_count);
    struct fake_azure_operation *o = &z->operation[z->operation_count++];
    *o = (struct fake_azure_operation){ .done_us = a->now_us + z->operation_us };
    return o;
}

static void show_operation(struct answer *a, struct str name)
{
    struct json_writer w;
    uint64_t index;
    str_cut(&name, '-');
    a->row = NULL;
    if (lacks(a, AZURE_LOOK)) return;
    if (str_to_u64(name, &index) < 0 || index >= a->z->operation_count) {
        refuse(a, 404, "NotFound", "no such operation");
        return;
    }
    const struct fake_azure_operation *o = &a->z->operation[index];
    bool done = a->now_us >= o->done_us;
    json_writer_init(&w, &a->body);
    json_object(&w);
    json_kv_text(&w, "status", !done ? "InProgress" : o->code ? "Failed" : "Succeeded");
    if (done && o->code) put_error(&w, o->code, "the operation's own words");
    json_object_end(&w);
    a->status = 200;
}

/* ---- machines ---- */

static struct fleet_machine *named(const struct answer *a, const char *name)
{
    return fake_fleet_named(a->fleet, name, a->now_us);
}

static const char *state_of(const struct answer *a, const struct fleet_machine *m)
{
    if (m->removed_us > 0 && !m->taken) return "Deleting";
    if (a->now_us < m->made_us + a->z->operation_us) return "Creating";
    return a->z->failed[m - a->fleet->machine] ? "Failed" : "Succeeded";
}

static void put_view(struct json_writer *w, const struct answer *a, const struct fleet_machine *m)
{
    bool leaves = m->notice_us > 0 && a->now_us >= m->notice_us;
    json_key(w, "instanceView");
    json_object(w);
    json_key(w, "statuses");
    json_array(w);
    json_object(w);
    json_kv_text(w, "code",
                 leaves ? "PowerState/deallocating"
                 : fleet_is_stopped(m, a->now_us - a->fleet->config.lag_us)
                     ? "PowerState/deallocated"
                     : "PowerState/running");
    json_object_end(w);
    json_array_end(w);
    json_object_end(w);
}

static void put_machine(struct json_writer *w, const struct answer *a,
                        const struct fleet_machine *m, bool view)
{
    char text[DATE_BYTES];
    json_object(w);
    json_kv_text(w, "name", m->name);
    json_kv_text(w, "type", "Microsoft.Compute/virtualMachines");
    json_kv_text(w, "location", FAKE_AZURE_REGION);
    json_key(w, "tags");
    json_object(w);
    for (uint32_t i = 0; i < m->tag_count; i++)
        json_kv_text(w, m->tag[i].name, m->tag[i].value);
    json_object_end(w);
    json_key(w, "properties");
    json_object(w);
    json_kv_text(w, "provisioningState", state_of(a, m));
    date_print(m->made_us + a->z->date_us, text);
    json_kv_text(w, "timeCreated", text);
    if (view) put_view(w, a, m);
    json_object_end(w);
    json_object_end(w);
}

static void list_machines(struct answer *a)
{
    struct json_writer w;
    uint64_t from = 0, seen = 0;
    bool view = str_eq(form_query(a->arena, a->at.query, "$expand"), STR("instanceView")),
         more = false;
    struct str skip = form_query(a->arena, a->at.query, "$skiptoken");
    uint64_t page = a->z->page > 0 ? a->z->page : UINT32_MAX;
    if (skip.data && str_to_u64(skip, &from) < 0) {
        refuse_form(a, "$skiptoken");
        return;
    }
    if (lacks(a, AZURE_READ)) return;
    json_writer_init(&w, &a->body);
    json_object(&w);
    json_key(&w, "value");
    json_array(&w);
    for (uint32_t i = 0; i < a->fleet->count; i++) {
        const struct fleet_machine *m = &a->fleet->machine[i];
        if (!fake_fleet_shows(a->fleet, m, a->now_us)) continue;
        if (seen >= from && seen < from + page) put_machine(&w, a, m, view);
        more = more || seen >= from + page;
        seen++;
    }
    json_array_end(&w);
    if (more) {
        char next[512];
        snprintf(next, sizeof next, HOST MACHINES "?api-version=" VERSION "%s&$skiptoken=%" PRIu64,
                 view ? "&$expand=instanceView" : "", from + page);
        json_kv_text(&w, "nextLink", next);
    }
    json_object_end(&w);
    a->status = 200;
}

static void show_machine(struct answer *a, const char *name)
{
    struct json_writer w;
    const struct fleet_machine *m = named(a, name);
    if (lacks(a, AZURE_READ)) return;
    if (!m) {
        refuse(a, 404, "ResourceNotFound", "the resource was not found");
        return;
    }
    json_writer_init(&w, &a->body);
    put_machine(&w, a, m, false);
    a->status = 200;
}

static void delete_machine(struct answer *a, const char *name)
{
    struct fleet_machine *m = named(a, name);
    enum fleet_fault fault = a->row ? a->row->fault : FLEET_FINE;
    if (lacks(a, AZURE_DELETE)) return;
    if (fault == FLEET_LOST_REQUEST || fault == FLEET_UNREACHABLE) return;
    if (!m) {
        a->status = 204;
        return;
    }
    if (m->removed_us == 0) fake_fleet_remove(a->fleet, m->id, a->now_us + a->z->operation_us);
    operate(a);
    a->status = 202;
}

/* Capacity for a start is told by the operation, as for a create. */
static void turn_machine(struct answer *a, const char *name, bool on)
{
    struct fleet_machine *m = named(a, name);
    enum fleet_fault fault = a->row ? a->row->fault : FLEET_FINE;
    if (lacks(a, on ? AZURE_START : AZURE_DEALLOCATE)) return;
    if (fault == FLEET_LOST_REQUEST || fault == FLEET_UNREACHABLE) return;
    if (!m) {
        refuse(a, 404, "ResourceNotFound", "the resource was not found");
        return;
    }
    bool sold_out = on && (fault == FLEET_STOCK_OUT ||
                           fake_fleet_start(a->fleet, m->id, a->now_us) == FLEET_STOCK_OUT);
    if (!on) fake_fleet_stop(a->fleet, m->id, a->now_us);
    struct fake_azure_operation *o = operate(a);
    o->code = sold_out ? "AllocationFailed" : NULL;
    a->status = 202;
}

/* ---- create ---- */

// clang-format off
static const struct form_field id_form[] = { { "id", FORM_TEXT, true, NULL }, { 0 } };
static const struct form_field image_form[] = {
    { "id", FORM_TEXT, false, NULL }, { "publisher", FORM_TEXT, false, NULL },
    { "offer", FORM_TEXT, false, NULL }, { "sku", FORM_TEXT, false, NULL },
    { "version", FORM_TEXT, false, NULL }, { 0 },
};
static const struct form_field disk_form[] = {
    { "createOption", FORM_TEXT, true, NULL }, { "deleteOption", FORM_TEXT, false, NULL },
    { "diskSizeGB", FORM_WHOLE, false, NULL }, { 0 },
};
static const struct form_field storage_form[] = {
    { "imageReference", FORM_OBJECT, true, image_form }, { "osDisk", FORM_OBJECT, true, disk_form }, { 0 },
};
static const struct form_field key_form[] = {
    { "path", FORM_TEXT, true, NULL }, { "keyData", FORM_TEXT, true, NULL }, { 0 },
};
static const struct form_field ssh_form[] = { { "publicKeys", FORM_OBJECTS, true, key_form }, { 0 } };
static const struct form_field linux_form[] = {
    { "disablePasswordAuthentication", FORM_BOOL, false, NULL }, { "ssh", FORM_OBJECT, false, ssh_form }, { 0 },
};
static const struct form_field os_form[] = {
    { "computerName", FORM_TEXT, true, NULL }, { "adminUsername", FORM_TEXT, true, NULL },
    { "customData", FORM_TEXT, false, NULL }, { "linuxConfiguration", FORM_OBJECT, false, linux_form }, { 0 },
};
static const struct form_field sku_form[] = { { "name", FORM_TEXT, true, NULL }, { 0 } };
static const struct form_field address_properties_form[] = {
    { "deleteOption", FORM_TEXT, false, NULL }, { "publicIPAllocationMethod", FORM_TEXT, false, NULL }, { 0 },
};
static const struct form_field address_form[] = {
    { "name", FORM_TEXT, true, NULL }, { "sku", FORM_OBJECT, false, sku_form },
    { "properties", FORM_OBJECT, false, address_properties_form }, { 0 },
};
static const struct form_field ip_properties_form[] = {
    { "primary", FORM_BOOL, false, NULL }, { "subnet", FORM_OBJECT, true, id_form },
    { "publicIPAddressConfiguration", FORM_OBJECT, false, address_form }, { 0 },
};
static const struct form_field ip_form[] = {
    { "name", FORM_TEXT, true, NULL }, { "properties", FORM_OBJECT, true, ip_properties_form }, { 0 },
};
static const struct form_field nic_properties_form[] = {
    { "primary", FORM_BOOL, false, NULL }, { "deleteOption", FORM_TEXT, false, NULL },
    { "networkSecurityGroup", FORM_OBJECT, false, id_form },
    { "ipConfigurations", FORM_OBJECTS, true, ip_form }, { 0 },
};
static const struct form_field nic_form[] = {
    { "name", FORM_TEXT, true, NULL }, { "properties", FORM_OBJECT, true, nic_properties_form }, { 0 },
};
static const struct form_field network_form[] = {
    { "networkApiVersion", FORM_TEXT, true, NULL },
    { "networkInterfaceConfigurations", FORM_OBJECTS, true, nic_form }, { 0 },
};
static const struct form_field hardware_form[] = { { "vmSize", FORM_TEXT, true, NULL }, { 0 } };
static const struct form_field billing_form[] = { { "maxPrice", FORM_NUMBER, true, NULL }, { 0 } };
static const struct form_field reservation_form[] = {
    { "capacityReservationGroup", FORM_OBJECT, true, id_form }, { 0 },
};
static const struct form_field properties_form[] = {
    { "hardwareProfile", FORM_OBJECT, true, hardware_form },
    { "storageProfile", FORM_OBJECT, true, storage_form }, { "osProfile", FORM_OBJECT, true, os_form },
    { "networkProfile", FORM_OBJECT, true, network_form }, { "priority", FORM_TEXT, false, NULL },
    { "evictionPolicy", FORM_TEXT, false, NULL }, { "billingProfile", FORM_OBJECT, false, billing_form },
    { "capacityReservation", FORM_OBJECT, false, reservation_form }, { 0 },
};
static const struct form_field identity_form[] = {
    { "type", FORM_TEXT, true, NULL }, { "userAssignedIdentities", FORM_ANY, false, NULL }, { 0 },
};
static const struct form_field machine_form[] = {
    { "location", FORM_TEXT, true, NULL }, { "zones", FORM_TEXTS, false, NULL },
    { "tags", FORM_MAP, false, NULL }, { "identity", FORM_OBJECT, false, identity_form },
    { "properties", FORM_OBJECT, true, properties_form }, { 0 },
};
// clang-format on

struct made {
    struct fleet_tag tag[FLEET_TAGS_MAX];
    uint32_t tag_count;
    struct arena *arena;
    char zone[FLEET_TEXT];
    uint32_t zones;
};

static int take_tag(void *ctx, struct str name, struct str value)
{
    struct made *m = ctx;
    CLEANUP(buf_fini) struct buf text = { 0 };
    must(m->tag_count < FLEET_TAGS_MAX && json_path_text(value, "", &text) == 0);
    struct fleet_tag *tag = &m->tag[m->tag_count++];
    snprintf(tag->name, sizeof tag->name, STR_FMT, STR_ARG(name));
    snprintf(tag->value, sizeof tag->value, STR_FMT, STR_ARG(buf_view(&text)));
    return 0;
}

static int take_zone(void *ctx, struct str item)
{
    struct made *m = ctx;
    CLEANUP(buf_fini) struct buf text = { 0 };
    must(json_path_text(item, "", &text) == 0);
    snprintf(m->zone, sizeof m->zone, STR_FMT, STR_ARG(buf_view(&text)));
    m->zones++;
    return 0;
}

static const char *text_at(struct answer *a, const char *path)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (json_path_text(a->ask->body, path, &text) < 0) return "";
    return arena_str(a->arena, buf_view(&text)).data;
}

static bool has(const struct answer *a, const char *text)
{
    return str_find(a->ask->body, str_from(text)) != SIZE_MAX;
}

/* Returns what the API would not take beside wrong members; NULL: nothing. */
static const char *check(struct answer *a, struct made *m, const char *name)
{
    struct str priority = str_from(text_at(a, "properties.priority"));
    bool spot = str_eq(priority, STR("Spot"));
    double price = 0;
    bool bids = json_path_f64(a->ask->body, "properties.billingProfile.maxPrice", &price) == 0;
    if (strlen(name) > 64 || strlen(name) == 0) return "a name has 1 to 64 characters";
    if (strcmp(text_at(a, "location"), FAKE_AZURE_REGION) != 0) return "location";
    if (priority.len > 0 && !spot && !str_eq(priority, STR("Regular"))) return "priority";
    if ((bids || has(a, "evictionPolicy")) && !spot) return "evictionPolicy is for spot machines";
    if (bids && price != -1 && price <= 0) return "maxPrice is -1 or a price";
    if (strlen(text_at(a, "properties.osProfile.customData")) > CUSTOM_DATA_MAX)
        return "customData";
    if (!has(a, "\"deleteOption\":\"Delete\"")) return "nothing would go with the machine";
    if (!has(a, "ssh-") && has(a, "\"disablePasswordAuthentication\":true")) return "no way in";
    return m->zones > 1 ? "a machine is in one zone" : NULL;
}

static bool lacks_for_put(struct answer *a)
{
    return lacks(a, AZURE_WRITE) || lacks(a, AZURE_SUBNET) || lacks(a, AZURE_INTERFACE) ||
           (has(a, "publicIPAddressConfiguration") && lacks(a, AZURE_ADDRESS)) ||
           (has(a, "networkSecurityGroup") && lacks(a, AZURE_GUARD)) ||
           (has(a, "userAssignedIdentities") && lacks(a, AZURE_IDENTITY));
}

/* Of a request that got stuck on its way nothing comes any more: its name is taken. */
static void end_late(const struct answer *a, const char *name)
{
    for (uint32_t i = 0; i < a->fleet->count; i++) {
        struct fleet_machine *m = &a->fleet->machine[i];
        if (m->made_us > a->now_us && strcmp(m->name, name) == 0) m->removed_us = m->made_us;
    }
}

static void make(struct answer *a, const struct fleet_order *order)
{
    enum fleet_fault fault = a->row ? a->row->fault : FLEET_FINE;
    struct fleet_machine *m;
    struct json_writer w;
    if (fault == FLEET_LOST_REQUEST || fault == FLEET_UNREACHABLE) return;
    end_late(a, order->name);
    enum fleet_fault made =
        fake_fleet_create(a->fleet, order, fault == FLEET_LATE_SUCCESS ? a->row->delay_us : 0,
                          fault == FLEET_SLOW_BOOT ? a->row->delay_us : 0, a->now_us, &m);
    if (made == FLEET_STOCK_OUT) {
        refuse(a, 409, "SkuNotAvailable", "the requested size is currently not available");
        return;
    }
    if (made != FLEET_FINE) {
        a->row = &(struct fleet_row){ .fault = made };
        refuse_fault(a);
        a->row = NULL;
        return;
    }
    struct fake_azure_operation *o = operate(a);
    o->code = fault == FLEET_STOCK_OUT ? "ZonalAllocationFailed" : a->z->failure;
    a->z->failed[m - a->fleet->machine] = o->code;
    json_writer_init(&w, &a->body);
    put_machine(&w, a, m, false);
    a->status = 201;
}

/* Without a condition a PUT changes what is there: whoever's machine it is then has these tags. */
static void put_over(struct answer *a, struct fleet_machine *there, const struct made *m)
{
    struct json_writer w;
    bool conditional = str_eq(form_header(a->ask, "if-none-match"), STR("*"));
    if (conditional && !a->z->ignores_condition) {
        refuse(a, 412, "PreconditionFailed", "a resource of this name exists");
        return;
    }
    if (conditional) {
        refuse(a, 409, "PropertyChangeNotAllowed", "Changing property 'customData' is not allowed");
        return;
    }
    memcpy(there->tag, m->tag, sizeof m->tag);
    there->tag_count = m->tag_count;
    json_writer_init(&w, &a->body);
    put_machine(&w, a, there, false);
    a->status = 200;
}

static void put_vm(struct answer *a, const char *name)
{
    char why[FORM_WHY_BYTES];
    struct made m = { .arena = a->arena };
    const char *type = text_at(a, "properties.hardwareProfile.vmSize");
    json_path_each(a->ask->body, "zones", take_zone, &m);
    const char *zone = m.zone[0] ? m.zone : a->fleet->config.zone[0];
    a->row = fake_fleet_meet(a->fleet, FLEET_CREATE, type, zone, a->now_us);
    if (!str_eq(a->ask->content_type, STR("application/json"))) {
        refuse_form(a, "content-type");
        return;
    }
    if (form_check(a->ask->body, machine_form, why) < 0) {
        refuse_form(a, why);
        return;
    }
    json_path_each_member(a->ask->body, "tags", take_tag, &m);
    const char *wrong = check(a, &m, name);
    if (wrong) {
        refuse_form(a, wrong);
        return;
    }
    if (lacks_for_put(a) || refuse_fault(a)) return;
    struct fleet_machine *there = named(a, name);
    if (there) {
        put_over(a, there, &m);
        return;
    }
    CLEANUP(buf_fini) struct buf data = { 0 };
    base64_take(&data, str_from(text_at(a, "properties.osProfile.customData")));
    buf_byte(&data, 0);
    const struct fleet_order order = { .name = name,
                                       .type = type,
                                       .zone = zone,
                                       .image = text_at(
                                           a, "properties.storageProfile.imageReference.sku"),
                                       .user_data = data.data,
                                       .spot = has(a, "\"priority\":\"Spot\""),
                                       .tag = m.tag,
                                       .tag_count = m.tag_count };
    make(a, &order);
}

/* ---- prices ---- */

static void put_meter(struct json_writer *w, const char *type, const char *meter,
                      const char *product, double price)
{
    char name[FLEET_TEXT + 32];
    snprintf(name, sizeof name, "%s%s", type, meter);
    json_object(w);
    json_kv_text(w, "currencyCode", "USD");
    json_kv_f64(w, "retailPrice", price);
    json_kv_text(w, "armRegionName", FAKE_AZURE_REGION);
    json_kv_text(w, "meterName", name);
    json_kv_text(w, "productName", product);
    json_kv_text(w, "unitOfMeasure", "1 Hour");
    json_kv_text(w, "type", "Consumption");
    json_kv_text(w, "armSkuName", type);
    json_object_end(w);
}

static void show_prices(struct answer *a)
{
    struct json_writer w;
    struct str filter = form_query(a->arena, a->at.query, "$filter");
    a->row = fake_fleet_meet(a->fleet, FLEET_PRICES, NULL, NULL, a->now_us);
    if (refuse_fault(a)) return;
    if (str_find(filter, STR("armRegionName eq '" FAKE_AZURE_REGION "'")) == SIZE_MAX ||
        str_find(filter, STR("serviceName eq 'Virtual Machines'")) == SIZE_MAX ||
        form_header(a->ask, "authorization").data) {
        refuse_form(a, "a filter without region or service, or a token for a stranger");
        return;
    }
    json_writer_init(&w, &a->body);
    json_object(&w);
    json_key(&w, "Items");
    json_array(&w);
    for (uint32_t i = 0; i < a->fleet->config.type_count; i++) {
        const struct fleet_type *t = &a->fleet->config.type[i];
        char want[FLEET_TEXT + 32];
        snprintf(want, sizeof want, "armSkuName eq '%s'", t->name);
        if (str_find(filter, str_from(want)) == SIZE_MAX) continue;
        double price = (double)t->price_udollars_h / 1e6, spot = (double)t->spot_udollars_h / 1e6;
        put_meter(&w, t->name, "", "Virtual Machines Series Windows", price * 1.5);
        put_meter(&w, t->name, "", "Virtual Machines Series", price);
        put_meter(&w, t->name, " Low Priority", "Virtual Machines Series", price / 5);
        if (spot > 0) put_meter(&w, t->name, " Spot", "Virtual Machines Series", spot);
    }
    json_array_end(&w);
    json_key(&w, "NextPageLink");
    json_put_null(&w);
    json_object_end(&w);
    a->status = 200;
}

/* ---- requests ---- */

static void route(struct answer *a)
{
    static const char *const parameters[] = { "api-version", "$expand", "$skiptoken",
                                              "forceDeletion", NULL };
    char why[FORM_WHY_BYTES];
    struct str rest = a->at.path, method = a->ask->method;
    bool get = str_eq(method, STR("GET"));
    if (form_query_check(a->at.query, parameters, why) < 0 ||
        !str_eq(form_query(a->arena, a->at.query, "api-version"), STR(VERSION))) {
        refuse_form(a, "api-version or another parameter");
        return;
    }
    if (str_starts(rest, STR(OPERATIONS "/")) && get) {
        show_operation(
            a, str_of(rest.data + strlen(OPERATIONS "/"), rest.len - strlen(OPERATIONS "/")));
        return;
    }
    if (!str_starts(rest, STR(MACHINES))) {
        refuse_form(a, "no such path");
        return;
    }
    rest = str_of(rest.data + strlen(MACHINES), rest.len - strlen(MACHINES));
    const char *name =
        rest.len > 1 ? arena_str(a->arena, str_of(rest.data + 1, rest.len - 1)).data : "";
    if (name[0] && str_eq(method, STR("PUT"))) {
        put_vm(a, name);
        return;
    }
    struct str turn = str_from(name), of = str_cut(&turn, '/');
    bool starts = str_eq(turn, STR("start")), stops = str_eq(turn, STR("deallocate"));
    if (str_eq(method, STR("POST")) && (starts || stops) && a->ask->body.len == 0) {
        a->row =
            fake_fleet_meet(a->fleet, starts ? FLEET_START : FLEET_STOP, NULL, NULL, a->now_us);
        if (!refuse_fault(a)) turn_machine(a, arena_str(a->arena, of).data, starts);
        return;
    }
    bool deletes = name[0] && str_eq(method, STR("DELETE"));
    if (!get && !deletes) {
        refuse_form(a, "no such method");
        return;
    }
    a->row = fake_fleet_meet(a->fleet, deletes ? FLEET_REMOVE : FLEET_LIST, NULL, NULL, a->now_us);
    if (refuse_fault(a)) return;
    if (deletes)
        delete_machine(a, name);
    else if (name[0])
        show_machine(a, name);
    else
        list_machines(a);
}

static bool is_authorized(const struct answer *a)
{
    return fake_is_bearer(a->ask, a->z->token) && a->now_us < a->z->expires_us;
}

static void answer(struct answer *a)
{
    struct str url = a->ask->url;
    bool prices = str_starts(url, STR("https://prices.azure.com/api/retail/prices?"));
    if (form_target(url, STR(""), &a->at) < 0 || (!prices && !str_starts(url, STR(HOST "/"))))
        refuse_form(a, "no URL of this API");
    else if (prices)
        show_prices(a);
    else if (!is_authorized(a))
        refuse(a, 401, "InvalidAuthenticationToken", "the access token is invalid");
    else
        route(a);
}

static int64_t respond(void *ctx, const struct web_ask *ask, int64_t now_us, struct arena *arena,
                       struct web_reply *ret)
{
    struct fake_azure *z = ctx;
    struct answer a = { .z = z, .fleet = z->fleet, .ask = ask, .arena = arena, .now_us = now_us };
    int64_t took_us;
    if (fake_azure_login(z, ask, now_us, arena, ret, &a.row)) {
        fleet_break_reply(a.row, ret, &took_us);
        return took_us;
    }
    answer(&a);
    fake_fill(ret, arena, a.status, &a.body, a.retry_after_us);
    if (a.operation[0]) fake_put_header(ret, arena, "azure-asyncoperation", a.operation);
    fleet_break_reply(a.row, ret, &took_us);
    return took_us;
}

const struct cloud_fake fake_azure = { .name = "azure", .respond = respond };
