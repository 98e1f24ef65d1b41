/* ec2_fleet.c - creates an instance where EC2 chooses among several types and zones: CreateFleet of type instant, for
 * one instance.
 *
 *     CreateFleet ──200, an instance──► made
 *         ├── no such template ──► CreateLaunchTemplate ──► CreateFleet, with the next token
 *         ├── 200, errors alone ──► their class; a passing one of an earlier try: CreateFleet with the next token
 *         ├── 200, neither, or another form of the token ──► DescribeInstances by intent
 *         └── no right ──► RunInstances, one place after the other
 *
 * Spot capacity is chosen by "price-capacity-optimized": of the pools that EC2 takes for the least likely to be
 * interrupted, the cheapest. On demand the cheapest counts. A fleet that has ended with errors has used its token up:
 * the same one would bring the errors back.
 *
 * Templates of other settings, of which this cloud has made its own, are deleted one by one with the prices, a day
 * after they were made: a controller of another version may still use one.
 *
 * Rejected: fleets of type maintain, which replace instances by themselves, beside the plan; a template for each
 * instance, with its user data, which would be left over by a crash.
 *
 * Source: API reference of CreateFleet, CreateLaunchTemplate; "Allocation strategies for Spot Instances". */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/date.h"
#include "controller/cloud/web/ec2.h"
#include "controller/cloud/web/web_tags.h"

#include <stdio.h>
#include <string.h>

#define TOKENS_MAX 8                         /* of one intent */
#define TEMPLATE_AGE_US INT64_C(86400000000) /* before one of other settings is deleted */
#define TEMPLATES_PAGE "200"

static const char no_template[] = "InvalidLaunchTemplateName.NotFoundException";
static const char is_there[] = "InvalidLaunchTemplateName.AlreadyExistsException";

/* In op->note: the template was made in this try, so that it is not made once more. */
#define TEMPLATE_MADE "template"

static void ask_form(const struct web_provider *p, struct web_op *op, struct buf *body, int rc,
                     int64_t wall_us, struct web_step *ret)
{
    if (rc < 0)
        web_refuse(ret, OFFER_TRANSIENT, "no memory for a request");
    else
        ec2_ask(p, op, body, wall_us, ret);
    if (body->data) explicit_bzero(body->data, body->len);
}

void ec2_fleet_ask(const struct web_provider *p, struct web_op *op, uint32_t stage, int64_t wall_us,
                   struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    op->stage = min_u32(stage, EC2_FLEET + TOKENS_MAX - 1);
    int rc = ec2_fleet_order(p, op, op->stage - EC2_FLEET, &body);
    ask_form(p, op, &body, rc, wall_us, ret);
}

static void ask_template(const struct web_provider *p, struct web_op *op, int64_t wall_us,
                         struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    snprintf(op->note, sizeof op->note, "%s %u", TEMPLATE_MADE, op->stage + 1);
    op->stage = EC2_TEMPLATE;
    int rc = ec2_template_order(p, op->call->stops, &body);
    ask_form(p, op, &body, rc, wall_us, ret);
}

/* ---- replies ---- */

static bool may_make_template(const struct web_provider *p, const struct web_op *op)
{
    return p->settings->section->launch_template.len == 0 &&
           !str_starts(str_from(op->note), STR(TEMPLATE_MADE));
}

/* The reply names type and zone; the rest is what was ordered. */
static void make(const struct ec2_reading *read, const struct xml_node *item, struct str id,
                 struct web_step *ret)
{
    struct web_op *op = read->op;
    struct listed *l = &op->made;
    *l = (struct listed){ .created_us = read->now_us };
    web_text_copy(l->handle, sizeof l->handle, id);
    web_text_copy(l->intent, sizeof l->intent, str_from(op->call->intent));
    web_text_copy(l->service, sizeof l->service, op->spec->service);
    web_text_copy(l->pool, sizeof l->pool, op->spec->pool);
    web_text_copy(l->offer, sizeof l->offer, op->spec->offer);
    struct str zone = xml_text(item, "availabilityZone");
    if (zone.len == 0)
        zone = xml_text(item, "launchTemplateAndOverrides.overrides.availabilityZone");
    l->price_h = ec2_price_of(read->p, op->spec->offer, xml_text(item, "instanceType"), zone);
    web_succeed(ret);
}

/* Returns the error that says most of what may help: a lack of capacity passes, before one whose code is known. */
static const struct xml_node *telling_error(const struct xml_node *first)
{
    const struct xml_node *best = first;
    enum offer_error has = OFFER_OK;
    for (const struct xml_node *e = first; e && has != OFFER_CAPACITY; e = xml_next(e)) {
        enum offer_error class = ec2_class(xml_text(e, "errorCode"));
        if (class != OFFER_CAPACITY && (class == OFFER_OK || has != OFFER_OK)) continue;
        best = e;
        has = class;
    }
    return best;
}

static bool has_code(const struct xml_node *first, const char *code)
{
    for (const struct xml_node *e = first; e; e = xml_next(e))
        if (str_eq(xml_text(e, "errorCode"), str_from(code))) return true;
    return false;
}

/* Takes a fleet that has made nothing and says why. */
static void take_errors(const struct ec2_reading *read, const struct xml_node *errors,
                        struct web_step *ret)
{
    struct web_op *op = read->op;
    const struct xml_node *e = telling_error(errors);
    if (has_code(errors, no_template) && may_make_template(read->p, op)) {
        ask_template(read->p, op, read->wall_us, ret);
        return;
    }
    ec2_refuse_code(read->p, op, xml_text(e, "errorCode"), xml_text(e, "errorMessage"), ret);
    bool passes = ret->class == OFFER_TRANSIENT || ret->class == OFFER_THROTTLE;
    bool is_old = op->resume == op->stage;
    if (passes && is_old && op->stage + 1 < EC2_FLEET + TOKENS_MAX)
        ec2_fleet_ask(read->p, op, op->stage + 1, read->wall_us, ret);
}

static void take_fleet(const struct ec2_reading *read, const struct web_reply *r,
                       struct web_step *ret)
{
    CLEANUP(arena_fini) struct arena tree = { 0 };
    struct xml_node *root;
    if (!ec2_read(read->op, r, &tree, &root, ret)) return;
    const struct xml_node *item = xml_at(root, "fleetInstanceSet.item");
    const struct xml_node *errors = xml_at(root, "errorSet.item");
    struct str id = xml_text(item, "instanceIds.item");
    if (id.len > 0 && id.len < EC2_ID_BYTES)
        make(read, item, id, ret);
    else if (errors)
        take_errors(read, errors, ret);
    else
        ec2_ask_intent(read->p, read->op, EC2_MISMATCH, read->wall_us, ret);
}

void ec2_fleet_take(const struct ec2_reading *read, const struct web_reply *r, struct web_step *ret)
{
    const struct web_provider *p = read->p;
    struct web_op *op = read->op;
    struct str code = aws_error_code(op, r);
    uint64_t next = EC2_FLEET;
    bool made = r->status == 200 || str_eq(code, str_from(is_there));
    if (op->stage == EC2_TEMPLATE && made) {
        struct str rest = str_from(op->note);
        str_cut(&rest, ' ');
        (void)str_to_u64(rest, &next);
        ec2_fleet_ask(p, op, (uint32_t)next, read->wall_us, ret);
    } else if (r->status == 200) {
        take_fleet(read, r, ret);
    } else if (str_eq(code, STR("UnauthorizedOperation"))) {
        ec2_ask_run(p, op, 0, read->wall_us, ret);
    } else if (str_eq(code, STR("IdempotentParameterMismatch"))) {
        ec2_ask_intent(p, op, EC2_MISMATCH, read->wall_us, ret);
    } else if (str_eq(code, str_from(no_template)) && may_make_template(p, op)) {
        ask_template(p, op, read->wall_us, ret);
    } else {
        ec2_refuse(p, op, r, ret);
    }
}

/* ---- templates of other settings ---- */

static void ask_templates(const struct web_provider *p, struct web_op *op, int64_t wall_us,
                          struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    aws_form(&body, "DescribeLaunchTemplates", EC2_VERSION);
    aws_put_text(&body, "tag:" WEB_TAG_FLEET, "Filter.1.Name");
    aws_put(&body, p->settings->fleet, "Filter.1.Value.1");
    aws_put_text(&body, TEMPLATES_PAGE, "MaxResults");
    op->stage = EC2_SWEEP;
    ec2_ask(p, op, &body, wall_us, ret);
}

/* True if it is this cloud's, of settings that it has no longer, and old. */
static bool is_stale(const struct web_provider *p, const struct xml_node *item, int64_t wall_us)
{
    char name[EC2_TEMPLATE_BYTES], other[EC2_TEMPLATE_BYTES];
    size_t kept;
    int64_t made_us;
    struct str has = xml_text(item, "launchTemplateName");
    if (ec2_template_name(p, false, name, &kept) < 0 || has.len != strlen(name) ||
        ec2_template_name(p, true, other, &kept) < 0)
        return false;
    return str_starts(has, str_of(name, kept)) && !str_eq(has, str_from(name)) &&
           !str_eq(has, str_from(other)) &&
           date_parse(xml_text(item, "createTime"), &made_us) == 0 &&
           wall_us + p->login.skew_us - made_us > TEMPLATE_AGE_US;
}

static void drop_stale(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                       int64_t wall_us, struct web_step *ret)
{
    CLEANUP(arena_fini) struct arena tree = { 0 };
    CLEANUP(buf_fini) struct buf body = { 0 };
    struct xml_node *root;
    if (!ec2_read(op, r, &tree, &root, ret)) return;
    const struct xml_node *item = xml_at(root, "launchTemplates.item");
    while (item && !is_stale(p, item, wall_us))
        item = xml_next(item);
    if (!item) {
        web_succeed(ret);
        return;
    }
    aws_form(&body, "DeleteLaunchTemplate", EC2_VERSION);
    aws_put(&body, xml_text(item, "launchTemplateId"), "LaunchTemplateId");
    op->stage = EC2_DROP;
    ec2_ask(p, op, &body, wall_us, ret);
}

/* A sweep that fails is made again with the next prices; it takes none of them back. */
void ec2_fleet_sweep(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                     int64_t wall_us, struct web_step *ret)
{
    bool wanted = false;
    for (uint32_t i = 0; i < p->settings->offer_count; i++)
        wanted = wanted || ec2_is_chosen(&p->settings->offer[i]);
    /* Without the root disk's name the settings of the template are not known yet. */
    if (p->settings->section->disk_bytes > 0 && !ec2_of(p)->root_device[0]) wanted = false;
    if (!r && wanted)
        ask_templates(p, op, wall_us, ret);
    else if (r && r->status == 200 && op->stage == EC2_SWEEP)
        drop_stale(p, op, r, wall_us, ret);
    else
        web_succeed(ret);
}
