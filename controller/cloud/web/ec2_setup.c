/* ec2_setup.c - checks the settings of an EC2 cloud, and finds where its services and its instances are. */
#include "base/core/own.h"
#include "controller/cloud/web/ec2.h"

#include <stdlib.h>

/* ---- places ---- */

static bool network_of(const struct web_settings *s, struct str zone, struct str *ret)
{
    const struct config_texts *n = &s->section->networks;
    for (size_t i = 0; i < n->count; i++) {
        struct str subnet = n->items[i], of = str_cut(&subnet, '=');
        if (!subnet.data || !str_eq(of, zone)) continue;
        *ret = subnet;
        return true;
    }
    return false;
}

/* Fills where instances of the offer may be; returns their number, 1 or more. */
static uint32_t places(const struct web_settings *s, const struct web_offer *o,
                       struct ec2_place ret[WEB_ZONES_MAX])
{
    const struct config_texts *n = &s->section->networks;
    uint32_t count = 0;
    for (uint32_t i = 0; i < o->zone_count && i < WEB_ZONES_MAX; i++) {
        ret[count] = (struct ec2_place){ .zone = o->zone[i] };
        (void)network_of(s, o->zone[i], &ret[count++].subnet);
    }
    for (size_t i = 0; o->zone_count == 0 && i < n->count && i < WEB_ZONES_MAX; i++) {
        struct str subnet = n->items[i], zone = str_cut(&subnet, '=');
        ret[count++] = subnet.data ? (struct ec2_place){ .zone = zone, .subnet = subnet }
                                   : (struct ec2_place){ .subnet = zone };
    }
    if (count == 0) ret[count++] = (struct ec2_place){ 0 };
    return count;
}

/* One that is named twice counts once. */
struct str ec2_type(const struct web_offer *o, uint32_t at)
{
    const struct config_texts *more = &o->section->types;
    uint32_t n = 0;
    if (at == 0) return o->type;
    for (size_t i = 0; i < more->count; i++) {
        bool again = str_eq(more->items[i], o->type);
        for (size_t k = 0; k < i; k++)
            again = again || str_eq(more->items[i], more->items[k]);
        if (!again && ++n == at) return more->items[i];
    }
    return (struct str){ 0 };
}

uint32_t ec2_places(const struct web_settings *s, const struct web_offer *o,
                    struct ec2_place ret[EC2_PLACES_MAX])
{
    struct ec2_place of_type[WEB_ZONES_MAX];
    uint32_t each = places(s, o, of_type), count = 0;
    for (uint32_t t = 0; ec2_type(o, t).data; t++)
        for (uint32_t i = 0; i < each && count < EC2_PLACES_MAX; i++) {
            ret[count] = of_type[i];
            ret[count++].type = ec2_type(o, t);
        }
    return count;
}

/* ---- settings ---- */

static int check_offer(const struct web_settings *s, const struct web_offer_section *o,
                       struct err *err)
{
    struct str subnet;
    for (size_t i = 0; s->section->networks.count > 0 && i < o->zones.count; i++)
        if (!network_of(s, o->zones.items[i], &subnet))
            return err_set(
                err, -EINVAL,
                "offer " STR_FMT ": zone " STR_FMT ": networks has no " STR_FMT "=SUBNET",
                STR_ARG(o->name), STR_ARG(o->zones.items[i]), STR_ARG(o->zones.items[i]));
    size_t zones = o->zones.count > 0 ? o->zones.count : s->section->networks.count;
    if ((o->types.count + 1) * zones > EC2_PLACES_MAX)
        return err_set(err, -EINVAL,
                       "offer " STR_FMT ": types: with %zu zones; %d together at most",
                       STR_ARG(o->name), zones, EC2_PLACES_MAX);
    if (o->types.count > 0 && o->capacity_reservation.len > 0)
        return err_set(err, -EINVAL, "offer " STR_FMT ": types: a capacity_reservation is of one",
                       STR_ARG(o->name));
    if (o->spot && o->capacity_reservation.len > 0)
        return err_set(err, -EINVAL, "offer " STR_FMT ": capacity_reservation: it is spot",
                       STR_ARG(o->name));
    return 0;
}

struct str ec2_template(const struct web_settings *s, struct str *ret_version, bool *ret_is_id)
{
    struct str version = s->section->launch_template, name = str_cut(&version, ':');
    *ret_version = version.data ? version : STR("$Default");
    *ret_is_id = str_starts(name, STR("lt-"));
    return name;
}

static bool is_version(struct str v)
{
    uint64_t n;
    return str_eq(v, STR("$Default")) || str_eq(v, STR("$Latest")) ||
           (str_to_u64(v, &n) == 0 && n > 0);
}

/* A template of the user's has the network interfaces; of what it may have besides, the section replaces it. */
static int check_template(const struct web_settings *s, struct err *err)
{
    const struct web_section *c = s->section;
    struct str version;
    bool is_id;
    struct str name = ec2_template(s, &version, &is_id);
    if (c->launch_template.len == 0)
        return c->image.len > 0
                   ? 0
                   : err_set(err, -EINVAL, "image: kind ec2 needs it, or a launch_template");
    if (name.len == 0 || name.len > 128)
        return err_set(err, -EINVAL, "launch_template: want lt-..., or a name, and :VERSION");
    if (!is_version(version))
        return err_set(err, -EINVAL,
                       "launch_template: version '" STR_FMT "': want a number, $Default or $Latest",
                       STR_ARG(version));
    if (c->firewalls.count > 0 || !c->public_address)
        return err_set(err, -EINVAL, "%s: the launch template has the network interfaces",
                       c->firewalls.count > 0 ? "firewalls" : "public_address");
    if (c->disk_bytes > 0 && c->image.len == 0)
        return err_set(err, -EINVAL,
                       "disk: the launch template has the disks, unless image is set");
    return 0;
}

int ec2_check(const struct web_settings *s, struct err *err)
{
    const struct web_section *c = s->section;
    int of_template = check_template(s, err);
    if (of_template < 0) return of_template;
    for (size_t i = 0; i < c->region.len; i++) {
        char b = c->region.data[i];
        if (!(b >= 'a' && b <= 'z') && !(b >= '0' && b <= '9') && b != '-')
            return err_set(err, -EINVAL, "region: '" STR_FMT "': want the like of eu-central-1",
                           STR_ARG(c->region));
    }
    for (size_t i = 0; i < c->networks.count; i++) {
        struct str subnet = c->networks.items[i], first = str_cut(&subnet, '=');
        if (!str_starts(subnet.data ? subnet : first, STR("subnet-")))
            return err_set(err, -EINVAL, "networks: '" STR_FMT "': want SUBNET or ZONE=SUBNET",
                           STR_ARG(c->networks.items[i]));
    }
    for (size_t i = 0; i < c->firewalls.count; i++)
        if (!str_starts(c->firewalls.items[i], STR("sg-")))
            return err_set(err, -EINVAL,
                           "firewalls: '" STR_FMT "': want the id of a security group",
                           STR_ARG(c->firewalls.items[i]));
    if (c->ssh_keys.count > 1) return err_set(err, -EINVAL, "ssh_keys: EC2 takes one key pair");
    if (c->disk_bytes > 0 && !str_starts(c->image, STR("ami-")))
        return err_set(err, -EINVAL, "disk: needs an image ami-..., whose root disk is looked up");
    const struct web_offer_section *offer = c->offers.items;
    int rc = 0;
    for (size_t i = 0; i < c->offers.count && rc == 0; i++)
        rc = check_offer(s, &offer[i], err);
    return rc;
}

static struct str endpoint_of(struct ec2 *e, const struct web_provider *p, const char *service,
                              const char *variable, struct str region)
{
    CLEANUP(buf_fini) struct buf url = { 0 };
    const char *zone = str_starts(region, STR("cn-")) ? "amazonaws.com.cn" : "amazonaws.com";
    struct str named = web_environment(p->host, str_from(variable));
    while (named.len > 0 && named.data[named.len - 1] == '/')
        named.len--;
    if (named.len > 0) return arena_str(&e->arena, named);
    buf_printf(&url, "https://%s." STR_FMT ".%s", service, STR_ARG(region), zone);
    return arena_str(&e->arena, buf_view(&url));
}

/* Prices are told in few regions. Where `endpoint` is set the prices of Amazon itself say nothing, unless the
 * variable of Amazon's clients names a service for them too. */
static void find_pricing(struct ec2 *e, const struct web_provider *p, struct str region)
{
    static const char variable[] = "AWS_ENDPOINT_URL_PRICING";
    bool named = web_environment(p->host, str_from(variable)).len > 0;
    if (p->settings->section->endpoint.len > 0 && !named) return;
    e->pricing_region = str_starts(region, STR("cn-")) ? STR("cn-northwest-1") : STR("us-east-1");
    e->pricing = endpoint_of(e, p, "api.pricing", variable, e->pricing_region);
}

int ec2_open(struct web_provider *p, struct err *err)
{
    const struct web_settings *s = p->settings;
    (void)err;
    struct ec2 *e = calloc(1, sizeof *e);
    must(e);
    arena_init(&e->arena, 4096);
    struct str region = s->section->region;
    e->endpoint = s->endpoint.len > 0 ? s->endpoint
                                      : endpoint_of(e, p, "ec2", "AWS_ENDPOINT_URL_EC2", region);
    e->sts = endpoint_of(e, p, "sts", "AWS_ENDPOINT_URL_STS", region);
    find_pricing(e, p, region);
    p->own = e;
    return 0;
}

void ec2_close(struct web_provider *p)
{
    if (!p->own) return;
    arena_fini(&ec2_of(p)->arena);
    free(p->own);
    p->own = NULL;
}
