/* ec2_order.c - writes what is asked for: RunInstances one instance in one place, CreateFleet one instance in one of
 * several, and CreateLaunchTemplate what those of a fleet have in common.
 *
 * The instance and its disk carry the tags from their first moment. A network interface is written out, since only
 * there an address of the internet can be asked for or refused; the interface then has subnet and firewalls. A fleet
 * puts the subnet of its choice there.
 *
 * A template has the settings of the cloud and no secret: type, place, price, tags and user data are the fleet's own
 * (LaunchTemplateSpecificationUserData, of fleets of type instant alone). Its name has a digest of its settings, so
 * that other settings have another template and nothing is ever changed under a controller of another version. */
#include "base/core/base64.h"
#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/core/own.h"
#include "controller/cloud/web/ec2.h"
#include "controller/cloud/web/web_tags.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define GIB ((int64_t)1 << 30)
#define TOKEN_BYTES (SHA256_HEX + 1) /* EC2 takes 64 characters */

static void put_tag(struct buf *body, int spec, int tag, const char *name, struct str text)
{
    aws_put_text(body, name, "TagSpecification.%d.Tag.%d.Key", spec, tag);
    aws_put(body, text, "TagSpecification.%d.Tag.%d.Value", spec, tag);
}

struct tag_put {
    struct buf *body;
    int spec, tag;
};

static int put_next_tag(void *ctx, const char *name, struct str text)
{
    struct tag_put *t = ctx;
    put_tag(t->body, t->spec, t->tag++, name, text);
    return 0;
}

static void put_tags(struct buf *body, const struct web_provider *p, const struct web_op *op)
{
    static const char *const kinds[] = { "instance", "volume" };
    for (int i = 0; i < (int)COUNT_OF(kinds); i++) {
        aws_put_text(body, kinds[i], "TagSpecification.%d.ResourceType", i + 1);
        put_tag(body, i + 1, 1, "Name", str_from(op->call->intent));
        web_tags_each(op, p->settings->fleet, put_next_tag,
                      &(struct tag_put){ .body = body, .spec = i + 1, .tag = 2 });
    }
}

/* Where parameters of an instance stand: at the top of a form, or below a template's. */
struct form {
    struct buf *body;
    const char *prefix;
};

__attribute__((format(printf, 3, 4))) static void put(const struct form *f, struct str value,
                                                      const char *format, ...)
{
    char name[160];
    va_list ap;
    va_start(ap, format);
    vsnprintf(name, sizeof name, format, ap);
    va_end(ap);
    aws_put(f->body, value, "%s%s", f->prefix, name);
}

static void put_network(const struct form *f, const struct web_section *s, struct str subnet)
{
    struct str public = s->public_address ? STR("true") : STR("false");
    put(f, STR("0"), "NetworkInterface.1.DeviceIndex");
    put(f, public, "NetworkInterface.1.AssociatePublicIpAddress");
    if (subnet.len > 0) put(f, subnet, "NetworkInterface.1.SubnetId");
    for (size_t i = 0; i < s->firewalls.count; i++)
        put(f, s->firewalls.items[i], "NetworkInterface.1.SecurityGroupId.%zu", i + 1);
}

static void put_disk(const struct form *f, const struct ec2 *e, const struct web_section *s)
{
    char gib[24];
    if (s->disk_bytes == 0) return;
    snprintf(gib, sizeof gib, "%lld", (long long)((s->disk_bytes + GIB - 1) / GIB));
    put(f, str_from(e->root_device), "BlockDeviceMapping.1.DeviceName");
    put(f, str_from(gib), "BlockDeviceMapping.1.Ebs.VolumeSize");
    put(f, STR("gp3"), "BlockDeviceMapping.1.Ebs.VolumeType");
    put(f, STR("true"), "BlockDeviceMapping.1.Ebs.DeleteOnTermination");
}

static void put_profile(const struct form *f, struct str account)
{
    if (account.len == 0) return;
    bool arn = str_starts(account, STR("arn:"));
    put(f, account, "IamInstanceProfile.%s", arn ? "Arn" : "Name");
}

/* Writes the settings that all machines of the cloud share. `stops`: they may be kept stopped. */
static void put_machine(const struct form *f, const struct web_provider *p, bool stops,
                        struct str subnet)
{
    const struct web_section *s = p->settings->section;
    bool of_template = s->launch_template.len > 0;
    if (s->image.len > 0) put(f, s->image, "ImageId");
    /* An agent that nobody claims shuts its machine down, which then is no longer paid for. One that is kept stopped
     * must outlive the end of its agent: a stopped one that nobody claims costs its disk until a listing shows it. */
    put(f, stops ? STR("stop") : STR("terminate"), "InstanceInitiatedShutdownBehavior");
    put(f, STR("required"), "MetadataOptions.HttpTokens");
    if (s->ssh_keys.count > 0) put(f, s->ssh_keys.items[0], "KeyName");
    put_profile(f, s->account);
    if (!of_template)
        put_network(f, s, subnet);
    else if (subnet.len > 0)
        put(f, subnet, "SubnetId");
    put_disk(f, ec2_of(p), s);
}

/* The user's own template, as the base of what is ordered. */
static void put_template(struct buf *body, const struct web_settings *s, const char *prefix)
{
    struct str version;
    bool is_id;
    struct str name = ec2_template(s, &version, &is_id);
    if (name.len == 0) return;
    aws_put(body, name, "%s.%s", prefix, is_id ? "LaunchTemplateId" : "LaunchTemplateName");
    aws_put(body, version, "%s.Version", prefix);
}

static void print_price(double price_h, char ret[32])
{
    snprintf(ret, 32, "%.6f", price_h);
}

static void put_purchase(struct buf *body, const struct web_offer_section *o)
{
    char price[32];
    if (o->capacity_reservation.len > 0)
        aws_put(body, o->capacity_reservation,
                "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId");
    if (!o->spot) return;
    aws_put_text(body, "spot", "InstanceMarketOptions.MarketType");
    aws_put_text(body, "one-time", "InstanceMarketOptions.SpotOptions.SpotInstanceType");
    aws_put_text(body, "terminate",
                 "InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior");
    if (!(o->spot_price_max_h > 0)) return;
    print_price(o->spot_price_max_h, price);
    aws_put_text(body, price, "InstanceMarketOptions.SpotOptions.MaxPrice");
}

static void hash_parts(const struct str *parts, size_t count, char ret[TOKEN_BYTES])
{
    struct sha256_run *run = sha256_begin();
    uint8_t digest[SHA256_BYTES];
    for (size_t i = 0; i < count; i++) {
        sha256_more(run, parts[i].data, parts[i].len);
        sha256_more(run, "", 1); /* a NUL ends each */
    }
    sha256_end(run, digest);
    hex_from(digest, sizeof digest, ret);
}

/* A token for each place: with other parameters the same one would be refused. */
static void make_token(const struct web_provider *p, const struct web_op *op,
                       const struct ec2_place *at, char ret[TOKEN_BYTES])
{
    struct str parts[5] = { p->settings->fleet, str_from(op->call->intent), at->zone, at->subnet,
                            at->type };
    /* That of an offer's first type is the one that earlier versions made. */
    hash_parts(parts, str_eq(at->type, op->offer->type) ? 4 : 5, ret);
}

static int put_user_data(struct buf *body, const struct web_op *op, const char *name)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    base64_put(&text, op->user_data);
    if (text.rc == 0) aws_put(body, buf_view(&text), "%s", name);
    if (text.data) explicit_bzero(text.data, text.len);
    return text.rc;
}

int ec2_order(const struct web_provider *p, const struct web_op *op, const struct ec2_place *at,
              struct buf *body)
{
    char token[TOKEN_BYTES];
    make_token(p, op, at, token);
    aws_form(body, "RunInstances", EC2_VERSION);
    aws_put_text(body, token, "ClientToken");
    aws_put_text(body, "1", "MinCount");
    aws_put_text(body, "1", "MaxCount");
    put_template(body, p->settings, "LaunchTemplate");
    aws_put(body, at->type, "InstanceType");
    put_machine(&(struct form){ body, "" }, p, op->call->stops, at->subnet);
    if (at->zone.len > 0) aws_put(body, at->zone, "Placement.AvailabilityZone");
    put_purchase(body, op->offer->section);
    put_tags(body, p, op);
    int rc = put_user_data(body, op, "UserData");
    return rc < 0 ? rc : body->rc;
}

/* ---- fleets ---- */

int ec2_template_name(const struct web_provider *p, bool stops, char ret[EC2_TEMPLATE_BYTES],
                      size_t *ret_kept)
{
    CLEANUP(buf_fini) struct buf data = { 0 };
    char cloud[TOKEN_BYTES], settings[TOKEN_BYTES];
    put_machine(&(struct form){ &data, "" }, p, stops, STR(""));
    if (data.rc < 0) return data.rc;
    hash_parts(&p->settings->name, 1, cloud);
    hash_parts((struct str[]){ buf_view(&data) }, 1, settings);
    int kept = snprintf(ret, EC2_TEMPLATE_BYTES, "muster-" STR_FMT "-%.8s-",
                        STR_ARG(p->settings->fleet), cloud);
    must(kept > 0 && kept + 17 < EC2_TEMPLATE_BYTES); /* the schema bounds the fleet's name */
    snprintf(ret + kept, 17, "%.16s", settings);
    *ret_kept = (size_t)kept;
    return 0;
}

int ec2_template_order(const struct web_provider *p, bool stops, struct buf *body)
{
    char name[EC2_TEMPLATE_BYTES];
    size_t kept;
    int rc = ec2_template_name(p, stops, name, &kept);
    if (rc < 0) return rc;
    aws_form(body, "CreateLaunchTemplate", EC2_VERSION);
    aws_put_text(body, name, "LaunchTemplateName");
    put_machine(&(struct form){ body, "LaunchTemplateData." }, p, stops, STR(""));
    aws_put_text(body, "launch-template", "TagSpecification.1.ResourceType");
    put_tag(body, 1, 1, WEB_TAG_FLEET, p->settings->fleet);
    return body->rc;
}

/* Writes one place of a fleet. It replaces type, image, subnet and price of a template; the rest is as the template says. */
static void put_override(struct buf *body, uint32_t at, const struct ec2_place *place,
                         const struct web_section *s, const struct web_offer_section *o)
{
    static const char prefix[] = "LaunchTemplateConfigs.1.Overrides";
    char price[32];
    aws_put(body, place->type, "%s.%u.InstanceType", prefix, at);
    if (s->launch_template.len > 0 && s->image.len > 0)
        aws_put(body, s->image, "%s.%u.ImageId", prefix, at);
    if (place->subnet.len > 0)
        aws_put(body, place->subnet, "%s.%u.SubnetId", prefix, at);
    else if (place->zone.len > 0)
        aws_put(body, place->zone, "%s.%u.AvailabilityZone", prefix, at);
    if (!(o->spot_price_max_h > 0)) return;
    print_price(o->spot_price_max_h, price);
    aws_put_text(body, price, "%s.%u.MaxPrice", prefix, at);
}

int ec2_fleet_order(const struct web_provider *p, const struct web_op *op, uint32_t nth,
                    struct buf *body)
{
    static const char of_template[] = "LaunchTemplateConfigs.1.LaunchTemplateSpecification";
    const struct web_offer_section *o = op->offer->section;
    struct ec2_place places[EC2_PLACES_MAX];
    char token[TOKEN_BYTES], name[EC2_TEMPLATE_BYTES], number[12];
    size_t kept;
    int rc = ec2_template_name(p, op->call->stops, name, &kept);
    if (rc < 0) return rc;
    snprintf(number, sizeof number, "%u", nth);
    hash_parts((struct str[]){ STR("fleet"), p->settings->fleet, str_from(op->call->intent),
                               str_from(number) },
               4, token);
    aws_form(body, "CreateFleet", EC2_VERSION);
    aws_put_text(body, token, "ClientToken");
    aws_put_text(body, "instant", "Type");
    if (o->spot)
        aws_put_text(body, "price-capacity-optimized", "SpotOptions.AllocationStrategy");
    else
        aws_put_text(body, "lowest-price", "OnDemandOptions.AllocationStrategy");
    aws_put_text(body, "1", "TargetCapacitySpecification.TotalTargetCapacity");
    aws_put_text(body, o->spot ? "spot" : "on-demand",
                 "TargetCapacitySpecification.DefaultTargetCapacityType");
    put_template(body, p->settings, of_template);
    if (p->settings->section->launch_template.len == 0) {
        aws_put_text(body, name, "%s.LaunchTemplateName", of_template);
        aws_put_text(body, "1", "%s.Version", of_template);
    }
    uint32_t count = ec2_places(p->settings, op->offer, places);
    for (uint32_t i = 0; i < count; i++)
        put_override(body, i + 1, &places[i], p->settings->section, o);
    put_tags(body, p, op);
    rc = put_user_data(body, op,
                       "LaunchTemplateConfigs.1.LaunchTemplateSpecification."
                       "LaunchTemplateSpecificationUserData");
    return rc < 0 ? rc : body->rc;
}
