/* azure_order.c - writes virtual machines for Azure's Compute API.
 *
 * Interface, address and disk are made with the machine and marked to go with it, so that one DELETE ends all that is
 * billed. The API wants an account to log in with; a key is its only way in here.
 *
 * Source: the reference of "Virtual Machines - Create Or Update". */
#include "controller/cloud/web/azure_order.h"

#include "base/core/base64.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "controller/cloud/web/web_tags.h"

#include <string.h>

#define NETWORK_VERSION "2022-11-01"
#define ACCOUNT "muster"
#define KEYS_FILE \
    "/"           \
    "home/" ACCOUNT "/.ssh/authorized_keys" /* of the machine; the API takes no other */
#define GIB ((int64_t)1 << 30)
#define SUBNETS_MAX 8

/* ---- settings ---- */

static bool is_id(struct str s)
{
    return str_starts(s, STR("/subscriptions/"));
}

/* Returns true if a text may stand in a URL as it is. */
static bool is_word(struct str s)
{
    bool fine = s.len > 0;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.data[i];
        fine = fine && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                        (c >= '0' && c <= '9') || memchr("-_.", c, 3));
    }
    return fine;
}

static bool is_urn(struct str s)
{
    for (int part = 0; part < 4; part++)
        if (!is_word(str_cut(&s, ':'))) return false;
    return s.len == 0;
}

static int check_ids(const struct config_texts *ids, const char *name, uint32_t max,
                     struct err *err)
{
    if (ids->count > max) return err_set(err, -EINVAL, "%s: %u at most", name, max);
    for (size_t i = 0; i < ids->count; i++)
        if (!is_id(ids->items[i]))
            return err_set(err, -EINVAL, "%s: '" STR_FMT "': want /subscriptions/...", name,
                           STR_ARG(ids->items[i]));
    return 0;
}

int azure_order_check(const struct web_settings *s, struct err *err)
{
    const struct web_section *c = s->section;
    if (!is_word(c->project) || !is_word(c->group) || !is_word(c->region))
        return err_set(err, -EINVAL, "project, group, region: want letters, digits and -_.");
    if (!is_id(c->image) && !is_urn(c->image))
        return err_set(err, -EINVAL, "image: want PUBLISHER:OFFER:SKU:VERSION or an image's id");
    if (c->account.len > 0 && !is_id(c->account))
        return err_set(err, -EINVAL, "account: want the id of a managed identity");
    for (uint32_t i = 0; i < s->offer_count; i++)
        if (!is_word(s->offer[i].type))
            return err_set(err, -EINVAL, "offer %s: type: '" STR_FMT "' is no size",
                           s->offer[i].offer.name, STR_ARG(s->offer[i].type));
    int rc = check_ids(&c->networks, "networks", SUBNETS_MAX, err);
    return rc < 0 ? rc : check_ids(&c->firewalls, "firewalls", 1, err);
}

/* ---- parts ---- */

static void begin(struct json_writer *w, const char *name)
{
    json_key(w, name);
    json_object(w);
}

/* Writes { "id": ID } as a member. */
static void put_id(struct json_writer *w, const char *name, struct str id)
{
    begin(w, name);
    json_kv_str(w, "id", id);
    json_object_end(w);
}

static int put_tag(void *ctx, const char *name, struct str text)
{
    json_kv_str(ctx, name, text);
    return 0;
}

static void put_image(struct json_writer *w, struct str image)
{
    static const char *const names[] = { "publisher", "offer", "sku", "version" };
    begin(w, "imageReference");
    if (is_id(image)) json_kv_str(w, "id", image);
    for (size_t i = 0; i < COUNT_OF(names) && !is_id(image); i++)
        json_kv_str(w, names[i], str_cut(&image, ':'));
    json_object_end(w);
}

static void put_storage(struct json_writer *w, const struct web_section *s)
{
    begin(w, "storageProfile");
    put_image(w, s->image);
    begin(w, "osDisk");
    json_kv_text(w, "createOption", "FromImage");
    json_kv_text(w, "deleteOption", "Delete");
    if (s->disk_bytes > 0) json_kv_i64(w, "diskSizeGB", (s->disk_bytes + GIB - 1) / GIB);
    json_object_end(w);
    json_object_end(w);
}

static void put_keys(struct json_writer *w, const struct web_section *s)
{
    begin(w, "linuxConfiguration");
    json_kv_bool(w, "disablePasswordAuthentication", true);
    begin(w, "ssh");
    json_key(w, "publicKeys");
    json_array(w);
    for (size_t i = 0; i < s->ssh_keys.count; i++) {
        json_object(w);
        json_kv_text(w, "path", KEYS_FILE);
        json_kv_str(w, "keyData", s->ssh_keys.items[i]);
        json_object_end(w);
    }
    json_array_end(w);
    json_object_end(w);
    json_object_end(w);
}

static void put_os(struct json_writer *w, const struct web_section *s, const struct web_op *op)
{
    CLEANUP(buf_fini) struct buf data = { 0 };
    base64_put(&data, op->user_data);
    begin(w, "osProfile");
    json_kv_text(w, "computerName", op->call->intent);
    json_kv_text(w, "adminUsername", ACCOUNT);
    json_kv_str(w, "customData", buf_view(&data));
    put_keys(w, s);
    json_object_end(w);
    if (data.rc < 0) w->out->rc = data.rc;
    if (data.data) explicit_bzero(data.data, data.len);
}

static void put_address(struct json_writer *w)
{
    begin(w, "publicIPAddressConfiguration");
    json_kv_text(w, "name", "public");
    begin(w, "sku");
    json_kv_text(w, "name", "Standard");
    json_object_end(w);
    begin(w, "properties");
    json_kv_text(w, "deleteOption", "Delete");
    json_kv_text(w, "publicIPAllocationMethod", "Static");
    json_object_end(w);
    json_object_end(w);
}

static void put_interface(struct json_writer *w, const struct web_section *s, size_t i)
{
    char name[16] = "nic0";
    name[3] = (char)('0' + i);
    json_object(w);
    json_kv_text(w, "name", name);
    begin(w, "properties");
    json_kv_bool(w, "primary", i == 0);
    json_kv_text(w, "deleteOption", "Delete");
    if (s->firewalls.count > 0) put_id(w, "networkSecurityGroup", s->firewalls.items[0]);
    json_key(w, "ipConfigurations");
    json_array(w);
    json_object(w);
    json_kv_text(w, "name", "ip");
    begin(w, "properties");
    json_kv_bool(w, "primary", true);
    put_id(w, "subnet", s->networks.items[i]);
    if (i == 0 && s->public_address) put_address(w);
    json_object_end(w);
    json_object_end(w);
    json_array_end(w);
    json_object_end(w);
    json_object_end(w);
}

static void put_network(struct json_writer *w, const struct web_section *s)
{
    begin(w, "networkProfile");
    json_kv_text(w, "networkApiVersion", NETWORK_VERSION);
    json_key(w, "networkInterfaceConfigurations");
    json_array(w);
    for (size_t i = 0; i < s->networks.count; i++)
        put_interface(w, s, i);
    json_array_end(w);
    json_object_end(w);
}

static void put_purchase(struct json_writer *w, const struct web_offer_section *o)
{
    if (o->capacity_reservation.len > 0) {
        begin(w, "capacityReservation");
        put_id(w, "capacityReservationGroup", o->capacity_reservation);
        json_object_end(w);
    }
    if (!o->spot) return;
    json_kv_text(w, "priority", "Spot");
    json_kv_text(w, "evictionPolicy", "Delete");
    begin(w, "billingProfile"); /* -1: up to the price on demand */
    json_kv_f64(w, "maxPrice", o->spot_price_max_h > 0 ? o->spot_price_max_h : -1);
    json_object_end(w);
}

static void put_identity(struct json_writer *w, struct str account)
{
    if (account.len == 0) return;
    begin(w, "identity");
    json_kv_text(w, "type", "UserAssigned");
    begin(w, "userAssignedIdentities");
    json_key_str(w, account);
    json_object(w);
    json_object_end(w);
    json_object_end(w);
    json_object_end(w);
}

int azure_order_write(const struct web_settings *s, const struct web_op *op, struct str zone,
                      struct buf *out)
{
    const struct web_section *c = s->section;
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_str(&w, "location", c->region);
    if (zone.len > 0) {
        json_key(&w, "zones");
        json_array(&w);
        json_put_str(&w, zone);
        json_array_end(&w);
    }
    begin(&w, "tags");
    web_tags_each(op, s->fleet, put_tag, &w);
    json_object_end(&w);
    put_identity(&w, c->account);
    begin(&w, "properties");
    begin(&w, "hardwareProfile");
    json_kv_str(&w, "vmSize", op->offer->type);
    json_object_end(&w);
    put_storage(&w, c);
    put_os(&w, c, op);
    put_network(&w, c);
    put_purchase(&w, op->offer->section);
    json_object_end(&w);
    json_object_end(&w);
    return out->rc;
}
