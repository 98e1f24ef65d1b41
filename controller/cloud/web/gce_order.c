/* gce_order.c - writes instances for the API of Google Compute Engine: one in a zone, or one in the zone and of the
 * type that Google chooses among several (bulkInsert), whose types are names and no URLs.
 *
 * Spot VMs are deleted at their end, so that no disk of a lost VM is billed on, and are not restarted. A VM with GPUs
 * cannot move to another host and says so.
 *
 * Source: the reference of instances.insert; "About GPUs", "Spot VMs", "Use startup scripts" of the documentation. */
#include "controller/cloud/web/gce_order.h"

#include "base/core/json.h"
#include "base/core/own.h"
#include "controller/cloud/web/web_tags.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define GIB ((int64_t)1 << 30)
#define WORD_MAX 63 /* characters of a network tag, a zone or a type */

static const struct web_tag_rule label_rule = { .upper = false, .dot = false };

/* ---- settings ---- */

/* Returns true if a text is what the API takes as a name: it stands in URLs. */
static bool is_word(struct str s)
{
    bool fine = s.len > 0 && s.len <= WORD_MAX && s.data[0] >= 'a' && s.data[0] <= 'z' &&
                s.data[s.len - 1] != '-';
    for (size_t i = 0; i < s.len; i++) {
        char c = s.data[i];
        fine = fine && ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-');
    }
    return fine;
}

struct str gce_region(struct str zone)
{
    while (zone.len > 0 && zone.data[zone.len - 1] != '-')
        zone.len--;
    return str_of(zone.data, zone.len > 0 ? zone.len - 1 : 0);
}

static int check_offer(const struct web_offer *o, struct err *err)
{
    const char *name = o->offer.name;
    struct str gpu = o->section->gpu_type;
    if (o->zone_count == 0)
        return err_set(err, -EINVAL, "offer %s: zones: kind gce needs one or more", name);
    if (!is_word(o->type))
        return err_set(err, -EINVAL, "offer %s: type: '" STR_FMT "' is no machine type", name,
                       STR_ARG(o->type));
    if (gpu.len > 0 && !is_word(gpu))
        return err_set(err, -EINVAL, "offer %s: gpu_type: '" STR_FMT "' is no accelerator type",
                       name, STR_ARG(gpu));
    const struct config_texts *types = &o->section->types;
    for (size_t i = 0; i < types->count; i++)
        if (!is_word(types->items[i]))
            return err_set(err, -EINVAL, "offer %s: types: '" STR_FMT "' is no machine type", name,
                           STR_ARG(types->items[i]));
    for (uint32_t i = 1; i < o->zone_count && types->count > 0; i++)
        if (!str_eq(gce_region(o->zone[i]), gce_region(o->zone[0])))
            return err_set(
                err, -EINVAL,
                "offer %s: types: Google chooses in one region, and the zones are of two", name);
    for (uint32_t i = 0; i < o->zone_count; i++)
        if (!is_word(o->zone[i]) || o->zone[i].len + INTENT_ID_BYTES >= NAME_BYTES)
            return err_set(err, -EINVAL, "offer %s: zones: '" STR_FMT "' is no zone", name,
                           STR_ARG(o->zone[i]));
    return 0;
}

int gce_template_check(const struct web_settings *s, struct err *err)
{
    const struct web_section *c = s->section;
    if (c->launch_template.len == 0 && c->image.len == 0)
        return err_set(err, -EINVAL, "image: kind gce needs it, or a launch_template");
    if (c->launch_template.len > 0 && c->image.len == 0 && c->disk_bytes > 0)
        return err_set(err, -EINVAL,
                       "disk: the instance template has the disks, unless image is set");
    if (c->launch_template.len > 0 && c->networks.count == 0 && !c->public_address)
        return err_set(
            err, -EINVAL,
            "public_address: the instance template has the interfaces, unless networks are set");
    for (size_t i = 0; i < c->launch_template.len; i++)
        if (!isalnum((unsigned char)c->launch_template.data[i]) &&
            !memchr("-./:_", c->launch_template.data[i], 5))
            return err_set(err, -EINVAL,
                           "launch_template: '" STR_FMT
                           "': want the name or the URL of an instance template",
                           STR_ARG(c->launch_template));
    return 0;
}

int gce_order_check(const struct web_settings *s, struct err *err)
{
    struct str project = s->section->project;
    const struct config_texts *tags = &s->section->firewalls;
    for (size_t i = 0; i < project.len; i++) {
        char c = project.data[i];
        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && !memchr("-.:", c, 3))
            return err_set(err, -EINVAL, "project: '" STR_FMT "' is no project's id",
                           STR_ARG(project));
    }
    for (size_t i = 0; i < tags->count; i++)
        if (!is_word(tags->items[i]))
            return err_set(err, -EINVAL, "firewalls: '" STR_FMT "': want a network tag",
                           STR_ARG(tags->items[i]));
    for (uint32_t i = 0; i < s->offer_count; i++) {
        int rc = check_offer(&s->offer[i], err);
        if (rc < 0) return rc;
    }
    return 0;
}

/* ---- the instance ---- */

static bool has_slash(struct str s)
{
    return str_find(s, STR("/")) != SIZE_MAX;
}

/* Writes a member with a partial URL: `before`, and `name` behind it; a name that is a URL stays. */
static void put_url(struct json_writer *w, const char *key, const char *before, struct str middle,
                    const char *after, struct str name)
{
    CLEANUP(buf_fini) struct buf url = { 0 };
    if (!has_slash(name)) {
        buf_text(&url, before);
        buf_str(&url, middle);
        buf_text(&url, after);
    }
    buf_str(&url, name);
    json_kv_str(w, key, buf_view(&url));
    if (url.rc < 0) w->out->rc = url.rc;
}

static void put_disk(struct json_writer *w, const struct web_section *s)
{
    json_key(w, "disks");
    json_array(w);
    json_object(w);
    json_kv_bool(w, "boot", true);
    json_kv_bool(w, "autoDelete", true);
    json_key(w, "initializeParams");
    json_object(w);
    put_url(w, "sourceImage", "projects/", s->project, "/global/images/", s->image);
    if (s->disk_bytes > 0) { /* 64-bit numbers are texts in this API */
        char gib[24];
        snprintf(gib, sizeof gib, "%lld", (long long)((s->disk_bytes + GIB - 1) / GIB));
        json_kv_text(w, "diskSizeGb", gib);
    }
    json_object_end(w);
    json_object_end(w);
    json_array_end(w);
}

/* A subnet has its own member; everything else is a network. */
static void put_network(struct json_writer *w, const struct web_section *s, struct str network,
                        bool first)
{
    bool subnet = str_find(network, STR("subnetworks/")) != SIZE_MAX;
    json_object(w);
    if (subnet)
        json_kv_str(w, "subnetwork", network);
    else
        put_url(w, "network", "global/networks/", (struct str){ 0 }, "", network);
    if (first && s->public_address) {
        json_key(w, "accessConfigs");
        json_array(w);
        json_object(w);
        json_kv_text(w, "type", "ONE_TO_ONE_NAT");
        json_kv_text(w, "name", "External NAT");
        json_object_end(w);
        json_array_end(w);
    }
    json_object_end(w);
}

static void put_interfaces(struct json_writer *w, const struct web_section *s)
{
    json_key(w, "networkInterfaces");
    json_array(w);
    if (s->networks.count == 0) put_network(w, s, STR("default"), true);
    for (size_t i = 0; i < s->networks.count; i++)
        put_network(w, s, s->networks.items[i], i == 0);
    json_array_end(w);
}

static void put_tags(struct json_writer *w, const struct web_section *s)
{
    if (s->firewalls.count == 0) return;
    json_key(w, "tags");
    json_object(w);
    json_key(w, "items");
    json_array(w);
    for (size_t i = 0; i < s->firewalls.count; i++)
        json_put_str(w, s->firewalls.items[i]);
    json_array_end(w);
    json_object_end(w);
}

void gce_template(const struct web_settings *s, struct buf *out)
{
    struct str name = s->section->launch_template;
    if (!has_slash(name))
        buf_printf(out, "projects/" STR_FMT "/global/instanceTemplates/",
                   STR_ARG(s->section->project));
    buf_str(out, name);
}

struct label_put {
    struct json_writer *w;
    struct err *err;
};

static int put_label(void *ctx, const char *name, struct str text)
{
    struct label_put *l = ctx;
    char value[WEB_TAG_BYTES];
    int rc = web_tag_write(&label_rule, text, name, value, l->err);
    if (rc == 0) json_kv_text(l->w, name, value);
    return rc;
}

/* A script is run by Google's agent, which all of Google's images have; anything else is cloud-init's. Both keys at
 * once would run it twice where an image has both. */
static void put_user_data(struct json_writer *w, struct str user_data)
{
    json_key(w, "metadata");
    json_object(w);
    json_key(w, "items");
    json_array(w);
    json_object(w);
    json_kv_text(w, "key", str_starts(user_data, STR("#!")) ? "startup-script" : "user-data");
    json_kv_str(w, "value", user_data);
    json_object_end(w);
    json_array_end(w);
    json_object_end(w);
}

static void put_scheduling(struct json_writer *w, const struct web_offer_section *o)
{
    json_key(w, "scheduling");
    json_object(w);
    json_kv_text(w, "provisioningModel", o->spot ? "SPOT" : "STANDARD");
    if (o->spot) json_kv_text(w, "instanceTerminationAction", "DELETE");
    if (o->spot) json_kv_bool(w, "automaticRestart", false);
    if (o->spot || o->gpus > 0) json_kv_text(w, "onHostMaintenance", "TERMINATE");
    json_object_end(w);
}

static void put_gpus(struct json_writer *w, const struct web_settings *s,
                     const struct web_offer_section *o, struct str zone)
{
    if (o->gpu_type.len == 0) return;
    CLEANUP(buf_fini) struct buf url = { 0 };
    if (zone.len > 0)
        buf_printf(&url, "projects/" STR_FMT "/zones/" STR_FMT "/acceleratorTypes/",
                   STR_ARG(s->section->project), STR_ARG(zone));
    buf_str(&url, o->gpu_type);
    json_key(w, "guestAccelerators");
    json_array(w);
    json_object(w);
    json_kv_str(w, "acceleratorType", buf_view(&url));
    json_kv_i64(w, "acceleratorCount", o->gpus);
    json_object_end(w);
    json_array_end(w);
    if (url.rc < 0) w->out->rc = url.rc;
}

/* Reserved capacity that only those may use who name it; without, the API takes what any VM may use. */
static void put_reservation(struct json_writer *w, struct str name)
{
    if (name.len == 0) return;
    json_key(w, "reservationAffinity");
    json_object(w);
    json_kv_text(w, "consumeReservationType", "SPECIFIC_RESERVATION");
    json_kv_text(w, "key", "compute.googleapis.com/reservation-name");
    json_key(w, "values");
    json_array(w);
    json_put_str(w, name);
    json_array_end(w);
    json_object_end(w);
}

static void put_account(struct json_writer *w, struct str account)
{
    if (account.len == 0) return;
    json_key(w, "serviceAccounts");
    json_array(w);
    json_object(w);
    json_kv_str(w, "email", account);
    json_key(w, "scopes");
    json_array(w);
    json_put_text(w, "https://www.googleapis.com/auth/cloud-platform");
    json_array_end(w);
    json_object_end(w);
    json_array_end(w);
}

/* Writes the members that an instance has wherever it is; `zone` empty: it is not known. */
static int put_instance(struct json_writer *w, const struct web_settings *s,
                        const struct web_op *op, struct str zone, struct err *err)
{
    const struct web_offer_section *o = op->offer->section;
    json_key(w, "labels");
    json_object(w);
    int rc = web_tags_each(op, s->fleet, put_label, &(struct label_put){ .w = w, .err = err });
    json_object_end(w);
    bool of_template =
        s->section->launch_template.len > 0; /* what is written replaces its members */
    if (!of_template || s->section->image.len > 0) put_disk(w, s->section);
    if (!of_template || s->section->networks.count > 0) put_interfaces(w, s->section);
    put_tags(w, s->section);
    put_user_data(w, op->user_data);
    put_scheduling(w, o);
    put_gpus(w, s, o, zone);
    put_reservation(w, o->capacity_reservation);
    put_account(w, s->section->account);
    return rc;
}

int gce_order_write(const struct web_settings *s, const struct web_op *op, struct str zone,
                    struct buf *out, struct err *err)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_text(&w, "name", op->call->intent);
    put_url(&w, "machineType", "zones/", zone, "/machineTypes/", op->offer->type);
    int rc = put_instance(&w, s, op, zone, err);
    json_object_end(&w);
    return rc < 0 ? rc : out->rc;
}

static void put_zones(struct json_writer *w, const struct web_offer *o)
{
    json_key(w, "locationPolicy");
    json_object(w);
    json_kv_text(w, "targetShape", "ANY");
    json_key(w, "locations");
    json_object(w);
    for (uint32_t i = 0; i < o->zone_count; i++) {
        char name[NAME_BYTES + 8];
        snprintf(name, sizeof name, "zones/" STR_FMT, STR_ARG(o->zone[i]));
        json_key(w, name);
        json_object(w);
        json_kv_text(w, "preference", "ALLOW");
        json_object_end(w);
    }
    json_object_end(w);
    json_object_end(w);
}

/* Types of one rank are alike: which of them it is, Google says by what it has. */
static void put_types(struct json_writer *w, const struct web_offer *o)
{
    json_key(w, "instanceFlexibilityPolicy");
    json_object(w);
    json_key(w, "instanceSelections");
    json_object(w);
    json_key(w, "any");
    json_object(w);
    json_key(w, "machineTypes");
    json_array(w);
    json_put_str(w, o->type);
    for (size_t i = 0; i < o->section->types.count; i++)
        if (!str_eq(o->section->types.items[i], o->type))
            json_put_str(w, o->section->types.items[i]);
    json_array_end(w);
    json_object_end(w);
    json_object_end(w);
    json_object_end(w);
}

static void put_template(struct json_writer *w, const struct web_settings *s)
{
    CLEANUP(buf_fini) struct buf url = { 0 };
    if (s->section->launch_template.len == 0) return;
    gce_template(s, &url);
    json_kv_str(w, "sourceInstanceTemplate", buf_view(&url));
    if (url.rc < 0) w->out->rc = url.rc;
}

int gce_order_write_bulk(const struct web_settings *s, const struct web_op *op, struct buf *out,
                         struct err *err)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_text(&w, "count", "1"); /* 64-bit numbers are texts in this API */
    json_kv_text(&w, "minCount", "1");
    json_key(&w, "perInstanceProperties");
    json_object(&w);
    json_key(&w, op->call->intent);
    json_object(&w); /* its key is the name */
    json_object_end(&w);
    json_object_end(&w);
    put_template(&w, s);
    put_zones(&w, op->offer);
    put_types(&w, op->offer);
    json_key(&w, "instanceProperties");
    json_object(&w);
    int rc = put_instance(&w, s, op, (struct str){ 0 }, err);
    json_object_end(&w);
    json_object_end(&w);
    return rc < 0 ? rc : out->rc;
}
