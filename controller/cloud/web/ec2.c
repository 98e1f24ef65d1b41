/* ec2.c - speaks the API of Amazon EC2: an instance carries the intent's id as a tag and in its client token.
 *
 *     create:  (DescribeImages ──►) (DescribeInstances by intent ──► it is there: made)
 *              RunInstances, one place after the other ──200──► made
 *                  ├── no capacity ──► the next place
 *                  └── IdempotentParameterMismatch ──► DescribeInstances by intent ──► made
 *     remove:  (DescribeInstances by intent ──►) TerminateInstances ──► going; InvalidInstanceID.NotFound ──► gone
 *     stop:    StopInstances ──► stopping; start: StartInstances ──► pending, or no capacity
 *     list:    DescribeInstances by tag muster-fleet, page by page
 *     prices:  ec2_prices.c
 *
 * EC2 keeps a client token for each zone: the same token makes a second instance in another zone ("RunInstances
 * idempotency" of the EC2 developer guide). So a create with several places looks for its intent first, and one that
 * begins again after a lost reply goes to the place of that reply (op->resume). An offer without zones and subnets
 * is one request, and its token holds for the region. An offer of several types is EC2's to choose from
 * (ec2_fleet.c); without the right to that its places are tried in turn, as above.
 *
 * Sources: API reference 2016-11-15, botocore's model of it; "Error codes for the Amazon EC2 API". */
#include "controller/cloud/web/ec2.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/date.h"
#include "controller/cloud/web/aws_login.h"
#include "controller/cloud/web/web_tags.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE "200" /* instances of a page: about a megabyte */

/* Codes of "Error codes for the Amazon EC2 API", by its sections. */
static const struct web_code codes[] = {
    /* common client errors */
    { "AuthFailure", OFFER_AUTH, true }, /* also for a date that is off */
    { "Blocked", OFFER_AUTH, false },
    { "IdempotentParameterMismatch", OFFER_TRANSIENT, false },
    { "IncorrectInstanceState", OFFER_TRANSIENT, false }, /* it is on its way to another */
    { "IncompleteSignature", OFFER_AUTH, false },
    { "InvalidAction", OFFER_INVALID, false },
    { "InvalidClientTokenId", OFFER_AUTH, true },
    { "InvalidParameter", OFFER_INVALID, false },
    { "InvalidParameterCombination", OFFER_INVALID, false },
    { "InvalidParameterValue", OFFER_INVALID, false },
    { "InvalidQueryParameter", OFFER_INVALID, false },
    { "MalformedQueryString", OFFER_INVALID, false },
    { "MissingAuthenticationToken", OFFER_AUTH, false },
    { "MissingParameter", OFFER_INVALID, false },
    { "OptInRequired", OFFER_AUTH, false },
    { "PendingVerification", OFFER_AUTH, false }, /* of a new account: minutes to hours */
    { "RequestExpired", OFFER_AUTH, true },
    { "RequestLimitExceeded", OFFER_THROTTLE, false },
    { "Throttling", OFFER_THROTTLE, false },
    { "ThrottlingException", OFFER_THROTTLE, false },
    { "UnauthorizedOperation", OFFER_AUTH, false },
    { "UnknownParameter", OFFER_INVALID, false },
    { "UnsupportedProtocol", OFFER_INVALID, false },
    { "ValidationError", OFFER_INVALID, false },
    /* client errors of actions: capacity. Unsupported: the zone does not have the type */
    { "InsufficientAddressCapacity", OFFER_CAPACITY, false },
    { "InsufficientFreeAddressesInSubnet", OFFER_CAPACITY, false },
    { "InsufficientReservedInstanceCapacity", OFFER_CAPACITY, false },
    { "ReservationCapacityExceeded", OFFER_CAPACITY, false },
    { "SpotMaxPriceTooLow", OFFER_CAPACITY, false },
    { "UnfulfillableCapacity", OFFER_CAPACITY, false },
    { "Unsupported", OFFER_CAPACITY, false },
    /* limits */
    { "AddressLimitExceeded", OFFER_QUOTA, false },
    { "InstanceLimitExceeded", OFFER_QUOTA, false },
    { "MaxIOPSLimitExceeded", OFFER_QUOTA, false },
    { "MaxSpotInstanceCountExceeded", OFFER_QUOTA, false },
    { "NetworkInterfaceLimitExceeded", OFFER_QUOTA, false },
    { "PrivateIpAddressLimitExceeded", OFFER_QUOTA, false },
    { "ResourceCountExceeded", OFFER_QUOTA, false },
    { "VcpuLimitExceeded", OFFER_QUOTA, false },
    { "VolumeLimitExceeded", OFFER_QUOTA, false },
    /* what a request names */
    { "InvalidAMIID.Malformed", OFFER_INVALID, false },
    { "InvalidAMIID.NotFound", OFFER_INVALID, false },
    { "InvalidAMIID.Unavailable", OFFER_INVALID, false },
    { "InvalidBlockDeviceMapping", OFFER_INVALID, false },
    { "InvalidCapacityReservationId.Malformed", OFFER_INVALID, false },
    { "InvalidCapacityReservationId.NotFound", OFFER_INVALID, false },
    { "InvalidGroup.NotFound", OFFER_INVALID, false },
    { "InvalidGroupId.Malformed", OFFER_INVALID, false },
    { "InvalidInstanceID.Malformed", OFFER_INVALID, false },
    { "InvalidInstanceID.NotFound", OFFER_INVALID, false },
    { "InvalidInstanceType", OFFER_INVALID, false },
    { "InvalidKeyPair.NotFound", OFFER_INVALID, false },
    { "InvalidLaunchTemplateId.Malformed", OFFER_INVALID, false },
    { "InvalidLaunchTemplateId.NotFound", OFFER_INVALID, false },
    { "InvalidLaunchTemplateId.VersionNotFound", OFFER_INVALID, false },
    { "InvalidLaunchTemplateName.MalformedException", OFFER_INVALID, false },
    { "InvalidLaunchTemplateName.NotFoundException", OFFER_INVALID, false },
    { "InvalidSecurityGroupID.NotFound", OFFER_INVALID, false },
    { "InvalidSnapshot.NotFound", OFFER_INVALID, false },
    { "InvalidSubnetID.NotFound", OFFER_INVALID, false },
    { "InvalidUserData.Malformed", OFFER_INVALID, false },
    { "OperationNotPermitted", OFFER_INVALID, false }, /* protected from termination */
    { "UnsupportedOperation", OFFER_INVALID, false },
    { "VPCIdNotSpecified", OFFER_INVALID, false }, /* there is no default network */
    /* server errors */
    { "InsufficientCapacity", OFFER_CAPACITY, false },
    { "InsufficientHostCapacity", OFFER_CAPACITY, false },
    { "InsufficientInstanceCapacity", OFFER_CAPACITY, false },
    { "InternalError", OFFER_TRANSIENT, false },
    { "InternalFailure", OFFER_TRANSIENT, false },
    { "ServiceUnavailable", OFFER_TRANSIENT, false },
    { "Unavailable", OFFER_TRANSIENT, false },
    /* of the other services: "Common error types" */
    { "AccessDeniedException", OFFER_AUTH, false },
    { "ExpiredTokenException", OFFER_AUTH, true },
    { "InvalidSignatureException", OFFER_AUTH, true },
    { "RequestTimeTooSkewed", OFFER_AUTH, true },
    { "SignatureDoesNotMatch", OFFER_AUTH, true },
    { "UnrecognizedClientException", OFFER_AUTH, true },
    { 0 },
};

/* Reasons for which an instance ends before it ever ran, of "StateReason" in the API reference. */
static const struct web_code reasons[] = {
    { "Server.InsufficientInstanceCapacity", OFFER_CAPACITY, false },
    { "Server.InternalError", OFFER_TRANSIENT, false },
    { "Client.InternalError", OFFER_INVALID, false }, /* a key of the disk that may not be used */
    { "Client.InvalidSnapshot.NotFound", OFFER_INVALID, false },
    { "Client.VolumeLimitExceeded", OFFER_QUOTA, false },
    { 0 },
};

void ec2_ask(const struct web_provider *p, struct web_op *op, const struct buf *body,
             int64_t wall_us, struct web_step *ret)
{
    const struct aws_service service = { .endpoint = ec2_of(p)->endpoint,
                                         .region = p->settings->section->region,
                                         .name = STR("ec2") };
    if (body->rc < 0)
        web_refuse(ret, OFFER_TRANSIENT, "no memory for a request");
    else
        aws_ask(p, op, &service, body, wall_us, ret);
}

void ec2_refuse(const struct web_provider *p, const struct web_op *op, const struct web_reply *r,
                struct web_step *ret)
{
    aws_refuse(p, op, r, codes, ret);
}

void ec2_refuse_code(const struct web_provider *p, const struct web_op *op, struct str code,
                     struct str message, struct web_step *ret)
{
    const struct web_reply fine = { .status = 200, .sent = true };
    web_refuse_reply(p, op, &fine, codes, code, message, ret);
}

enum offer_error ec2_class(struct str code)
{
    for (const struct web_code *row = codes; row->code; row++)
        if (str_eq(code, str_from(row->code))) return row->class;
    return OFFER_OK;
}

bool ec2_read(const struct web_op *op, const struct web_reply *r, struct arena *tree,
              struct xml_node **ret_root, struct web_step *ret)
{
    arena_init(tree, AWS_TREE_BYTES);
    if (xml_read(tree, r->body, ret_root, NULL) == 0) return true;
    web_refuse(ret, OFFER_TRANSIENT, "%s of ec2: the reply is no XML", web_op_names[op->kind]);
    return false;
}

/* ---- instances ---- */

static bool is_cleared(const struct ec2 *e, struct str id)
{
    for (size_t i = 0; i < EC2_CLEARED_MAX; i++)
        if (str_eq(str_from(e->cleared[i]), id)) return true;
    return false;
}

static void note_cleared(struct ec2 *e, struct str id)
{
    if (id.len == 0 || id.len >= EC2_ID_BYTES || is_cleared(e, id)) return;
    web_text_copy(e->cleared[e->cleared_next], EC2_ID_BYTES, id);
    e->cleared_next = (e->cleared_next + 1) % EC2_CLEARED_MAX;
}

static enum offer_error reason_of(struct str code)
{
    for (const struct web_code *row = reasons; row->code; row++)
        if (str_eq(code, str_from(row->code))) return row->class;
    return OFFER_OK;
}

static void read_state(const struct xml_node *item, const struct ec2_reading *r, struct listed *l)
{
    struct str state = xml_text(item, "instanceState.name");
    struct str message = xml_text(item, "stateReason.message");
    bool ended = str_eq(state, STR("terminated")) || str_eq(state, STR("stopped"));
    enum offer_error reason = ended ? reason_of(xml_text(item, "stateReason.code")) : OFFER_OK;
    l->stuck = reason;
    l->gone = ended && reason == OFFER_OK;
    l->stopped = str_eq(state, STR("stopped")) && l->gone;
    if (str_eq(state, STR("shutting-down")) || str_eq(state, STR("stopping")))
        l->leaves_us = r->now_us;
    if (!ended && !l->leaves_us) return;
    snprintf(l->why, sizeof l->why, "the instance is " STR_FMT "%s" STR_FMT, STR_ARG(state),
             message.len > 0 ? ": " : "", (int)min_size(message.len, 100), message.data);
}

/* Fills what an item of an instancesSet says. -EINVAL: it has no id. */
static int read_instance(const struct xml_node *item, const struct ec2_reading *r, struct listed *l)
{
    int64_t launched_us;
    int rc = 0;
    struct str id = xml_text(item, "instanceId");
    *l = (struct listed){ 0 };
    if (id.len == 0 || id.len >= EC2_ID_BYTES) return -EINVAL;
    web_text_copy(l->handle, sizeof l->handle, id);
    const struct xml_node *tag = xml_at(item, "tagSet.item");
    for (; tag && rc == 0; tag = xml_next(tag))
        rc = web_tag_take(xml_text(tag, "key"), xml_text(tag, "value"), false, l);
    l->unreadable = rc < 0 || !l->service[0] || !l->pool[0];
    web_text_copy(l->node, sizeof l->node, xml_text(item, "privateDnsName"));
    if (date_parse(xml_text(item, "launchTime"), &launched_us) == 0) {
        int64_t wall_us = r->wall_us + r->p->login.skew_us;
        l->created_us = max_i64(1, r->now_us - (wall_us - launched_us));
    }
    l->price_h = ec2_price_of(r->p, str_from(l->offer), xml_text(item, "instanceType"),
                              xml_text(item, "placement.availabilityZone"));
    read_state(item, r, l);
    return 0;
}

/* True if no call is needed for it any more: it ended by a call, ours or a person's, or was dealt with. */
static bool is_over(const struct xml_node *item, const struct ec2 *e)
{
    return str_eq(xml_text(item, "instanceState.name"), STR("terminated")) &&
           (str_eq(xml_text(item, "stateReason.code"), STR("Client.UserInitiatedShutdown")) ||
            is_cleared(e, xml_text(item, "instanceId")));
}

/* ---- looking for an intent ---- */

void ec2_ask_intent(const struct web_provider *p, struct web_op *op, enum ec2_stage stage,
                    int64_t wall_us, struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    aws_form(&body, "DescribeInstances", EC2_VERSION);
    aws_put_text(&body, "tag:" WEB_TAG_INTENT, "Filter.1.Name");
    aws_put_text(&body, op->call->intent, "Filter.1.Value.1");
    aws_put_text(&body, "tag:" WEB_TAG_FLEET, "Filter.2.Name");
    aws_put(&body, p->settings->fleet, "Filter.2.Value.1");
    op->stage = stage;
    ec2_ask(p, op, &body, wall_us, ret);
    ret->ask.reads = true;
}

/* Calls fn with each instance of a reply of DescribeInstances until it returns other than 0, which is returned. */
static int each_instance(const struct xml_node *root,
                         int (*fn)(void *ctx, const struct xml_node *item), void *ctx)
{
    int rc = 0;
    const struct xml_node *set = xml_at(root, "reservationSet.item");
    for (; set && rc == 0; set = xml_next(set)) {
        const struct xml_node *item = xml_at(set, "instancesSet.item");
        for (; item && rc == 0; item = xml_next(item))
            rc = fn(ctx, item);
    }
    return rc;
}

/* One that runs is taken before one that has ended; one of another intent is not taken. */
static int take_made(void *ctx, const struct xml_node *item)
{
    const struct ec2_reading *r = ctx;
    struct listed one, *made = &r->op->made;
    bool ended = made->gone || made->stuck != OFFER_OK;
    if (read_instance(item, r, &one) < 0) return -EINVAL;
    if (strcmp(one.intent, r->op->call->intent) != 0) return 0;
    if (!made->handle[0] || ended) *made = one;
    return 0;
}

/* ---- create ---- */

void ec2_ask_run(const struct web_provider *p, struct web_op *op, uint32_t place, int64_t wall_us,
                 struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    struct ec2_place places[EC2_PLACES_MAX];
    uint32_t count = ec2_places(p->settings, op->offer, places);
    op->stage = min_u32(place, count - 1);
    if (ec2_order(p, op, &places[op->stage], &body) < 0)
        web_refuse(ret, OFFER_TRANSIENT, "no memory for a request");
    else
        ec2_ask(p, op, &body, wall_us, ret);
    if (body.data) explicit_bzero(body.data, body.len);
}

static void ask_image(const struct web_provider *p, struct web_op *op, int64_t wall_us,
                      struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    aws_form(&body, "DescribeImages", EC2_VERSION);
    aws_put(&body, p->settings->section->image, "ImageId.1");
    op->stage = EC2_IMAGE;
    ec2_ask(p, op, &body, wall_us, ret);
    ret->ask.reads = true;
}

/* Goes on to the first order of this try. One place needs no look: its token finds the instance. */
static void look_or_run(const struct web_provider *p, struct web_op *op, int64_t wall_us,
                        struct web_step *ret)
{
    struct ec2_place places[EC2_PLACES_MAX];
    if (op->resume == 0 && ec2_places(p->settings, op->offer, places) > 1)
        ec2_ask_intent(p, op, EC2_LOOK, wall_us, ret);
    else if (op->resume >= EC2_IMAGE)
        ec2_fleet_ask(p, op, max_u32(op->resume, EC2_FLEET), wall_us, ret);
    else
        ec2_ask_run(p, op, op->resume, wall_us, ret);
}

static void take_image(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                       int64_t wall_us, struct web_step *ret)
{
    CLEANUP(arena_fini) struct arena tree = { 0 };
    struct xml_node *root;
    if (!ec2_read(op, r, &tree, &root, ret)) return;
    struct str device = xml_text(root, "imagesSet.item.rootDeviceName");
    if (device.len == 0 || device.len >= sizeof ec2_of(p)->root_device) {
        web_refuse(ret, OFFER_INVALID, "create of ec2: the image " STR_FMT " has no root disk",
                   STR_ARG(p->settings->section->image));
        return;
    }
    web_text_copy(ec2_of(p)->root_device, sizeof ec2_of(p)->root_device, device);
    look_or_run(p, op, wall_us, ret);
}

static void take_look(struct ec2_reading *read, const struct web_reply *r, struct web_step *ret)
{
    CLEANUP(arena_fini) struct arena tree = { 0 };
    struct xml_node *root;
    struct web_op *op = read->op;
    if (!ec2_read(op, r, &tree, &root, ret)) return;
    if (each_instance(root, take_made, read) < 0)
        web_refuse(ret, OFFER_TRANSIENT, "create of ec2: an instance without an id");
    else if (op->made.handle[0])
        web_succeed(ret);
    else if (op->stage == EC2_LOOK && ec2_is_chosen(op->offer))
        ec2_fleet_ask(read->p, op, EC2_FLEET, read->wall_us, ret);
    else if (op->stage == EC2_LOOK)
        ec2_ask_run(read->p, op, 0, read->wall_us, ret);
    else /* it is not listed yet */
        web_refuse(ret, OFFER_TRANSIENT, "create of ec2: %s was made with other settings",
                   op->call->intent);
}

static void take_run(struct ec2_reading *read, const struct web_reply *r, struct web_step *ret)
{
    CLEANUP(arena_fini) struct arena tree = { 0 };
    struct xml_node *root;
    if (!ec2_read(read->op, r, &tree, &root, ret)) return;
    const struct xml_node *item = xml_at(root, "instancesSet.item");
    if (item && take_made(read, item) == 0 && read->op->made.handle[0])
        web_succeed(ret);
    else
        web_refuse(ret, OFFER_TRANSIENT, "create of ec2: the reply has no instance");
}

static void run_was_refused(const struct ec2_reading *read, const struct web_reply *r,
                            struct web_step *ret)
{
    struct web_op *op = read->op;
    struct ec2_place places[EC2_PLACES_MAX];
    if (str_eq(aws_error_code(op, r), STR("IdempotentParameterMismatch"))) {
        ec2_ask_intent(read->p, op, EC2_MISMATCH, read->wall_us, ret);
        return;
    }
    ec2_refuse(read->p, op, r, ret);
    bool more = op->stage + 1 < ec2_places(read->p->settings, op->offer, places);
    if (ret->class == OFFER_CAPACITY && more)
        ec2_ask_run(read->p, op, op->stage + 1, read->wall_us, ret);
}

static void create(struct ec2_reading *read, const struct web_reply *r, struct web_step *ret)
{
    const struct web_provider *p = read->p;
    struct web_op *op = read->op;
    bool wants_device = p->settings->section->disk_bytes > 0 && !ec2_of(p)->root_device[0];
    if (!r && wants_device)
        ask_image(p, op, read->wall_us, ret);
    else if (!r)
        look_or_run(p, op, read->wall_us, ret);
    else if (op->stage == EC2_TEMPLATE || op->stage >= EC2_FLEET)
        ec2_fleet_take(read, r, ret);
    else if (r->status != 200 && op->stage < EC2_IMAGE)
        run_was_refused(read, r, ret);
    else if (r->status != 200)
        ec2_refuse(p, op, r, ret);
    else if (op->stage == EC2_IMAGE)
        take_image(p, op, r, read->wall_us, ret);
    else if (op->stage < EC2_IMAGE)
        take_run(read, r, ret);
    else
        take_look(read, r, ret);
}

/* ---- remove ---- */

struct ends {
    struct ec2 *ec2;
    struct buf body;
    uint32_t count;
};

static int take_end(void *ctx, const struct xml_node *item)
{
    struct ends *e = ctx;
    struct str id = xml_text(item, "instanceId");
    if (str_eq(xml_text(item, "instanceState.name"), STR("terminated")))
        note_cleared(e->ec2, id);
    else
        aws_put(&e->body, id, "InstanceId.%u", ++e->count);
    return 0;
}

static void ask_end(const struct web_provider *p, struct web_op *op, int64_t wall_us,
                    struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    aws_form(&body, "TerminateInstances", EC2_VERSION);
    aws_put_text(&body, op->call->handle, "InstanceId.1");
    op->stage = EC2_TERMINATE;
    ec2_ask(p, op, &body, wall_us, ret);
}

/* Ends all under the intent: a lost create may have been made twice. */
static void end_found(const struct ec2_reading *read, const struct web_reply *r,
                      struct web_step *ret)
{
    CLEANUP(arena_fini) struct arena tree = { 0 };
    struct xml_node *root;
    struct ends e = { .ec2 = ec2_of(read->p) };
    if (!ec2_read(read->op, r, &tree, &root, ret)) return;
    aws_form(&e.body, "TerminateInstances", EC2_VERSION);
    each_instance(root, take_end, &e);
    read->op->stage = EC2_TERMINATE;
    if (e.count == 0)
        web_succeed(ret);
    else
        ec2_ask(read->p, read->op, &e.body, read->wall_us, ret);
    buf_fini(&e.body);
}

static void remove_instance(const struct ec2_reading *read, const struct web_reply *r,
                            struct web_step *ret)
{
    const struct web_provider *p = read->p;
    struct web_op *op = read->op;
    if (!r && op->call->handle[0]) {
        ask_end(p, op, read->wall_us, ret);
    } else if (!r) {
        ec2_ask_intent(p, op, EC2_LOOK, read->wall_us, ret);
    } else if (r->status == 200 && op->stage == EC2_LOOK) {
        end_found(read, r, ret);
    } else if (r->status == 200 ||
               str_eq(aws_error_code(op, r), STR("InvalidInstanceID.NotFound"))) {
        note_cleared(ec2_of(p), str_from(op->call->handle));
        web_succeed(ret);
    } else {
        ec2_refuse(p, op, r, ret);
    }
}

/* ---- stop and start ---- */

/* Both are of one instance by its id, and change nothing about one that is so already. */
static void turn(const struct ec2_reading *read, const struct web_reply *r, struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    const struct web_op *op = read->op;
    if (r && r->status == 200) {
        web_succeed(ret);
    } else if (r) {
        ec2_refuse(read->p, op, r, ret);
    } else {
        aws_form(&body, op->kind == WEB_STOP ? "StopInstances" : "StartInstances", EC2_VERSION);
        aws_put_text(&body, op->call->handle, "InstanceId.1");
        ec2_ask(read->p, read->op, &body, read->wall_us, ret);
    }
}

/* ---- list ---- */

static void ask_page(const struct ec2_reading *read, struct str next, struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    aws_form(&body, "DescribeInstances", EC2_VERSION);
    aws_put_text(&body, "tag:" WEB_TAG_FLEET, "Filter.1.Name");
    aws_put(&body, read->p->settings->fleet, "Filter.1.Value.1");
    aws_put_text(&body, PAGE, "MaxResults");
    if (next.len > 0) aws_put(&body, next, "NextToken");
    ec2_ask(read->p, read->op, &body, read->wall_us, ret);
}

static int take_listed(void *ctx, const struct xml_node *item)
{
    const struct ec2_reading *r = ctx;
    struct web_op *op = r->op;
    if (is_over(item, ec2_of(r->p))) return 0;
    if (op->count == CLOUD_LIST_MAX) return -E2BIG;
    int rc = read_instance(item, r, &op->item[op->count]);
    op->count += rc == 0;
    return rc;
}

static void list(struct ec2_reading *read, const struct web_reply *r, struct web_step *ret)
{
    CLEANUP(arena_fini) struct arena tree = { 0 };
    struct xml_node *root;
    if (!r) {
        ask_page(read, STR(""), ret);
        return;
    }
    if (r->status != 200) {
        ec2_refuse(read->p, read->op, r, ret);
        return;
    }
    if (!ec2_read(read->op, r, &tree, &root, ret)) return;
    bool is_list = str_eq(root->name, STR("DescribeInstancesResponse"));
    int rc = is_list ? each_instance(root, take_listed, read) : -EINVAL;
    struct str next = xml_text(root, "nextToken");
    if (rc == -E2BIG)
        web_refuse(ret, OFFER_INVALID, "more than %d instances have the tag", CLOUD_LIST_MAX);
    else if (rc < 0)
        web_refuse(ret, OFFER_TRANSIENT, "list of ec2: the reply is no list of instances");
    else if (next.len > 0)
        ask_page(read, next, ret);
    else
        web_succeed(ret);
}

/* ---- the kind ---- */

static void step(struct web_provider *p, struct web_op *op, const struct web_reply *reply,
                 int64_t now_us, int64_t wall_us, struct web_step *ret)
{
    struct ec2_reading read = { .p = p, .op = op, .now_us = now_us, .wall_us = wall_us };
    if (reply && op->kind != WEB_LOGIN) aws_learn_clock(p, reply, wall_us);
    switch (op->kind) {
    case WEB_LOGIN:
        aws_login(p, op, reply, ec2_of(p)->sts, now_us, wall_us, ret);
        break;
    case WEB_CREATE:
        create(&read, reply, ret);
        break;
    case WEB_REMOVE:
        remove_instance(&read, reply, ret);
        break;
    case WEB_STOP:
    case WEB_START:
        turn(&read, reply, ret);
        break;
    case WEB_LIST:
        list(&read, reply, ret);
        break;
    case WEB_PRICES:
        ec2_prices(p, op, reply, wall_us, ret);
        break;
    case WEB_OP_COUNT:
        break;
    }
}

static const char *const takes[] = { "region",
                                     "profile",
                                     "account",
                                     "image",
                                     "launch_template",
                                     "networks",
                                     "firewalls",
                                     "ssh_keys",
                                     "disk",
                                     "public_address",
                                     "offers.types",
                                     "offers.zones",
                                     "offers.spot",
                                     "offers.spot_price_max",
                                     "offers.capacity_reservation",
                                     NULL };
static const char *const wants[] = { "region", NULL }; /* and an image, which a template may have */
static const char *const reply_headers[] = { "date", NULL };

const struct web_kind web_kind_ec2 = {
    .name = "ec2",
    .about = "Amazon EC2: instances in zones of a region, on demand and spot",
    .lag_us = 30000000, /* eventual consistency has no bound that is promised */
    .poll_us = 10000000,
    .billing = { 1000000,
                 60000000 }, /* aws.amazon.com/ec2/pricing: Linux by the second, a minute at least */
    .calls_per_s = 2,        /* what RunInstances' bucket is refilled with */
    .notice = "ec2",
    .user_data_bytes = (size_t)16 << 10,
    .stops = true,
    .create_is_keyed = true,
    .takes = takes,
    .wants = wants,
    .reply_headers = reply_headers,
    .check = ec2_check,
    .open = ec2_open,
    .close = ec2_close,
    .step = step,
};
