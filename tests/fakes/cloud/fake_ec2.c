/* fake_ec2.c - speaks the API of Amazon EC2 over a fake fleet.
 *
 * Written from the API reference, "RunInstances idempotency", "Error codes" and botocore's model, by which
 * tests/proc/cloud/t_ec2.py checks requests once more. Replies have what clients read. */
#include "tests/fakes/cloud/fake_ec2.h"

#include "base/core/base64.h"
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/date.h"

#include <stdio.h>
#include <stdlib.h>

#define SECOND ((int64_t)1000000)
#define SHUTTING_US (20 * SECOND)
#define REMEMBERED_US (3600 * SECOND) /* an instance that has ended stays listed */
#define USER_DATA_MAX 16384
#define PAGE_MAX 1000

enum action {
    RUN,
    TAG_AT_CREATE,
    DESCRIBE,
    TERMINATE,
    IMAGES,
    SPOT_PRICES,
    PRODUCTS,
};
const char *const ec2_action_names[] = {
    [RUN] = "ec2:RunInstances",           [TAG_AT_CREATE] = "ec2:CreateTags",
    [DESCRIBE] = "ec2:DescribeInstances", [TERMINATE] = "ec2:TerminateInstances",
    [IMAGES] = "ec2:DescribeImages",      [SPOT_PRICES] = "ec2:DescribeSpotPriceHistory",
    [PRODUCTS] = "pricing:GetProducts",   NULL,
};

/* What one request is answered with. */
struct answer {
    struct fake_ec2 *e;
    struct fake_fleet *fleet;
    const struct web_ask *ask;
    struct arena *arena;
    int64_t now_us;
    struct aws_parameters p;
    struct aws_answer out;
    const struct fleet_row *row; /* the fault that applies */
    bool json;
};

static void refuse(struct answer *a, int status, const char *code, const char *message)
{
    buf_clear(&a->out.body);
    a->out.status = status;
    if (a->json)
        buf_printf(&a->out.body, "{\"__type\":\"com.amazonaws.pricing#%s\",\"Message\":\"%s\"}",
                   code, message);
    else
        buf_printf(&a->out.body,
                   "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error>"
                   "<Code>%s</Code><Message>%s</Message></Error></Errors>"
                   "<RequestID>r</RequestID></Response>",
                   code, message);
}

static void refuse_form(struct answer *a, const char *code, const char *why)
{
    struct str action = aws_parameter(&a->p, "Action");
    fake_fleet_bad_form(a->fleet, STR_FMT ": %s", STR_ARG(action), why);
    refuse(a, 400, code, why);
}

/* Answers what the fault stands for in this API; false: it is none of those. */
static bool refuse_fault(struct answer *a)
{
    static const struct {
        enum fleet_fault fault;
        int status;
        const char *code, *message;
    } rows[] = {
        { FLEET_STOCK_OUT, 500, "InsufficientInstanceCapacity", "no capacity in this zone" },
        { FLEET_QUOTA, 400, "VcpuLimitExceeded", "more vCPU than your limit allows" },
        { FLEET_THROTTLE, 503, "RequestLimitExceeded", "Request limit exceeded." },
        { FLEET_AUTH, 401, "AuthFailure", "not able to validate the access credentials" },
        { FLEET_FORBIDDEN, 403, "UnauthorizedOperation", "not authorized for this operation" },
        { FLEET_INVALID, 400, "InvalidParameterValue", "a value is invalid" },
        { FLEET_SERVER_ERROR, 503, "Unavailable", "the server is overloaded" },
        { FLEET_UNKNOWN_CODE, 400, "NewKindOfError", "words that are in no table" },
        { FLEET_WRONG_CLOCK, 400, "RequestExpired", "Request has expired." },
    };
    for (size_t i = 0; a->row && i < COUNT_OF(rows); i++) {
        if (rows[i].fault != a->row->fault) continue;
        refuse(a, rows[i].status, rows[i].code, rows[i].message);
        return true;
    }
    return false;
}

/* ---- the form of requests ---- */

/* True if a name is that of a pattern, in which # stands for a number. */
static bool fits(const char *pattern, struct str name)
{
    size_t i = 0;
    for (; *pattern; pattern++) {
        if (*pattern != '#') {
            if (i == name.len || name.data[i++] != *pattern) return false;
            continue;
        }
        size_t from = i;
        while (i < name.len && name.data[i] >= '0' && name.data[i] <= '9')
            i++;
        if (i == from || name.data[from] == '0') return false; /* lists begin at 1 */
    }
    return i == name.len;
}

static bool check_names(struct answer *a, const char *const *known)
{
    char why[300];
    for (uint32_t i = 0; i < a->p.count; i++) {
        struct str name = a->p.name[i];
        const char *const *k = known;
        if (str_eq(name, STR("Action")) || str_eq(name, STR("Version"))) continue;
        while (*k && !fits(*k, name))
            k++;
        for (uint32_t j = 0; j < i; j++)
            if (str_eq(a->p.name[j], name)) k = &(const char *){ NULL };
        if (*k) continue;
        snprintf(why, sizeof why, "parameter " STR_FMT " is not recognized", STR_ARG(name));
        refuse_form(a, "UnknownParameter", why);
        return false;
    }
    return true;
}

static struct str get(const struct answer *a, const char *name)
{
    return aws_parameter(&a->p, name);
}

static const char *text(struct answer *a, const char *name)
{
    struct str s = get(a, name);
    return s.data ? s.data : "";
}

static struct str get_n(const struct answer *a, const char *format, int n)
{
    char name[96], number[12];
    const char *hash = strchr(format, '#');
    snprintf(number, sizeof number, "%d", n);
    snprintf(name, sizeof name, "%.*s%s%s", (int)(hash - format), format, number, hash + 1);
    return aws_parameter(&a->p, name);
}

/* ---- instances ---- */

static void id_of(const struct fleet_machine *m, char ret[24])
{
    snprintf(ret, 24, "i-%017llx", (unsigned long long)m->id);
}

static struct fleet_machine *machine_of(struct answer *a, struct str id)
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
    bool pending = at_us < m->ready_us;
    *ret_code = pending ? 0 : 16;
    return pending ? "pending" : "running";
}

static const char *reason_of(const struct answer *a, const struct fleet_machine *m)
{
    const char *own = a->e->extra[m - a->fleet->machine].reason;
    if (own) return own;
    return m->taken ? "Server.SpotInstanceTermination" : "Client.UserInitiatedShutdown";
}

static void put(struct answer *a, const char *name, const char *value)
{
    buf_printf(&a->out.body, "<%s>", name);
    aws_put_xml(&a->out.body, str_from(value));
    buf_printf(&a->out.body, "</%s>", name);
}

static void put_state(struct answer *a, const char *name, const struct fleet_machine *m,
                      int64_t at_us)
{
    int code;
    const char *state = state_of(m, at_us, &code);
    buf_printf(&a->out.body, "<%s><code>%d</code><name>%s</name></%s>", name, code, state, name);
}

static void put_instance(struct answer *a, const struct fleet_machine *m, int64_t at_us)
{
    char id[24], date[DATE_BYTES];
    struct buf *out = &a->out.body;
    id_of(m, id);
    date_print(m->made_us + a->e->aws.date_us, date);
    buf_text(out, "<item>");
    put(a, "instanceId", id);
    put(a, "imageId", m->image);
    put_state(a, "instanceState", m, at_us);
    buf_printf(out, "<privateDnsName>ip-10-0-0-%d.internal</privateDnsName>", (int)(m->id % 250));
    put(a, "instanceType", m->type);
    put(a, "launchTime", date);
    buf_text(out, "<placement>");
    put(a, "availabilityZone", m->zone);
    buf_text(out, "<groupName/><tenancy>default</tenancy></placement>");
    if (m->spot) put(a, "instanceLifecycle", "spot");
    if (has_ended(m, at_us)) {
        buf_text(out, "<stateReason>");
        put(a, "code", reason_of(a, m));
        put(a, "message", reason_of(a, m));
        buf_text(out, "</stateReason>");
    }
    put(a, "clientToken", m->key);
    buf_text(out, "<tagSet>");
    for (uint32_t i = 0; i < m->tag_count; i++) {
        buf_text(out, "<item>");
        put(a, "key", m->tag[i].name);
        put(a, "value", m->tag[i].value);
        buf_text(out, "</item>");
    }
    buf_text(out, "</tagSet></item>");
}

static void begin(struct answer *a, const char *action)
{
    a->out.status = 200;
    buf_clear(&a->out.body);
    buf_printf(&a->out.body,
               "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<%sResponse "
               "xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>r</requestId>",
               action);
}

static void end(struct answer *a, const char *action)
{
    buf_printf(&a->out.body, "</%sResponse>", action);
}

/* ---- RunInstances ---- */

static const char *const run_names[] = {
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

/* The zone that is asked for by name or by subnet; the first with stock where none is. NULL: there is no such. */
static const char *zone_of(struct answer *a)
{
    static const char prefix[] = "subnet-";
    const struct fleet_config *c = &a->fleet->config;
    struct str zone = get(a, "Placement.AvailabilityZone");
    struct str subnet = get(a, "NetworkInterface.1.SubnetId");
    if (!subnet.data) subnet = get(a, "SubnetId");
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

static uint32_t read_tags(struct answer *a, struct fleet_tag *ret)
{
    uint32_t count = 0;
    for (int i = 1; i <= FLEET_TAGS_MAX; i++) {
        struct str key = get_n(a, "TagSpecification.1.Tag.#.Key", i);
        struct str value = get_n(a, "TagSpecification.1.Tag.#.Value", i);
        if (!key.data) break;
        snprintf(ret[count].name, sizeof ret->name, STR_FMT, STR_ARG(key));
        snprintf(ret[count++].value, sizeof ret->value, STR_FMT, STR_ARG(value));
    }
    return count;
}

/* Checks values as the API does. NULL: they are fine. */
static const char *bad_value(struct answer *a, struct str user_data)
{
    struct str token = get(a, "ClientToken");
    if (!get(a, "ImageId").len || !get(a, "MinCount").len || !get(a, "MaxCount").len)
        return "ImageId, MinCount and MaxCount are needed";
    if (token.len > 64) return "ClientToken is longer than 64";
    if (user_data.len > USER_DATA_MAX) return "user data is longer than 16384 bytes";
    if (get(a, "NetworkInterface.1.SubnetId").data && get(a, "SubnetId").data)
        return "network interfaces and an instance-level subnet may not both be specified";
    if (get(a, "InstanceMarketOptions.SpotOptions.MaxPrice").data &&
        !str_eq(get(a, "InstanceMarketOptions.MarketType"), STR("spot")))
        return "a spot price without the market type spot";
    struct str kind = get(a, "TagSpecification.1.ResourceType");
    if (kind.data && !str_eq(kind, STR("instance"))) return "the first tags are the instance's";
    return NULL;
}

static struct hash128 form_of(const struct answer *a)
{
    return hash128(a->ask->body.data, a->ask->body.len, 0);
}

static void put_run(struct answer *a, const struct fleet_machine *m)
{
    begin(a, "RunInstances");
    buf_text(&a->out.body, "<reservationId>r-1</reservationId><ownerId>1</ownerId><instancesSet>");
    put_instance(a, m, max_i64(a->now_us, m->made_us));
    buf_text(&a->out.body, "</instancesSet>");
    end(a, "RunInstances");
}

static void make_instance(struct answer *a, const struct fleet_order *o)
{
    enum fleet_fault fault = a->row ? a->row->fault : FLEET_FINE;
    uint32_t before = a->fleet->count;
    struct fleet_machine *m, *twin;
    if (fault == FLEET_LOST_REQUEST || fault == FLEET_UNREACHABLE) return;
    enum fleet_fault made =
        fake_fleet_create(a->fleet, o, fault == FLEET_LATE_SUCCESS ? a->row->delay_us : 0,
                          fault == FLEET_SLOW_BOOT ? a->row->delay_us : 0, a->now_us, &m);
    if (made != FLEET_FINE) {
        a->row = &(struct fleet_row){ .fault = made };
        refuse_fault(a);
        a->row = NULL;
        return;
    }
    struct ec2_extra *extra = &a->e->extra[m - a->fleet->machine];
    struct hash128 form = form_of(a);
    if (a->fleet->count > before) extra->form = form;
    if (extra->form.lo != form.lo || extra->form.hi != form.hi) {
        refuse(a, 400, "IdempotentParameterMismatch", "the token was used with other parameters");
        return;
    }
    put_run(a, m);
    if (fault != FLEET_DUPLICATE) return;
    struct fleet_order another = *o;
    another.key = "";
    fake_fleet_create(a->fleet, &another, 0, 0, a->now_us, &twin);
}

static void run_instances(struct answer *a)
{
    CLEANUP(buf_fini) struct buf user_data = { 0 };
    struct fleet_tag tag[FLEET_TAGS_MAX];
    char key[FLEET_TEXT] = "";
    const char *zone = zone_of(a), *type = text(a, "InstanceType");
    a->row = fake_fleet_meet(a->fleet, FLEET_CREATE, type, zone, a->now_us);
    if (!check_names(a, run_names)) return;
    if (base64_take(&user_data, get(a, "UserData")) < 0) {
        refuse_form(a, "InvalidUserData.Malformed", "user data is no base64");
        return;
    }
    const char *bad = bad_value(a, buf_view(&user_data));
    if (bad) {
        refuse_form(a, "InvalidParameterValue", bad);
        return;
    }
    if (!zone) {
        refuse(a, 400, "InvalidSubnetID.NotFound", "there is no such zone or subnet");
        return;
    }
    if (refuse_fault(a)) return;
    if (get(a, "ClientToken").len > 0)
        snprintf(key, sizeof key, "%s/%s", zone, text(a, "ClientToken"));
    const struct fleet_order order = {
        .name = text(a, "TagSpecification.1.Tag.1.Value"),
        .key = key,
        .type = type,
        .zone = zone,
        .image = text(a, "ImageId"),
        .user_data = user_data.data,
        .spot = str_eq(get(a, "InstanceMarketOptions.MarketType"), STR("spot")),
        .tag = tag,
        .tag_count = read_tags(a, tag),
    };
    if (order.tag_count > 0) a->e->actions |= 1u << TAG_AT_CREATE;
    make_instance(a, &order);
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

static bool passes(const struct answer *a, const struct fleet_machine *m, int64_t at_us)
{
    for (int f = 1; f <= 10; f++) {
        struct str name = get_n(a, "Filter.#.Name", f);
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

static bool is_named(const struct answer *a, const struct fleet_machine *m)
{
    char id[24];
    id_of(m, id);
    if (!get(a, "InstanceId.1").data) return true;
    for (int i = 1; i <= 100; i++)
        if (str_eq(get_n(a, "InstanceId.#", i), str_from(id))) return true;
    return false;
}

/* True if all ids that the request names are known. */
static bool ids_are_known(struct answer *a, int64_t at_us)
{
    for (int i = 1; get_n(a, "InstanceId.#", i).data; i++) {
        const struct fleet_machine *m = machine_of(a, get_n(a, "InstanceId.#", i));
        if (m && is_known(m, at_us)) continue;
        refuse(a, 400, "InvalidInstanceID.NotFound", "the instance ID does not exist");
        return false;
    }
    return true;
}

static void describe_instances(struct answer *a)
{
    int64_t at_us = a->now_us - a->fleet->config.lag_us;
    uint64_t max = PAGE_MAX, from = 0, n = 0, next = 0;
    struct str size = get(a, "MaxResults"), token = get(a, "NextToken");
    a->row = fake_fleet_meet(a->fleet, FLEET_LIST, NULL, NULL, a->now_us);
    if (!check_names(a, describe_names)) return;
    if ((size.data && (str_to_u64(size, &max) < 0 || max < 5 || max > PAGE_MAX)) ||
        (token.data && str_to_u64(token, &from) < 0)) {
        refuse_form(a, "InvalidParameterValue", "MaxResults or NextToken");
        return;
    }
    if (refuse_fault(a) || !ids_are_known(a, at_us)) return;
    begin(a, "DescribeInstances");
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
    end(a, "DescribeInstances");
}

/* ---- TerminateInstances ---- */

static void terminate_instances(struct answer *a)
{
    static const char *const names[] = { "InstanceId.#", NULL };
    char id[24];
    a->row = fake_fleet_meet(a->fleet, FLEET_REMOVE, NULL, NULL, a->now_us);
    enum fleet_fault fault = a->row ? a->row->fault : FLEET_FINE;
    if (!check_names(a, names)) return;
    if (!get(a, "InstanceId.1").data) {
        refuse_form(a, "MissingParameter", "InstanceId is needed");
        return;
    }
    if (refuse_fault(a) || fault == FLEET_LOST_REQUEST || fault == FLEET_UNREACHABLE) return;
    if (!ids_are_known(a, a->now_us)) return;
    begin(a, "TerminateInstances");
    buf_text(&a->out.body, "<instancesSet>");
    for (int i = 1; get_n(a, "InstanceId.#", i).data; i++) {
        struct fleet_machine *m = machine_of(a, get_n(a, "InstanceId.#", i));
        id_of(m, id);
        buf_text(&a->out.body, "<item>");
        put(a, "instanceId", id);
        put_state(a, "previousState", m, a->now_us);
        fake_fleet_remove(a->fleet, m->id, a->now_us);
        put_state(a, "currentState", m, a->now_us);
        buf_text(&a->out.body, "</item>");
    }
    buf_text(&a->out.body, "</instancesSet>");
    end(a, "TerminateInstances");
}

/* ---- what is read besides ---- */

static void describe_images(struct answer *a)
{
    static const char *const names[] = { "ImageId.#", NULL };
    a->row = fake_fleet_meet(a->fleet, FLEET_LIST, NULL, NULL, a->now_us);
    if (!check_names(a, names) || refuse_fault(a)) return;
    begin(a, "DescribeImages");
    buf_text(&a->out.body, "<imagesSet><item>");
    put(a, "imageId", text(a, "ImageId.1"));
    put(a, "rootDeviceType", "ebs");
    put(a, "rootDeviceName", "/dev/xvda");
    buf_text(&a->out.body, "</item></imagesSet>");
    end(a, "DescribeImages");
}

static bool wants_type(const struct answer *a, const char *type)
{
    for (int i = 1; i <= 64; i++)
        if (str_eq(get_n(a, "InstanceType.#", i), str_from(type))) return true;
    return false;
}

/* A page has the types of one zone. */
static void describe_spot_prices(struct answer *a)
{
    static const char *const names[] = { "InstanceType.#",   "ProductDescription.#",
                                         "StartTime",        "EndTime",
                                         "AvailabilityZone", "MaxResults",
                                         "NextToken",        NULL };
    const struct fleet_config *c = &a->fleet->config;
    char date[DATE_BYTES];
    int64_t from_us;
    uint64_t zone = 0;
    struct str token = get(a, "NextToken");
    a->row = fake_fleet_meet(a->fleet, FLEET_PRICES, NULL, NULL, a->now_us);
    if (!check_names(a, names)) return;
    if ((token.data && str_to_u64(token, &zone) < 0) || zone >= c->zone_count ||
        date_parse(get(a, "StartTime"), &from_us) < 0) {
        refuse_form(a, "InvalidParameterValue", "StartTime or NextToken");
        return;
    }
    if (refuse_fault(a)) return;
    date_print(from_us - 1000 * SECOND, date);
    begin(a, "DescribeSpotPriceHistory");
    buf_text(&a->out.body, "<spotPriceHistorySet>");
    for (uint32_t i = 0; i < c->type_count; i++) {
        if (!wants_type(a, c->type[i].name) || c->type[i].spot_udollars_h == 0) continue;
        buf_text(&a->out.body, "<item>");
        put(a, "instanceType", c->type[i].name);
        put(a, "productDescription", "Linux/UNIX");
        buf_printf(&a->out.body, "<spotPrice>%.6f</spotPrice>",
                   (double)c->type[i].spot_udollars_h / 1e6 * (1 + 0.1 * (double)zone));
        put(a, "timestamp", date);
        put(a, "availabilityZone", c->zone[zone]);
        buf_text(&a->out.body, "</item>");
    }
    buf_text(&a->out.body, "</spotPriceHistorySet>");
    if (zone + 1 < c->zone_count)
        buf_printf(&a->out.body, "<nextToken>%llu</nextToken>", (unsigned long long)zone + 1);
    end(a, "DescribeSpotPriceHistory");
}

/* ---- GetProducts ---- */

static int take_filter(void *ctx, struct str item)
{
    CLEANUP(buf_fini) struct buf name = { 0 };
    CLEANUP(buf_fini) struct buf value = { 0 };
    char *type = ctx;
    if (json_path_text(item, "Field", &name) < 0 || json_path_text(item, "Value", &value) < 0)
        return -EINVAL;
    if (str_eq(buf_view(&name), STR("instanceType")))
        snprintf(type, FLEET_TEXT, STR_FMT, STR_ARG(buf_view(&value)));
    return 0;
}

static const struct form_field filter_form[] = {
    { "Type", FORM_TEXT, true, NULL },
    { "Field", FORM_TEXT, true, NULL },
    { "Value", FORM_TEXT, true, NULL },
    { 0 },
};
static const struct form_field products_form[] = {
    { "ServiceCode", FORM_TEXT, true, NULL },        { "FormatVersion", FORM_TEXT, false, NULL },
    { "Filters", FORM_OBJECTS, false, filter_form }, { "MaxResults", FORM_WHOLE, false, NULL },
    { "NextToken", FORM_TEXT, false, NULL },         { 0 },
};

static void put_product(struct buf *out, double price)
{
    buf_printf(out,
               "{\"product\":{\"sku\":\"S\"},\"terms\":{\"OnDemand\":{\"S.T\":{"
               "\"priceDimensions\":{\"S.T.6\":{\"unit\":\"Hrs\",\"pricePerUnit\":"
               "{\"USD\":\"%.10f\"}}}}}}}",
               price);
}

static void get_products(struct answer *a)
{
    CLEANUP(buf_fini) struct buf product = { 0 };
    char type[FLEET_TEXT] = "", why[FORM_WHY_BYTES];
    struct json_writer w;
    const struct fleet_config *c = &a->fleet->config;
    a->row = fake_fleet_meet(a->fleet, FLEET_PRICES, NULL, NULL, a->now_us);
    if (form_check(a->ask->body, products_form, why) < 0 ||
        json_path_each(a->ask->body, "Filters", take_filter, type) < 0) {
        refuse_form(a, "InvalidParameterException", "no filters");
        return;
    }
    if (a->e->no_price_list) {
        refuse(a, 400, "AccessDeniedException", "not authorized to perform pricing:GetProducts");
        return;
    }
    if (refuse_fault(a)) return;
    a->out.status = 200;
    json_writer_init(&w, &a->out.body);
    json_object(&w);
    json_kv_text(&w, "FormatVersion", "aws_v1");
    json_key(&w, "PriceList");
    json_array(&w);
    for (uint32_t i = 0; i < c->type_count; i++) {
        if (strcmp(c->type[i].name, type) != 0) continue;
        put_product(&product, (double)c->type[i].price_udollars_h / 1e6);
        json_put_str(&w, buf_view(&product));
    }
    json_array_end(&w);
    json_object_end(&w);
}

/* ---- requests ---- */

static void route(struct answer *a)
{
    static const struct {
        const char *name;
        enum action action;
        void (*answer)(struct answer *a);
    } rows[] = {
        { "RunInstances", RUN, run_instances },
        { "DescribeInstances", DESCRIBE, describe_instances },
        { "TerminateInstances", TERMINATE, terminate_instances },
        { "DescribeImages", IMAGES, describe_images },
        { "DescribeSpotPriceHistory", SPOT_PRICES, describe_spot_prices },
    };
    const char *why, *code = fake_aws_check(&a->e->aws, a->ask, a->json ? "pricing" : "ec2",
                                            a->now_us, a->arena, &why);
    if (code) {
        refuse(a, strcmp(code, "RequestExpired") == 0 ? 400 : 401, code, why);
        return;
    }
    if (a->json) {
        a->e->actions |= 1u << PRODUCTS;
        get_products(a);
        return;
    }
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        if (!str_eq(get(a, "Action"), str_from(rows[i].name))) continue;
        a->e->actions |= 1u << rows[i].action;
        if (str_eq(get(a, "Version"), STR("2016-11-15")))
            rows[i].answer(a);
        else
            refuse_form(a, "InvalidAction", "the version is another");
        return;
    }
    refuse_form(a, "InvalidAction", "there is no such action");
}

static void of_login(struct answer *a, struct str path)
{
    a->row = fake_fleet_meet(a->fleet, FLEET_LOGIN, NULL, NULL, a->now_us);
    if (refuse_fault(a)) return;
    if (path.len > 1)
        fake_aws_metadata(&a->e->aws, a->ask, path, a->now_us, &a->out);
    else
        fake_aws_sts(&a->e->aws, &a->p, a->now_us, &a->out);
}

static int64_t respond(void *ctx, const struct web_ask *ask, int64_t now_us, struct arena *arena,
                       struct web_reply *ret)
{
    struct fake_ec2 *e = ctx;
    struct answer a = { .e = e, .fleet = e->fleet, .ask = ask, .arena = arena, .now_us = now_us };
    struct form_target at;
    int64_t took_us;
    struct str target = form_header(ask, "x-amz-target");
    a.json = str_eq(target, STR("AWSPriceListService.GetProducts"));
    if (form_target(ask->url, STR(""), &at) < 0 || at.query.len > 0 ||
        (!a.json && aws_parameters_read(arena, ask->body, &a.p) < 0))
        refuse_form(&a, "MalformedQueryString", "no request of this API");
    else if (str_starts(at.path, STR("/latest/")) ||
             str_eq(get(&a, "Action"), STR("AssumeRoleWithWebIdentity")))
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
