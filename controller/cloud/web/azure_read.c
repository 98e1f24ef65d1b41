/* azure_read.c - reads replies of Azure. */
#include "controller/cloud/web/azure_read.h"

#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/date.h"
#include "controller/cloud/web/web_section.h"
#include "controller/cloud/web/web_step.h"
#include "controller/cloud/web/web_tags.h"

#include <stdio.h>

/* "Troubleshoot common Azure deployment errors", "Resolve errors for SKU not available", "Troubleshoot allocation
 * failures", "Error messages for Spot Virtual Machines", "Resolve errors for resource quotas". */
static const struct web_code codes[] = {
    { "SkuNotAvailable", OFFER_CAPACITY, false },
    { "AllocationFailed", OFFER_CAPACITY, false },
    { "ZonalAllocationFailed", OFFER_CAPACITY, false },
    { "OverconstrainedAllocationRequest", OFFER_CAPACITY, false },
    { "OverconstrainedZonalAllocationRequest", OFFER_CAPACITY, false },
    { "SpotPriceGreaterThanProvidedMaxPrice", OFFER_CAPACITY, false },
    { "SubnetIsFull", OFFER_CAPACITY, false },
    { "QuotaExceeded", OFFER_QUOTA, false },
    { "OperationNotAllowed", OFFER_QUOTA, false }, /* cores of a family, or of spot */
    { "PublicIPCountLimitReached", OFFER_QUOTA, false },
    { "TooManyRequests", OFFER_THROTTLE, false },
    { "SubscriptionRequestsThrottled", OFFER_THROTTLE, false },
    { "OperationNotAllowedTooManyRequests", OFFER_THROTTLE, false },
    { "InvalidAuthenticationToken", OFFER_AUTH, true },
    { "ExpiredAuthenticationToken", OFFER_AUTH, true },
    { "AuthenticationFailed", OFFER_AUTH, true },
    { "AuthorizationFailed", OFFER_AUTH, false },
    { "LinkedAuthorizationFailed", OFFER_AUTH, false },
    { "ReadOnlyDisabledSubscription", OFFER_AUTH, false },
    { "InvalidParameter", OFFER_INVALID, false },
    { "InvalidRequestContent", OFFER_INVALID, false },
    { "InvalidResourceReference", OFFER_INVALID, false },
    { "InvalidSubscriptionId", OFFER_INVALID, false },
    { "SubscriptionNotFound", OFFER_INVALID, false },
    { "ResourceGroupNotFound", OFFER_INVALID, false },
    { "PlatformImageNotFound", OFFER_INVALID, false },
    { "RequestDisallowedByPolicy", OFFER_INVALID, false },
    { "AnotherOperationInProgress", OFFER_TRANSIENT, false },
    { "RetryableError", OFFER_TRANSIENT, false },
    { "ServerTimeout", OFFER_TRANSIENT, false },
    { "InternalServerError", OFFER_TRANSIENT, false },
    { "InternalExecutionError", OFFER_TRANSIENT, false },
    { 0 },
};

struct str azure_text(struct web_op *op, struct str json, const char *path)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (json_path_text(json, path, &text) < 0) return (struct str){ 0 };
    return arena_str(op->arena, buf_view(&text));
}

void azure_refuse(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                  struct web_step *ret)
{
    web_refuse_reply(p, op, r, codes, azure_text(op, r->body, "error.code"),
                     azure_text(op, r->body, "error.message"), ret);
}

/* ---- machines ---- */

static int take_tag(void *ctx, struct str name, struct str value)
{
    struct azure_reading *r = ctx;
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (json_path_text(value, "", &text) < 0) return -EINVAL;
    if (str_eq(name, STR(WEB_TAG_FLEET)) && str_eq(buf_view(&text), r->p->settings->fleet))
        r->is_ours = true;
    if (web_tag_take(name, buf_view(&text), false, r->item) < 0) r->item->unreadable = true;
    return 0;
}

/* "States and billing status of Azure Virtual Machines": one that is stopped is billed on. */
static int take_status(void *ctx, struct str status)
{
    static const struct {
        const char *code;
        bool gone;
    } rows[] = {
        { "PowerState/stopped", true },
        { "PowerState/deallocated", true },
        { "PowerState/stopping", false },
        { "PowerState/deallocating", false },
    };
    struct azure_reading *r = ctx;
    struct str code = azure_text(r->op, status, "code");
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        if (!str_eq(code, str_from(rows[i].code))) continue;
        r->item->gone = rows[i].gone;
        r->item->stopped = str_eq(code, STR("PowerState/deallocated"));
        r->item->leaves_us = rows[i].gone ? 0 : r->now_us;
        snprintf(r->item->why, sizeof r->item->why, "the machine is %s", rows[i].code + 11);
    }
    return 0;
}

int azure_read_machine(struct str json, struct azure_reading *r)
{
    struct listed *l = r->item;
    int64_t created_us;
    struct str name = azure_text(r->op, json, "name");
    *l = (struct listed){ 0 };
    r->is_ours = false;
    if (name.len == 0 || name_copy(l->handle, sizeof l->handle, name) < 0) return -EINVAL;
    int rc = json_path_each_member(json, "tags", take_tag, r);
    if (rc == 0 || rc == -ENOENT)
        rc = json_path_each(json, "properties.instanceView.statuses", take_status, r);
    if (rc < 0 && rc != -ENOENT) return rc;
    web_text_copy(l->node, sizeof l->node, name);
    if (date_parse(azure_text(r->op, json, "properties.timeCreated"), &created_us) == 0)
        l->created_us = max_i64(1, r->now_us - (r->wall_us - created_us));
    l->unreadable = l->unreadable || !l->service[0] || !l->pool[0];
    r->state = azure_text(r->op, json, "properties.provisioningState");
    if (str_eq(r->state, STR("Failed"))) {
        l->gone = true;
        snprintf(l->why, sizeof l->why, "the machine could not be provisioned");
    } else if (str_eq(r->state, STR("Deleting"))) {
        l->leaves_us = r->now_us;
        snprintf(l->why, sizeof l->why, "the machine is deleted");
    }
    return 0;
}
