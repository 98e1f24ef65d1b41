/* fake_gce_form.c - checks instances of inserts.
 *
 * Every member that the reference has for an object is in its list or refused; of some that no client of ours sends,
 * only the type is checked. */
#include "tests/fakes/cloud/fake_gce_form.h"

#include "base/core/json.h"
#include "base/core/json_path.h"
#include "base/core/own.h"

#include <stdio.h>
#include <string.h>

#define LABEL_MAX 63
#define METADATA_VALUE_MAX (256 << 10)
#define METADATA_MAX (512 << 10)

/* ---- members ---- */

// clang-format off
static const struct form_field init_form[] = {
    { "sourceImage", FORM_TEXT, true, NULL }, { "diskSizeGb", FORM_TEXT, false, NULL },
    { "diskType", FORM_TEXT, false, NULL }, { "diskName", FORM_TEXT, false, NULL },
    { "labels", FORM_MAP, false, NULL }, { 0 },
};
static const struct form_field disk_form[] = {
    { "boot", FORM_BOOL, false, NULL }, { "autoDelete", FORM_BOOL, false, NULL },
    { "deviceName", FORM_TEXT, false, NULL }, { "mode", FORM_TEXT, false, NULL },
    { "type", FORM_TEXT, false, NULL }, { "source", FORM_TEXT, false, NULL },
    { "initializeParams", FORM_OBJECT, false, init_form }, { 0 },
};
static const struct form_field access_form[] = {
    { "type", FORM_TEXT, false, NULL }, { "name", FORM_TEXT, false, NULL },
    { "natIP", FORM_TEXT, false, NULL }, { "networkTier", FORM_TEXT, false, NULL }, { 0 },
};
static const struct form_field nic_form[] = {
    { "network", FORM_TEXT, false, NULL }, { "subnetwork", FORM_TEXT, false, NULL },
    { "name", FORM_TEXT, false, NULL }, { "nicType", FORM_TEXT, false, NULL },
    { "stackType", FORM_TEXT, false, NULL },
    { "accessConfigs", FORM_OBJECTS, false, access_form }, { 0 },
};
static const struct form_field item_form[] = {
    { "key", FORM_TEXT, true, NULL }, { "value", FORM_TEXT, true, NULL }, { 0 },
};
static const struct form_field metadata_form[] = {
    { "items", FORM_OBJECTS, false, item_form }, { 0 },
};
static const struct form_field scheduling_form[] = {
    { "provisioningModel", FORM_TEXT, false, NULL },
    { "instanceTerminationAction", FORM_TEXT, false, NULL },
    { "onHostMaintenance", FORM_TEXT, false, NULL }, { "automaticRestart", FORM_BOOL, false, NULL },
    { "preemptible", FORM_BOOL, false, NULL }, { "maxRunDuration", FORM_ANY, false, NULL }, { 0 },
};
static const struct form_field gpu_form[] = {
    { "acceleratorType", FORM_TEXT, true, NULL }, { "acceleratorCount", FORM_WHOLE, true, NULL }, { 0 },
};
static const struct form_field account_form[] = {
    { "email", FORM_TEXT, true, NULL }, { "scopes", FORM_TEXTS, true, NULL }, { 0 },
};
static const struct form_field reservation_form[] = {
    { "consumeReservationType", FORM_TEXT, true, NULL }, { "key", FORM_TEXT, false, NULL },
    { "values", FORM_TEXTS, false, NULL }, { 0 },
};
static const struct form_field tags_form[] = { { "items", FORM_TEXTS, false, NULL }, { 0 } };
static const struct form_field instance_form[] = {
    { "name", FORM_TEXT, true, NULL }, { "machineType", FORM_TEXT, true, NULL },
    { "description", FORM_TEXT, false, NULL }, { "hostname", FORM_TEXT, false, NULL },
    { "labels", FORM_MAP, false, NULL }, { "disks", FORM_OBJECTS, false, disk_form },
    { "networkInterfaces", FORM_OBJECTS, false, nic_form },
    { "metadata", FORM_OBJECT, false, metadata_form }, { "tags", FORM_OBJECT, false, tags_form },
    { "scheduling", FORM_OBJECT, false, scheduling_form },
    { "guestAccelerators", FORM_OBJECTS, false, gpu_form },
    { "serviceAccounts", FORM_OBJECTS, false, account_form },
    { "canIpForward", FORM_BOOL, false, NULL }, { "deletionProtection", FORM_BOOL, false, NULL },
    { "minCpuPlatform", FORM_TEXT, false, NULL },
    { "reservationAffinity", FORM_OBJECT, false, reservation_form }, { 0 },
};
static const struct form_field properties_form[] = {
    { "description", FORM_TEXT, false, NULL }, { "machineType", FORM_TEXT, false, NULL },
    { "labels", FORM_MAP, false, NULL }, { "disks", FORM_OBJECTS, false, disk_form },
    { "networkInterfaces", FORM_OBJECTS, false, nic_form },
    { "metadata", FORM_OBJECT, false, metadata_form }, { "tags", FORM_OBJECT, false, tags_form },
    { "scheduling", FORM_OBJECT, false, scheduling_form },
    { "guestAccelerators", FORM_OBJECTS, false, gpu_form },
    { "serviceAccounts", FORM_OBJECTS, false, account_form },
    { "reservationAffinity", FORM_OBJECT, false, reservation_form }, { 0 },
};
static const struct form_field location_form[] = {
    { "targetShape", FORM_TEXT, false, NULL }, { "locations", FORM_ANY, true, NULL }, { 0 },
};
static const struct form_field flexibility_form[] = {
    { "instanceSelections", FORM_ANY, true, NULL }, { 0 },
};
static const struct form_field bulk_form[] = {
    { "count", FORM_TEXT, true, NULL }, { "minCount", FORM_TEXT, false, NULL },
    { "namePattern", FORM_TEXT, false, NULL }, { "sourceInstanceTemplate", FORM_TEXT, false, NULL },
    { "perInstanceProperties", FORM_ANY, false, NULL },
    { "locationPolicy", FORM_OBJECT, false, location_form },
    { "instanceFlexibilityPolicy", FORM_OBJECT, false, flexibility_form },
    { "instanceProperties", FORM_OBJECT, true, properties_form }, { 0 },
};
// clang-format on

/* ---- values ---- */

static int refuse(char why[FORM_WHY_BYTES], const char *text)
{
    snprintf(why, FORM_WHY_BYTES, "%s", text);
    return -EINVAL;
}

static bool is_low(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

/* Names are those of RFC 1035. */
static bool is_name(struct str s)
{
    if (s.len == 0 || s.len > LABEL_MAX || !(s.data[0] >= 'a' && s.data[0] <= 'z')) return false;
    for (size_t i = 0; i < s.len; i++)
        if (!is_low(s.data[i]) && s.data[i] != '-') return false;
    return s.data[s.len - 1] != '-';
}

/* "Label requirements": lower-case letters, digits, - and _; keys begin with a letter. */
static bool is_label(struct str s, bool key)
{
    if (s.len > LABEL_MAX || (key && (s.len == 0 || !(s.data[0] >= 'a' && s.data[0] <= 'z'))))
        return false;
    for (size_t i = 0; i < s.len; i++)
        if (!is_low(s.data[i]) && s.data[i] != '-' && s.data[i] != '_') return false;
    return true;
}

bool gce_form_is_uuid(struct str s)
{
    bool zero = true;
    if (s.len != 36) return false;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.data[i];
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? c != '-' : !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
        zero = zero && (dash || c == '0');
    }
    return !zero;
}

static struct str text_at(struct arena *arena, struct str json, const char *path)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (json_path_text(json, path, &text) < 0) return STR("");
    return arena_str(arena, buf_view(&text));
}

struct reading {
    struct gce_form *f;
    struct arena *arena;
    const char *wrong; /* NULL: nothing */
    size_t bytes;
    uint32_t boots, nics, gpus;
};

static int take_label(void *ctx, struct str name, struct str value)
{
    struct reading *r = ctx;
    struct gce_form *f = r->f;
    struct str text = text_at(r->arena, value, "");
    if (!is_label(name, true) || !is_label(text, false))
        r->wrong = "a label has characters that it may not have";
    if (f->order.tag_count == FLEET_TAGS_MAX) return 0;
    struct fleet_tag *tag = &f->tag[f->order.tag_count++];
    snprintf(tag->name, sizeof tag->name, STR_FMT, STR_ARG(name));
    snprintf(tag->value, sizeof tag->value, STR_FMT, STR_ARG(text));
    return 0;
}

static int take_disk(void *ctx, struct str disk)
{
    struct reading *r = ctx;
    bool boot = false;
    int64_t gib;
    struct str size = text_at(r->arena, disk, "initializeParams.diskSizeGb");
    struct str image = text_at(r->arena, disk, "initializeParams.sourceImage");
    json_path_bool(disk, "boot", &boot);
    r->boots += boot;
    if (size.len > 0 && (str_to_i64(size, &gib) < 0 || gib < 1)) r->wrong = "diskSizeGb";
    if (str_find(image, STR("global/images/")) == SIZE_MAX) r->wrong = "sourceImage is no URL";
    r->f->order.image = image.data;
    r->f->own_image = str_starts(image, str_from("projects/")) &&
                      str_find(image, str_from(r->f->project)) == strlen("projects/");
    return 0;
}

static int take_access(void *ctx, struct str access)
{
    struct reading *r = ctx;
    if (!str_eq(text_at(r->arena, access, "type"), STR("ONE_TO_ONE_NAT")))
        r->wrong = "an access config of an unknown type";
    r->f->has_address = true;
    return 0;
}

static int take_nic(void *ctx, struct str nic)
{
    struct reading *r = ctx;
    struct str network = text_at(r->arena, nic, "network"),
               sub = text_at(r->arena, nic, "subnetwork");
    r->nics++;
    if (network.len > 0 && str_find(network, STR("global/networks/")) == SIZE_MAX)
        r->wrong = "network is no URL";
    if (sub.len > 0 && str_find(sub, STR("regions/")) == SIZE_MAX)
        r->wrong = "subnetwork is no URL";
    if (network.len + sub.len == 0) r->wrong = "an interface needs a network";
    int rc = json_path_each(nic, "accessConfigs", take_access, r);
    return rc == -ENOENT ? 0 : rc;
}

static int take_item(void *ctx, struct str item)
{
    struct reading *r = ctx;
    struct str value = text_at(r->arena, item, "value"), key = text_at(r->arena, item, "key");
    r->f->has_metadata = true;
    r->bytes += value.len + key.len;
    if (value.len > METADATA_VALUE_MAX || r->bytes > METADATA_MAX) r->wrong = "too much metadata";
    if (str_eq(key, STR("startup-script")) || str_eq(key, STR("user-data")))
        r->f->order.user_data = value.data;
    return 0;
}

static int take_gpu(void *ctx, struct str gpu)
{
    struct reading *r = ctx;
    char in_zone[160];
    snprintf(in_zone, sizeof in_zone, "zones/%s/acceleratorTypes/", r->f->zone);
    if (str_find(text_at(r->arena, gpu, "acceleratorType"), str_from(in_zone)) == SIZE_MAX)
        r->wrong = "acceleratorType is no URL of this zone";
    r->gpus++;
    return 0;
}

static int take_name(void *ctx, struct str name)
{
    struct reading *r = ctx;
    if (!is_name(text_at(r->arena, name, ""))) r->wrong = "a network tag is no name";
    r->f->has_tags = true;
    return 0;
}

static int take_account(void *ctx, struct str account)
{
    struct reading *r = ctx;
    (void)account;
    r->f->has_account = true;
    return 0;
}

/* ---- rules that need two members ---- */

static const char *check_scheduling(struct reading *r, struct str body, bool *ret_spot)
{
    bool restarts = true;
    struct str model = text_at(r->arena, body, "scheduling.provisioningModel");
    struct str action = text_at(r->arena, body, "scheduling.instanceTerminationAction");
    struct str host = text_at(r->arena, body, "scheduling.onHostMaintenance");
    json_path_bool(body, "scheduling.automaticRestart", &restarts);
    *ret_spot = str_eq(model, STR("SPOT"));
    bool stays = !str_eq(host, STR("TERMINATE"));
    if (model.len > 0 && !*ret_spot && !str_eq(model, STR("STANDARD"))) return "provisioningModel";
    if (action.len > 0 && !*ret_spot) return "instanceTerminationAction is for spot VMs";
    if (action.len > 0 && !str_eq(action, STR("DELETE")) && !str_eq(action, STR("STOP")))
        return "instanceTerminationAction";
    if (host.len > 0 && stays && !str_eq(host, STR("MIGRATE"))) return "onHostMaintenance";
    if (*ret_spot && (restarts || stays)) return "spot VMs neither restart nor move";
    return r->gpus > 0 && stays ? "VMs with GPUs do not move" : NULL;
}

/* The type and the zone of an instance in a zone. */
static const char *check_place(struct reading *r, struct str body)
{
    struct str type = text_at(r->arena, body, "machineType"), in_zone = type;
    char prefix[160];
    snprintf(prefix, sizeof prefix, "zones/%s/machineTypes/", r->f->zone);
    size_t at = str_find(type, str_from(prefix));
    if (at == SIZE_MAX) return "machineType is no URL of this zone";
    in_zone = str_of(type.data + at + strlen(prefix), type.len - at - strlen(prefix));
    r->f->order.type = arena_str(r->arena, in_zone).data;
    r->f->order.name = text_at(r->arena, body, "name").data;
    return is_name(str_from(r->f->order.name)) ? NULL : "name";
}

static const char *check_values(struct reading *r, struct str body)
{
    if (r->boots != 1 && !(r->f->of_template && r->boots == 0)) return "one disk boots";
    if (r->nics == 0 && !r->f->of_template) return "networkInterfaces is empty";
    return check_scheduling(r, body, &r->f->order.spot);
}

/* Reads what an instance has wherever it is. */
static int read_members(struct reading *r, struct str body, char why[FORM_WHY_BYTES])
{
    const struct {
        const char *path;
        int (*take)(void *ctx, struct str item);
    } lists[] = {
        { "disks", take_disk },          { "networkInterfaces", take_nic },
        { "metadata.items", take_item }, { "guestAccelerators", take_gpu },
        { "tags.items", take_name },     { "serviceAccounts", take_account },
    };
    int rc = json_path_each_member(body, "labels", take_label, r);
    for (size_t i = 0; i < COUNT_OF(lists) && (rc == 0 || rc == -ENOENT); i++)
        rc = json_path_each(body, lists[i].path, lists[i].take, r);
    if (rc < 0 && rc != -ENOENT) return refuse(why, "no JSON");
    r->f->order.tag = r->f->tag;
    if (!r->wrong) r->wrong = check_values(r, body);
    return r->wrong ? refuse(why, r->wrong) : 0;
}

int gce_form_read(const struct web_ask *ask, struct arena *arena, struct gce_form *f,
                  char why[FORM_WHY_BYTES])
{
    struct reading r = { .f = f, .arena = arena };
    if (!str_starts(ask->content_type, STR("application/json"))) return refuse(why, "content-type");
    if (form_check(ask->body, instance_form, why) < 0) return -EINVAL;
    f->order.zone = f->zone;
    r.wrong = check_place(&r, ask->body);
    return read_members(&r, ask->body, why);
}

/* ---- bulk inserts ---- */

static int take_member(void *ctx, struct str name, struct str value)
{
    struct reading *r = ctx;
    struct gce_form *f = r->f;
    if (f->zone_count == FLEET_ZONES_MAX) return -E2BIG;
    if (!str_starts(name, STR("zones/")) ||
        !str_eq(text_at(r->arena, value, "preference"), STR("ALLOW")))
        r->wrong = "locations";
    else
        f->zones[f->zone_count++] = arena_str(r->arena, str_of(name.data + 6, name.len - 6)).data;
    return 0;
}

static int take_type(void *ctx, struct str item)
{
    struct reading *r = ctx;
    struct gce_form *f = r->f;
    if (f->type_count == FLEET_TYPES_MAX) return -E2BIG;
    struct str type = text_at(r->arena, item, "");
    if (!is_name(type)) r->wrong = "a machine type is a name";
    f->types[f->type_count++] = type.data;
    return 0;
}

static int take_selection(void *ctx, struct str name, struct str value)
{
    (void)name;
    return json_path_each(value, "machineTypes", take_type, ctx);
}

/* The key is the name; the member `name` is the provider's to say. */
static int take_instance_name(void *ctx, struct str name, struct str value)
{
    struct reading *r = ctx;
    struct str its_own;
    if (r->f->order.name || !is_name(name) || json_path(value, "name", &its_own) == 0)
        r->wrong = "perInstanceProperties";
    r->f->order.name = arena_str(r->arena, name).data;
    return 0;
}

int gce_form_read_bulk(const struct web_ask *ask, struct arena *arena, struct gce_form *f,
                       char why[FORM_WHY_BYTES])
{
    struct reading r = { .f = f, .arena = arena };
    struct str properties;
    if (!str_starts(ask->content_type, STR("application/json"))) return refuse(why, "content-type");
    if (form_check(ask->body, bulk_form, why) < 0) return -EINVAL;
    if (!str_eq(text_at(arena, ask->body, "count"), STR("1"))) return refuse(why, "count");
    f->template = text_at(arena, ask->body, "sourceInstanceTemplate");
    f->of_template = f->template.len > 0;
    if (json_path_each_member(ask->body, "locationPolicy.locations", take_member, &r) < 0 ||
        json_path_each_member(ask->body, "instanceFlexibilityPolicy.instanceSelections",
                              take_selection, &r) < 0 ||
        json_path_each_member(ask->body, "perInstanceProperties", take_instance_name, &r) < 0 ||
        json_path(ask->body, "instanceProperties", &properties) < 0 || !f->order.name)
        return refuse(why, "a policy or a name is missing");
    return read_members(&r, properties, why);
}
