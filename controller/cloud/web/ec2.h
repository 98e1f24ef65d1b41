/* ec2.h - has what the calls of EC2 share: where an offer's instances may be, the services, what is kept between ops.
 *
 * Layer:   controller/cloud/web (base/core)
 * Threads: pure
 */
#pragma once
#include "controller/cloud/web/aws_call.h"
#include "controller/cloud/web/web_section.h"

#define EC2_VERSION "2016-11-15"
#define EC2_CLEARED_MAX 128
#define EC2_ID_BYTES 32

/* Where an instance may be; both empty: EC2 chooses. */
struct ec2_place {
    struct str zone, subnet;
};

struct ec2 {
    struct arena arena;
    struct str endpoint, sts;
    struct str pricing; /* empty: not asked, since the endpoint is somebody else's */
    struct str pricing_region;
    char root_device[64]; /* of the image; empty: not asked for yet */
    /* Instances that a remove has dealt with: a terminated one stays in listings for about an hour, and no call
     * clears it away. A ring; what is forgotten here is removed once more, which costs a call. */
    char cleared[EC2_CLEARED_MAX][EC2_ID_BYTES];
    uint32_t cleared_next;
};

static inline struct ec2 *ec2_of(const struct web_provider *p)
{
    return p->own;
}

/* Fills the places of an offer in the order in which they are tried; returns their number, 1 or more. */
uint32_t ec2_places(const struct web_settings *s, const struct web_offer *o,
                    struct ec2_place ret[WEB_ZONES_MAX]);

/* The hooks of the kind (ec2_setup.c). */
int ec2_check(const struct web_settings *s, struct err *err);
int ec2_open(struct web_provider *p, struct err *err);
void ec2_close(struct web_provider *p);

/* Asks EC2 itself. */
void ec2_ask(const struct web_provider *p, struct web_op *op, const struct buf *body,
             int64_t wall_us, struct web_step *ret);

void ec2_refuse(const struct web_provider *p, const struct web_op *op, const struct web_reply *r,
                struct web_step *ret);

/* Reads a reply of status 200 as a tree, into `tree`, which it inits. False: the op has ended, since it is none. */
bool ec2_read(const struct web_op *op, const struct web_reply *r, struct arena *tree,
              struct xml_node **ret_root, struct web_step *ret);

/* Appends the form of a RunInstances (ec2_order.c). -ENOMEM. */
int ec2_order(const struct web_provider *p, const struct web_op *op, const struct ec2_place *at,
              struct buf *body);

/* The step of WEB_PRICES (ec2_prices.c). */
void ec2_prices(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                int64_t wall_us, struct web_step *ret);
