/* metadata.c - knows the metadata services that tell a machine of its end.
 *
 *     ec2:    PUT a session's token ──► GET the action with it; 401: the token is too old
 *             └── there is none ──► GET the recommendation to replace it
 *     gce:    GET "TRUE" or "FALSE"
 *     azure:  GET the events that are to come, for this machine and its neighbours */
#include "agent/metadata.h"

#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/date.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define GCE_LEFT_US 30000000 /* from the notice to the end */

const char *const notice_source_names[NOTICE_SOURCE_COUNT + 1] = { "none", "ec2", "gce", "azure" };

struct service {
    const char *base, *path, *header, *value;
};

static const struct service services[NOTICE_SOURCE_COUNT] = {
    [NOTICE_EC2] = { "http://169.254.169.254", "/latest/meta-data/spot/instance-action",
                     "x-aws-ec2-metadata-token", NULL },
    [NOTICE_GCE] = { "http://metadata.google.internal", "/computeMetadata/v1/instance/preempted",
                     "metadata-flavor", "Google" },
    [NOTICE_AZURE] = { "http://169.254.169.254", "/metadata/scheduledevents?api-version=2020-07-01",
                       "metadata", "true" },
};
static const struct service ec2_risk = { NULL, "/latest/meta-data/events/recommendations/rebalance",
                                         "x-aws-ec2-metadata-token", NULL };
static const struct service ec2_token = { NULL, "/latest/api/token",
                                          "x-aws-ec2-metadata-token-ttl-seconds", "21600" };

static bool wants_token(const struct metadata *n)
{
    return n->source == NOTICE_EC2 && !n->token[0];
}

int metadata_ask(const struct metadata *n, struct metadata_request *ret)
{
    const struct service *s = wants_token(n) ? &ec2_token
                              : n->asks_risk ? &ec2_risk
                                             : &services[n->source];
    struct str base = n->base.len > 0 ? n->base : str_from(services[n->source].base);
    *ret = (struct metadata_request){ .method = wants_token(n) ? "PUT" : "GET",
                                      .header = s->header,
                                      .value = s->value ? s->value : n->token };
    int len = snprintf(ret->url, sizeof ret->url, STR_FMT "%s", STR_ARG(base), s->path);
    return len < (int)sizeof ret->url ? 0 : -E2BIG;
}

static int64_t left_until(int64_t date_us, int64_t wall_us)
{
    return max_i64(0, date_us - wall_us);
}

/* ---- EC2 ---- */

/* A token is a header's value: what could end a header is none. */
static bool keep_token(struct metadata *n, struct str body)
{
    if (body.len == 0 || body.len >= sizeof n->token) return false;
    for (size_t i = 0; i < body.len; i++)
        if (body.data[i] <= ' ' || body.data[i] >= 127) return false;
    memcpy(n->token, body.data, body.len);
    n->token[body.len] = 0;
    return true;
}

static enum notice_found take_ec2(struct metadata *n, int status, struct str body, int64_t wall_us,
                                  int64_t *ret_left_us, char why[NOTICE_WHY_BYTES])
{
    CLEANUP(buf_fini) struct buf action = { 0 };
    CLEANUP(buf_fini) struct buf time = { 0 };
    int64_t date_us;
    if (!n->token[0]) return status == 200 && keep_token(n, body) ? NOTICE_AGAIN : NOTICE_NOTHING;
    if (status == 401) {
        n->token[0] = 0;
        return NOTICE_AGAIN;
    }
    if (n->asks_risk) {
        n->asks_risk = false;
        if (status != 200 || json_path_text(body, "noticeTime", &time) < 0) return NOTICE_NOTHING;
        snprintf(why, NOTICE_WHY_BYTES, "rebalance recommendation of %.32s", time.data);
        return NOTICE_AT_RISK;
    }
    if (status == 404) { /* it stays, as far as is known */
        n->asks_risk = true;
        return NOTICE_AGAIN;
    }
    if (status != 200 || json_path_text(body, "action", &action) < 0 ||
        json_path_text(body, "time", &time) < 0 || date_parse(buf_view(&time), &date_us) < 0)
        return NOTICE_NOTHING;
    *ret_left_us = left_until(date_us, wall_us);
    snprintf(why, NOTICE_WHY_BYTES, "spot instance-action %.40s at %.32s", action.data, time.data);
    return NOTICE_LEAVES;
}

/* ---- Azure ---- */

struct events {
    struct str machine;
    int64_t wall_us, left_us; /* < 0: none found */
    char *why;
};

static int match_machine(void *ctx, struct str item)
{
    const struct str *machine = ctx;
    CLEANUP(buf_fini) struct buf name = { 0 };
    if (json_path_text(item, "", &name) < 0 || name.len != machine->len) return 0;
    return name.len > 0 && strncasecmp(name.data, machine->data, name.len) == 0;
}

/* An event that has begun has no date any more. One whose date nobody can read takes the machine now. */
static int take_event(void *ctx, struct str item)
{
    struct events *e = ctx;
    CLEANUP(buf_fini) struct buf type = { 0 };
    CLEANUP(buf_fini) struct buf from = { 0 };
    int64_t date_us;
    if (json_path_text(item, "EventType", &type) < 0 ||
        (strcmp(type.data, "Preempt") != 0 && strcmp(type.data, "Terminate") != 0) ||
        json_path_each(item, "Resources", match_machine, &e->machine) != 1)
        return 0;
    bool dated = json_path_text(item, "NotBefore", &from) == 0 && from.len > 0 &&
                 date_parse_http(buf_view(&from), &date_us) == 0;
    int64_t left_us = dated ? left_until(date_us, e->wall_us) : 0;
    if (e->left_us >= 0 && e->left_us <= left_us) return 0;
    e->left_us = left_us;
    snprintf(e->why, NOTICE_WHY_BYTES, "scheduled event %.20s at %.40s", type.data,
             dated ? from.data : "once");
    return 0;
}

static enum notice_found take_azure(const struct metadata *n, struct str body, int64_t wall_us,
                                    int64_t *ret_left_us, char why[NOTICE_WHY_BYTES])
{
    struct events e = { .machine = n->machine, .wall_us = wall_us, .left_us = -1, .why = why };
    if (json_path_each(body, "Events", take_event, &e) < 0 || e.left_us < 0) return NOTICE_NOTHING;
    *ret_left_us = e.left_us;
    return NOTICE_LEAVES;
}

/* ---- all ---- */

enum notice_found metadata_take(struct metadata *n, int status, struct str body, int64_t wall_us,
                                int64_t *ret_left_us, char why[NOTICE_WHY_BYTES])
{
    switch (n->source) {
    case NOTICE_EC2:
        return take_ec2(n, status, body, wall_us, ret_left_us, why);
    case NOTICE_GCE:
        if (status != 200 || !str_eq(body, STR("TRUE"))) return NOTICE_NOTHING;
        *ret_left_us = GCE_LEFT_US;
        snprintf(why, NOTICE_WHY_BYTES, "preempted");
        return NOTICE_LEAVES;
    case NOTICE_AZURE:
        if (status != 200) return NOTICE_NOTHING;
        return take_azure(n, body, wall_us, ret_left_us, why);
    case NOTICE_NONE:
    case NOTICE_SOURCE_COUNT:
        break;
    }
    return NOTICE_NOTHING;
}
