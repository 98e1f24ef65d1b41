/* ec2_order.c - writes what RunInstances is asked for: one instance in one place.
 *
 * The instance and its disk carry the tags from their first moment. A network interface is written out, since only
 * there an address of the internet can be asked for or refused; the interface then has subnet and firewalls. */
#include "base/core/base64.h"
#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/core/own.h"
#include "controller/cloud/web/ec2.h"
#include "controller/cloud/web/web_tags.h"

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

static void put_network(struct buf *body, const struct web_section *s, const struct ec2_place *at)
{
    const char *public = s->public_address ? "true" : "false";
    aws_put_text(body, "0", "NetworkInterface.1.DeviceIndex");
    aws_put_text(body, public, "NetworkInterface.1.AssociatePublicIpAddress");
    if (at->subnet.len > 0) aws_put(body, at->subnet, "NetworkInterface.1.SubnetId");
    for (size_t i = 0; i < s->firewalls.count; i++)
        aws_put(body, s->firewalls.items[i], "NetworkInterface.1.SecurityGroupId.%zu", i + 1);
    if (at->zone.len > 0) aws_put(body, at->zone, "Placement.AvailabilityZone");
}

static void put_disk(struct buf *body, const struct ec2 *e, const struct web_section *s)
{
    char gib[24];
    if (s->disk_bytes == 0) return;
    snprintf(gib, sizeof gib, "%lld", (long long)((s->disk_bytes + GIB - 1) / GIB));
    aws_put_text(body, e->root_device, "BlockDeviceMapping.1.DeviceName");
    aws_put_text(body, gib, "BlockDeviceMapping.1.Ebs.VolumeSize");
    aws_put_text(body, "gp3", "BlockDeviceMapping.1.Ebs.VolumeType");
    aws_put_text(body, "true", "BlockDeviceMapping.1.Ebs.DeleteOnTermination");
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
    snprintf(price, sizeof price, "%.6f", o->spot_price_max_h);
    aws_put_text(body, price, "InstanceMarketOptions.SpotOptions.MaxPrice");
}

/* A token for each place: with other parameters the same one would be refused. */
static void make_token(const struct web_provider *p, const struct web_op *op,
                       const struct ec2_place *at, char ret[TOKEN_BYTES])
{
    const struct str parts[] = { p->settings->fleet, str_from(op->call->intent), at->zone,
                                 at->subnet };
    struct sha256_run *run = sha256_begin();
    uint8_t digest[SHA256_BYTES];
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        sha256_more(run, parts[i].data, parts[i].len);
        sha256_more(run, "", 1); /* a NUL ends each */
    }
    sha256_end(run, digest);
    hex_from(digest, sizeof digest, ret);
}

static int put_user_data(struct buf *body, const struct web_op *op)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    base64_put(&text, op->user_data);
    if (text.rc == 0) aws_put(body, buf_view(&text), "UserData");
    if (text.data) explicit_bzero(text.data, text.len);
    return text.rc;
}

static int put_profile(struct buf *body, struct str account)
{
    if (account.len == 0) return 0;
    bool arn = str_starts(account, STR("arn:"));
    return aws_put(body, account, arn ? "IamInstanceProfile.Arn" : "IamInstanceProfile.Name");
}

int ec2_order(const struct web_provider *p, const struct web_op *op, const struct ec2_place *at,
              struct buf *body)
{
    const struct web_section *s = p->settings->section;
    char token[TOKEN_BYTES];
    make_token(p, op, at, token);
    aws_form(body, "RunInstances", EC2_VERSION);
    aws_put_text(body, token, "ClientToken");
    aws_put_text(body, "1", "MinCount");
    aws_put_text(body, "1", "MaxCount");
    aws_put(body, s->image, "ImageId");
    aws_put(body, op->offer->type, "InstanceType");
    /* An agent that nobody claims shuts its machine down, which then is no longer paid for. */
    aws_put_text(body, "terminate", "InstanceInitiatedShutdownBehavior");
    aws_put_text(body, "required", "MetadataOptions.HttpTokens");
    if (s->ssh_keys.count > 0) aws_put(body, s->ssh_keys.items[0], "KeyName");
    put_profile(body, s->account);
    put_network(body, s, at);
    put_disk(body, ec2_of(p), s);
    put_purchase(body, op->offer->section);
    put_tags(body, p, op);
    int rc = put_user_data(body, op);
    return rc < 0 ? rc : body->rc;
}
