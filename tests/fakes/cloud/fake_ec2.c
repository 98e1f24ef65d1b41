/* fake_ec2.c - speaks the API of Amazon EC2 over a fake fleet.
 *
 * Written from the API reference, "RunInstances idempotency", "Error codes" and botocore's model, by which
 * tests/proc/cloud/t_ec2.py checks requests once more. Replies have what clients read. */
#include "tests/fakes/cloud/fake_ec2.h"

#include "base/core/base64.h"
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/date.h"
#include "tests/fakes/cloud/fake_ec2_answer.h"

#include <stdio.h>
#include <stdlib.h>

#define SECOND ((int64_t)1000000)
#define SHUTTING_US (20 * SECOND)
#define STOPPING_US (15 * SECOND)
#define REMEMBERED_US (3600 * SECOND) /* an instance that has ended stays listed */
#define USER_DATA_MAX 16384
#define PAGE_MAX 1000

const char *const ec2_action_names[] = {
    [RUN] = "ec2:RunInstances",
    [TAG_AT_CREATE] = "ec2:CreateTags",
    [DESCRIBE] = "ec2:DescribeInstances",
    [TERMINATE] = "ec2:TerminateInstances",
    [STOP] = "ec2:StopInstances",
    [START] = "ec2:StartInstances",
    [IMAGES] = "ec2:DescribeImages",
    [SPOT_PRICES] = "ec2:DescribeSpotPriceHistory",
    [PRODUCTS] = "pricing:GetProducts",
    [CREATE_FLEET] = "ec2:CreateFleet",
    [CREATE_TEMPLATE] = "ec2:CreateLaunchTemplate",
    [LIST_TEMPLATES] = "ec2:DescribeLaunchTemplates",
    [DROP_TEMPLATE] = "ec2:DeleteLaunchTemplate",
    [RESERVATIONS] = "ec2:DescribeCapacityReservations",
    NULL,
};

/* ---- instances ---- */

void fake_ec2_id_of(const struct fleet_machine *m, char ret[24])
{
    snprintf(ret, 24, "i-%017llx", (unsigned long long)m->id);
}

static struct fleet_machine *machine_of(struct ec2_answer *a, struct str id)
{
    uint64_t n = 0;
    uint8_t raw[8];
    char hex[17];
    if (id.len != 19 || !str_starts(id, STR("i-"))) return NULL;
    snprintf(hex, sizeof hex, "%.16s", id.data + 3);
    if (hex_to(str_from(hex), raw, sizeof raw) < 0) return NULL;
    for (size_t i = 0; i < sizeof raw; i++)
        n = n << 8 | raw[i];
    return fake_fleet_find(a->fleet, n);
}

static bool has_ended(const struct fleet_machine *m, int64_t at_us)
{
    return m->removed_us > 0 && m->removed_us <= at_us;
}

/* True if it can be seen at that moment: from its beginning until an hour after its end. */
static bool is_known(const struct fleet_machine *m, int64_t at_us)
{
    return m->made_us <= at_us && !(has_ended(m, at_us) && at_us - m->removed_us > REMEMBERED_US);
}

static const char *state_of(const struct fleet_machine *m, int64_t at_us, int *ret_code)
{
    if (has_ended(m, at_us)) {
        bool going = at_us - m->removed_us < SHUTTING_US;
        *ret_code = going ? 32 : 48;
        return going ? "shutting-down" : "terminated";
    }
    if (fleet_is_stopped(m, at_us)) {
        bool going = at_us - m->stopped_us < STOPPING_US;
        *ret_code = going ? 64 : 80;
        return going ? "stopping" : "stopped";
    }
    bool pending = at_us < m->ready_us;
    *ret_code = pending ? 0 : 16;
    return pending ? "pending" : "running";
}

static const char *reason_of(const struct ec2_answer *a, const struct fleet_machine *m)
{
    const char *own = a->e->extra[m - a->fleet->machine].reason;
    if (own) return own;
    return m->taken ? "Server.SpotInstanceTermination" : "Client.UserInitiatedShutdown";
}

static void put_state(struct ec2_answer *a, const char *name, const struct fleet_machine *m,
                      int64_t at_us)
{
    int code;
    const char *state = state_of(m, at_us, &code);
    buf_printf(&a->out.body, "<%s><code>%d</code><name>%s</name></%s>", name, code, state, name);
}

static void put_instance(struct ec2_answer *a, const struct fleet_machine *m, int64_t at_us)
{
    char id[24], date[DATE_BYTES];
    struct buf *out = &a->out.body;
    fake_ec2_id_of(m, id);
    /* The time of the last launch, which a start is too. */
    date_print(max_i64(m->made_us, m->started_us) + a->e->aws.date_us, date);
    buf_text(out, "<item>");
    fake_ec2_put(a, "instanceId", id);
    fake_ec2_put(a, "imageId", m->image);
    put_state(a, "instanceState", m, at_us);
    buf_printf(out, "<privateDnsName>ip-10-0-0-%d.internal</privateDnsName>", (int)(m->id % 250));
    fake_ec2_put(a, "instanceType", m->type);
    fake_ec2_put(a, "launchTime", date);
    buf_text(out, "<placement>");
    fake_ec2_put(a, "availabilityZone", m->zone);
    buf_text(out, "<groupName/><tenancy>default</tenancy></placement>");
    if (m->spot) fake_ec2_put(a, "instanceLifecycle", "spot");
    if (has_ended(m, at_us) || fleet_is_stopped(m, at_us)) {
        buf_text(out, "<stateReason>");
        fake_ec2_put(a, "code", reason_of(a, m));
        fake_ec2_put(a, "message", reason_of(a, m));
        buf_text(out, "</stateReason>");
    }
    fake_ec2_put(a, "clientToken", m->key);
    buf_text(out, "<tagSet>");
    for (uint32_t i = 0; i < m->tag_count; i++) {
        buf_text(out, "<item>");
        fake_ec2_put(a, "key", m->tag[i].name);
        fake_ec2_put(a, "value", m->tag[i].value);
        buf_text(out, "</item>");
    }
    buf_text(out, "</tagSet></item>");
}

/* ---- RunInstances ---- */

static const char *const run_names[] = {
    "LaunchTemplate.LaunchTemplateId",
    "LaunchTemplate.LaunchTemplateName",
    "LaunchTemplate.Version",
    "ClientToken",
    "MinCount",
    "MaxCount",
    "ImageId",
    "InstanceType",
    "KeyName",
    "UserData",
    "InstanceInitiatedShutdownBehavior",
    "MetadataOptions.HttpTokens",
    "MetadataOptions.HttpPutResponseHopLimit",
    "IamInstanceProfile.Name",
    "IamInstanceProfile.Arn",
    "Placement.AvailabilityZone",
    "SubnetId",
    "NetworkInterface.#.DeviceIndex",
    "NetworkInterface.#.AssociatePublicIpAddress",
    "NetworkInterface.#.SubnetId",
    "NetworkInterface.#.SecurityGroupId.#",
    "BlockDeviceMapping.#.DeviceName",
    "BlockDeviceMapping.#.Ebs.VolumeSize",
    "BlockDeviceMapping.#.Ebs.VolumeType",
    "BlockDeviceMapping.#.Ebs.DeleteOnTermination",
    "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId",
    "InstanceMarketOptions.MarketType",
    "InstanceMarketOptions.SpotOptions.SpotInstanceType",
    "InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior",
    "InstanceMarketOptions.SpotOptions.MaxPrice",
    "TagSpecification.#.ResourceType",
    "TagSpecification.#.Tag.#.Key",
    "TagSpecification.#.Tag.#.Value",
    NULL,
};

const char *fake_ec2_zone_of(struct ec2_answer *a, struct str zone, struct str subnet)
{
    static const char prefix[] = "subnet-";
    const struct fleet_config *c = &a->fleet->config;
    if (subnet.data && str_starts(subnet, STR("subnet-")))
        subnet = str_of(subnet.data + sizeof prefix - 1, subnet.len - sizeof prefix + 1);
    if (subnet.data && zone.data && !str_eq(subnet, zone)) return NULL;
    if (!zone.data) zone = subnet;
    for (uint32_t z = 0; z < c->zone_count; z++) {
        bool free = a->fleet->stock[0][z] != 0 || z + 1 == c->zone_count;
        if (zone.data ? str_eq(zone, str_from(c->zone[z])) : free) return c->zone[z];
    }
    return NULL;
}

uint32_t fake_ec2_read_tags(struct ec2_answer *a, struct fleet_tag *ret)
{
    uint32_t count = 0;
    for (int i = 1; i <= FLEET_TAGS_MAX; i++) {
        struct str key = fake_ec2_get_n(a, "TagSpecification.1.Tag.#.Key", i);
        struct str value = fake_ec2_get_n(a, "TagSpecification.1.Tag.#.Value", i);
        if (!key.data) break;
        snprintf(ret[count].name, sizeof ret->name, STR_FMT, STR_ARG(key));
        snprintf(ret[count++].value, sizeof ret->value, STR_FMT, STR_ARG(value));
    }
    return count;
}

/* Checks values as the API does. NULL: they are fine. */
static const char *bad_value(struct ec2_answer *a, struct str user_data)
{
    struct str token = fake_ec2_get(a, "ClientToken");
    bool of_template = fake_ec2_get(a, "LaunchTemplate.Version").len > 0;
    if ((!fake_ec2_get(a, "ImageId").len && !of_template) || !fake_ec2_get(a, "MinCount").len ||
        !fake_ec2_get(a, "MaxCount").len)
        return "ImageId, MinCount and MaxCount are needed";
    if (of_template && fake_ec2_get(a, "NetworkInterface.1.DeviceIndex").data)
        return "the template of the fake has the network interfaces";
    if (token.len > 64) return "ClientToken is longer than 64";
    if (user_data.len > USER_DATA_MAX) return "user data is longer than 16384 bytes";
    if (fake_ec2_get(a, "NetworkInterface.1.SubnetId").data && fake_ec2_get(a, "SubnetId").data)
        return "network interfaces and an instance-level subnet may not both be specified";
    if (fake_ec2_get(a, "InstanceMarketOptions.SpotOptions.MaxPrice").data &&
        !str_eq(fake_ec2_get(a, "InstanceMarketOptions.MarketType"), STR("spot")))
        return "a spot price without the market type spot";
    struct str kind = fake_ec2_get(a, "TagSpecification.1.ResourceType");
    if (kind.data && !str_eq(kind, STR("instance"))) return "the first tags are the instance's";
    return NULL;
}

static struct hash128 form_of(const struct ec2_answer *a)
{
    return hash128(a->ask->body.data, a->ask->body.len, 0);
}

static void put_run(struct ec2_answer *a, const struct fleet_machine *m)
{
    fake_ec2_begin(a, "RunInstances");
    buf_text(&a->out.body, "<reservationId>r-1</reservationId><ownerId>1</ownerId><instancesSet>");
    put_instance(a, m, max_i64(a->now_us, m->made_us));
    buf_text(&a->out.body, "</instancesSet>");
    fake_ec2_end(a, "RunInstances");
}

bool fake_ec2_make(struct ec2_answer *a, const struct fleet_order *o, struct fleet_machine **ret)
{
    enum fleet_fault fault = a->row ? a->row->fault : FLEET_FINE;
    uint32_t before = a->fleet->count;
    struct fleet_machine *m;
    if (fault == FLEET_LOST_REQUEST || fault == FLEET_UNREACHABLE) return false;
    enum fleet_fault made =
        fake_fleet_create(a->fleet, o, fault == FLEET_LATE_SUCCESS ? a->row->delay_us : 0,
                          fault == FLEET_SLOW_BOOT ? a->row->delay_us : 0, a->now_us, &m);
    if (made != FLEET_FINE) {
        a->row = &(struct fleet_row){ .fault = made };
        fake_ec2_refuse_fault(a);
        a->row = NULL;
        return false;
    }
    struct ec2_extra *extra = &a->e->extra[m - a->fleet->machine];
    struct hash128 form = form_of(a);
    if (a->fleet->count > before) extra->form = form;
    if (extra->form.lo != form.lo || extra->form.hi != form.hi) {
        fake_ec2_refuse(a, 400, "IdempotentParameterMismatch",
                        "the token was used with other parameters");
        return false;
    }
    *ret = m;
    if (fault != FLEET_DUPLICATE) return true;
    struct fleet_order another = *o;
    struct fleet_machine *twin;
    another.key = "";
    fake_fleet_create(a->fleet, &another, 0, 0, a->now_us, &twin);
    return true;
}

static void run_instances(struct ec2_answer *a)
{
    CLEANUP(buf_fini) struct buf user_data = { 0 };
    struct fleet_tag tag[FLEET_TAGS_MAX];
    char key[FLEET_TEXT] = "";
    struct str subnet = fake_ec2_get(a, "NetworkInterface.1.SubnetId");
    if (!subnet.data) subnet = fake_ec2_get(a, "SubnetId");
    const char *zone = fake_ec2_zone_of(a, fake_ec2_get(a, "Placement.AvailabilityZone"), subnet);
    const char *type = fake_ec2_text(a, "InstanceType");
    const struct ec2_reservation *r = &a->e->reservation;
    struct str named = fake_ec2_get(
        a, "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId");
    bool reserved = r->id && named.data && str_eq(named, str_from(r->id));
    a->row = fake_fleet_meet(a->fleet, FLEET_CREATE, type, zone, a->now_us);
    if (!fake_ec2_check_names(a, run_names)) return;
    if (base64_take(&user_data, fake_ec2_get(a, "UserData")) < 0) {
        fake_ec2_refuse_form(a, "InvalidUserData.Malformed", "user data is no base64");
        return;
    }
    const char *bad = bad_value(a, buf_view(&user_data));
    if (bad) {
        fake_ec2_refuse_form(a, "InvalidParameterValue", bad);
        return;
    }
    if (!zone) {
        fake_ec2_refuse(a, 400, "InvalidSubnetID.NotFound", "there is no such zone or subnet");
        return;
    }
    if (fake_ec2_refuse_fault(a) || fake_ec2_lacks_template(a, "LaunchTemplate")) return;
    if (fake_ec2_get(a, "ClientToken").len > 0)
        snprintf(key, sizeof key, "%s/%s", zone, fake_ec2_text(a, "ClientToken"));
    const struct fleet_order order = {
        .name = fake_ec2_text(a, "TagSpecification.1.Tag.1.Value"),
        .key = key,
        .type = type,
        .zone = zone,
        .image = fake_ec2_get(a, "ImageId").len > 0 ? fake_ec2_text(a, "ImageId") : EC2_USER_IMAGE,
        .user_data = user_data.data,
        .spot = str_eq(fake_ec2_get(a, "InstanceMarketOptions.MarketType"), STR("spot")),
        .tag = tag,
        .tag_count = fake_ec2_read_tags(a, tag),
    };
    if (order.tag_count > 0) a->e->actions |= 1u << TAG_AT_CREATE;
    struct fleet_machine *m;
    if (reserved && (strcmp(r->type, type) != 0 || strcmp(r->zone, zone) != 0 ||
                     fake_ec2_reserved(a) == r->total)) {
        fake_ec2_refuse(a, 400, "ReservationCapacityExceeded", "no capacity in the reservation");
        return;
    }
    if (!fake_ec2_make(a, &order, &m)) return;
    a->e->extra[m - a->fleet->machine].reserved = reserved;
    put_run(a, m);
}

/* ---- DescribeInstances ---- */

static const char *const describe_names[] = { "Filter.#.Name", "Filter.#.Value.#", "InstanceId.#",
                                              "MaxResults",    "NextToken",        NULL };

static const char *field(const struct fleet_machine *m, struct str name, int64_t at_us)
{
    int code;
    char tag[FLEET_TEXT];
    const char *token = strchr(m->key, '/');
    if (str_eq(name, STR("client-token"))) return token ? token + 1 : "";
    if (str_eq(name, STR("instance-state-name"))) return state_of(m, at_us, &code);
    if (!str_starts(name, STR("tag:"))) return NULL;
    snprintf(tag, sizeof tag, STR_FMT, (int)name.len - 4, name.data + 4);
    return fleet_tag_of(m, tag);
}

static bool passes(const struct ec2_answer *a, const struct fleet_machine *m, int64_t at_us)
{
    for (int f = 1; f <= 10; f++) {
        struct str name = fake_ec2_get_n(a, "Filter.#.Name", f);
        bool one = false;
        if (!name.data) break;
        for (int v = 1; v <= 10; v++) {
            char of[40];
            snprintf(of, sizeof of, "Filter.%d.Value.%d", f, v);
            struct str value = aws_parameter(&a->p, of);
            const char *has = field(m, name, at_us);
            one = one || (value.data && has && str_eq(value, str_from(has)));
        }
        if (!one) return false;
    }
    return true;
}

static bool is_named(const struct ec2_answer *a, const struct fleet_machine *m)
{
    char id[24];
    fake_ec2_id_of(m, id);
    if (!fake_ec2_get(a, "InstanceId.1").data) return true;
    for (int i = 1; i <= 100; i++)
        if (str_eq(fake_ec2_get_n(a, "InstanceId.#", i), str_from(id))) return true;
    return false;
}

/* True if all ids that the request names are known. */
static bool ids_are_known(struct ec2_answer *a, int64_t at_us)
{
    for (int i = 1; fake_ec2_get_n(a, "InstanceId.#", i).data; i++) {
        const struct fleet_machine *m = machine_of(a, fake_ec2_get_n(a, "InstanceId.#", i));
        if (m && is_known(m, at_us)) continue;
        fake_ec2_refuse(a, 400, "InvalidInstanceID.NotFound", "the instance ID does not exist");
        return false;
    }
    return true;
}

static void describe_instances(struct ec2_answer *a)
{
    int64_t at_us = a->now_us - a->fleet->config.lag_us;
    uint64_t max = PAGE_MAX, from = 0, n = 0, next = 0;
    struct str size = fake_ec2_get(a, "MaxResults"), token = fake_ec2_get(a, "NextToken");
    a->row = fake_fleet_meet(a->fleet, FLEET_LIST, NULL, NULL, a->now_us);
    if (!fake_ec2_check_names(a, describe_names)) return;
    if ((size.data && (str_to_u64(size, &max) < 0 || max < 5 || max > PAGE_MAX)) ||
        (token.data && str_to_u64(token, &from) < 0)) {
        fake_ec2_refuse_form(a, "InvalidParameterValue", "MaxResults or NextToken");
        return;
    }
    if (fake_ec2_refuse_fault(a) || !ids_are_known(a, at_us)) return;
    fake_ec2_begin(a, "DescribeInstances");
    buf_text(&a->out.body, "<reservationSet>");
    for (uint32_t i = 0; i < a->fleet->count && next == 0; i++) {
        const struct fleet_machine *m = &a->fleet->machine[i];
        if (!is_known(m, at_us) || !is_named(a, m) || !passes(a, m, at_us)) continue;
        if (n >= from + max) {
            next = from + max;
            break;
        }
        if (n++ < from) continue;
        buf_printf(&a->out.body, "<item><reservationId>r-%u</reservationId><instancesSet>", i);
        put_instance(a, m, at_us);
        buf_text(&a->out.body, "</instancesSet></item>");
    }
    buf_text(&a->out.body, "</reservationSet>");
    if (next > 0) buf_printf(&a->out.body, "<nextToken>%llu</nextToken>", (unsigned long long)next);
    fake_ec2_end(a, "DescribeInstances");
}

/* ---- TerminateInstances ---- */

/* Meets the script's fault of the operation, and checks the form: true if it reaches instances that are known. */
static bool names_instances(struct ec2_answer *a, enum fleet_op op)
{
    static const char *const names[] = { "InstanceId.#", NULL };
    a->row = fake_fleet_meet(a->fleet, op, NULL, NULL, a->now_us);
    enum fleet_fault fault = a->row ? a->row->fault : FLEET_FINE;
    if (!fake_ec2_check_names(a, names)) return false;
    if (!fake_ec2_get(a, "InstanceId.1").data) {
        fake_ec2_refuse_form(a, "MissingParameter", "InstanceId is needed");
        return false;
    }
    if (fake_ec2_refuse_fault(a) || fault == FLEET_LOST_REQUEST || fault == FLEET_UNREACHABLE)
        return false;
    return ids_are_known(a, a->now_us);
}

static void terminate_instances(struct ec2_answer *a)
{
    char id[24];
    if (!names_instances(a, FLEET_REMOVE)) return;
    fake_ec2_begin(a, "TerminateInstances");
    buf_text(&a->out.body, "<instancesSet>");
    for (int i = 1; fake_ec2_get_n(a, "InstanceId.#", i).data; i++) {
        struct fleet_machine *m = machine_of(a, fake_ec2_get_n(a, "InstanceId.#", i));
        fake_ec2_id_of(m, id);
        buf_text(&a->out.body, "<item>");
        fake_ec2_put(a, "instanceId", id);
        put_state(a, "previousState", m, a->now_us);
        fake_fleet_remove(a->fleet, m->id, a->now_us);
        put_state(a, "currentState", m, a->now_us);
        buf_text(&a->out.body, "</item>");
    }
    buf_text(&a->out.body, "</instancesSet>");
    fake_ec2_end(a, "TerminateInstances");
}

/* ---- StopInstances, StartInstances ---- */

static void put_turned(struct ec2_answer *a, bool on)
{
    const char *action = on ? "StartInstances" : "StopInstances";
    char id[24];
    fake_ec2_begin(a, action);
    buf_text(&a->out.body, "<instancesSet>");
    for (int i = 1; fake_ec2_get_n(a, "InstanceId.#", i).data; i++) {
        struct fleet_machine *m = machine_of(a, fake_ec2_get_n(a, "InstanceId.#", i));
        int code;
        const char *was = state_of(m, a->now_us, &code);
        bool may = on ? strcmp(was, "stopping") != 0 && !has_ended(m, a->now_us)
                      : !has_ended(m, a->now_us);
        if (!may) {
            fake_ec2_refuse(a, 400, "IncorrectInstanceState", "not from the state that it is in");
            return;
        }
        if (!on && m->spot) {
            fake_ec2_refuse(a, 400, "UnsupportedOperation", "a one-time spot instance");
            return;
        }
        fake_ec2_id_of(m, id);
        buf_text(&a->out.body, "<item>");
        fake_ec2_put(a, "instanceId", id);
        put_state(a, "previousState", m, a->now_us);
        if (!on) fake_fleet_stop(a->fleet, m->id, a->now_us);
        if (on && fake_fleet_start(a->fleet, m->id, a->now_us) == FLEET_STOCK_OUT) {
            fake_ec2_refuse(a, 500, "InsufficientInstanceCapacity", "no capacity in this zone");
            return;
        }
        put_state(a, "currentState", m, a->now_us);
        buf_text(&a->out.body, "</item>");
    }
    buf_text(&a->out.body, "</instancesSet>");
    fake_ec2_end(a, action);
}

static void stop_instances(struct ec2_answer *a)
{
    if (names_instances(a, FLEET_STOP)) put_turned(a, false);
}

static void start_instances(struct ec2_answer *a)
{
    if (names_instances(a, FLEET_START)) put_turned(a, true);
}

/* ---- what is read besides ---- */

static void describe_images(struct ec2_answer *a)
{
    static const char *const names[] = { "ImageId.#", NULL };
    a->row = fake_fleet_meet(a->fleet, FLEET_LIST, NULL, NULL, a->now_us);
    if (!fake_ec2_check_names(a, names) || fake_ec2_refuse_fault(a)) return;
    fake_ec2_begin(a, "DescribeImages");
    buf_text(&a->out.body, "<imagesSet><item>");
    fake_ec2_put(a, "imageId", fake_ec2_text(a, "ImageId.1"));
    fake_ec2_put(a, "rootDeviceType", "ebs");
    fake_ec2_put(a, "rootDeviceName", "/dev/xvda");
    buf_text(&a->out.body, "</item></imagesSet>");
    fake_ec2_end(a, "DescribeImages");
}

/* ---- requests ---- */

static void route(struct ec2_answer *a)
{
    static const struct {
        const char *name;
        enum ec2_action action;
        void (*answer)(struct ec2_answer *a);
    } rows[] = {
        { "RunInstances", RUN, run_instances },
        { "DescribeInstances", DESCRIBE, describe_instances },
        { "TerminateInstances", TERMINATE, terminate_instances },
        { "StopInstances", STOP, stop_instances },
        { "StartInstances", START, start_instances },
        { "DescribeImages", IMAGES, describe_images },
        { "DescribeSpotPriceHistory", SPOT_PRICES, fake_ec2_describe_spot_prices },
        { "CreateFleet", CREATE_FLEET, fake_ec2_create_fleet },
        { "CreateLaunchTemplate", CREATE_TEMPLATE, fake_ec2_create_template },
        { "DescribeLaunchTemplates", LIST_TEMPLATES, fake_ec2_list_templates },
        { "DescribeCapacityReservations", RESERVATIONS, fake_ec2_describe_reservations },
        { "DeleteLaunchTemplate", DROP_TEMPLATE, fake_ec2_drop_template },
    };
    const char *why, *code = fake_aws_check(&a->e->aws, a->ask, a->json ? "pricing" : "ec2",
                                            a->now_us, a->arena, &why);
    if (code) {
        fake_ec2_refuse(a, strcmp(code, "RequestExpired") == 0 ? 400 : 401, code, why);
        return;
    }
    if (a->json) {
        a->e->actions |= 1u << PRODUCTS;
        fake_ec2_get_products(a);
        return;
    }
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        if (!str_eq(fake_ec2_get(a, "Action"), str_from(rows[i].name))) continue;
        a->e->actions |= 1u << rows[i].action;
        if (str_eq(fake_ec2_get(a, "Version"), STR("2016-11-15")))
            rows[i].answer(a);
        else
            fake_ec2_refuse_form(a, "InvalidAction", "the version is another");
        return;
    }
    fake_ec2_refuse_form(a, "InvalidAction", "there is no such action");
}

static void of_login(struct ec2_answer *a, struct str path)
{
    a->row = fake_fleet_meet(a->fleet, FLEET_LOGIN, NULL, NULL, a->now_us);
    if (fake_ec2_refuse_fault(a)) return;
    if (path.len > 1)
        fake_aws_metadata(&a->e->aws, a->ask, path, a->now_us, &a->out);
    else
        fake_aws_sts(&a->e->aws, &a->p, a->now_us, &a->out);
}

static int64_t respond(void *ctx, const struct web_ask *ask, int64_t now_us, struct arena *arena,
                       struct web_reply *ret)
{
    struct fake_ec2 *e = ctx;
    struct ec2_answer a = {
        .e = e, .fleet = e->fleet, .ask = ask, .arena = arena, .now_us = now_us
    };
    struct form_target at;
    int64_t took_us;
    struct str target = form_header(ask, "x-amz-target");
    a.json = str_eq(target, STR("AWSPriceListService.GetProducts"));
    if (form_target(ask->url, STR(""), &at) < 0 || at.query.len > 0 ||
        (!a.json && aws_parameters_read(arena, ask->body, &a.p) < 0))
        fake_ec2_refuse_form(&a, "MalformedQueryString", "no request of this API");
    else if (str_starts(at.path, STR("/latest/")) ||
             str_eq(fake_ec2_get(&a, "Action"), STR("AssumeRoleWithWebIdentity")))
        of_login(&a, at.path);
    else
        route(&a);
    *ret = (struct web_reply){ .status = a.out.status,
                               .sent = true,
                               .body = arena_str(arena, buf_view(&a.out.body)) };
    ret->header[ret->header_count++] =
        (struct web_header){ STR("date"), fake_aws_http_date(&e->aws, now_us, arena) };
    fleet_break_reply(a.row, ret, &took_us);
    buf_fini(&a.out.body);
    return took_us;
}

static void *open_fake(struct fake_fleet *fleet, const char *token, int64_t date_us)
{
    struct fake_ec2 *e = calloc(1, sizeof *e);
    must(e);
    *e = (struct fake_ec2){ .fleet = fleet,
                            .aws = { .key_id = "AKIAFAKEFAKEFAKEFAKE",
                                     .secret = token,
                                     .region = "eu-central-1",
                                     .role = "controller",
                                     .session_us = 3600 * SECOND,
                                     .date_us = date_us } };
    return e;
}

static const struct fleet_config sold = {
    .bill_least_s = 60, /* as its price list says */
    .keys_unique = true,
    .type = { { .name = "t3.large", .price_udollars_h = 96000, .spot_udollars_h = 30000 },
              { .name = "g6.xlarge", .price_udollars_h = 1006000, .spot_udollars_h = 400000 } },
    .type_count = 2,
    .zone = { "eu-central-1a", "eu-central-1b", "eu-central-1c" },
    .zone_count = 3,
};

const struct cloud_fake fake_ec2 = {
    .name = "ec2", .fleet = &sold, .open = open_fake, .respond = respond
};
