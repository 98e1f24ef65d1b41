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
#define EC2_PLACES_MAX 48 /* types times zones of an offer: fewer than an op's requests */
#define EC2_TEMPLATE_BYTES 128

/* Names a type that an instance may have, and its place; zone and subnet empty: EC2 chooses. */
struct ec2_place {
    struct str type, zone, subnet;
};

/* Stages of a create from here on; below, the stage is the place that RunInstances is asked for. */
enum ec2_stage {
    EC2_IMAGE = 1000,
    EC2_LOOK,
    EC2_MISMATCH,
    EC2_TERMINATE,
    EC2_TEMPLATE,
    EC2_RESERVED, /* of prices, as the next two */
    EC2_SWEEP,
    EC2_DROP,
    EC2_FLEET /* and the number of its client token */
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
    double price_h[CLOUD_PRICES_MAX][EC2_PLACES_MAX]; /* of each offer's places; 0: not known */
};

/* Holds the state in which one reply is read. */
struct ec2_reading {
    const struct web_provider *p;
    struct web_op *op;
    int64_t now_us, wall_us;
};

static inline struct ec2 *ec2_of(const struct web_provider *p)
{
    return p->own;
}

/* Fills the places of an offer in the order in which they are tried, those of its first type first; returns their
 * number, 1 or more. */
uint32_t ec2_places(const struct web_settings *s, const struct web_offer *o,
                    struct ec2_place ret[EC2_PLACES_MAX]);

/* Returns a type of an offer, 0 being its own; data NULL: it has no more. */
struct str ec2_type(const struct web_offer *o, uint32_t at);

/* Returns id or name of the user's launch template; empty: there is none. */
struct str ec2_template(const struct web_settings *s, struct str *ret_version, bool *ret_is_id);

/* Returns true if EC2 chooses among the offer's types and zones. */
static inline bool ec2_is_chosen(const struct web_offer *o)
{
    return o->section->types.count > 0;
}

/* The hooks of the kind (ec2_setup.c). */
int ec2_check(const struct web_settings *s, struct err *err);
int ec2_open(struct web_provider *p, struct err *err);
void ec2_close(struct web_provider *p);

/* Asks EC2 itself. */
void ec2_ask(const struct web_provider *p, struct web_op *op, const struct buf *body,
             int64_t wall_us, struct web_step *ret);

void ec2_refuse(const struct web_provider *p, const struct web_op *op, const struct web_reply *r,
                struct web_step *ret);

/* The same for an error that stands in a reply of status 200. */
void ec2_refuse_code(const struct web_provider *p, const struct web_op *op, struct str code,
                     struct str message, struct web_step *ret);

/* OFFER_OK: the code is not known. */
enum offer_error ec2_class(struct str code);

/* Asks for the first place, or the one of `place`, by RunInstances. */
void ec2_ask_run(const struct web_provider *p, struct web_op *op, uint32_t place, int64_t wall_us,
                 struct web_step *ret);

/* Asks for the instances under the op's intent. */
void ec2_ask_intent(const struct web_provider *p, struct web_op *op, enum ec2_stage stage,
                    int64_t wall_us, struct web_step *ret);

/* Returns what an hour of an offer's instance in a place costs, by the last prices; 0: not known. */
double ec2_price_of(const struct web_provider *p, struct str offer, struct str type,
                    struct str zone);

/* Reads a reply of status 200 as a tree, into `tree`, which it inits. False: the op has ended, since it is none. */
bool ec2_read(const struct web_op *op, const struct web_reply *r, struct arena *tree,
              struct xml_node **ret_root, struct web_step *ret);

/* Appends the form of a RunInstances (ec2_order.c). -ENOMEM. */
int ec2_order(const struct web_provider *p, const struct web_op *op, const struct ec2_place *at,
              struct buf *body);

/* Appends the form of a CreateLaunchTemplate, and of a CreateFleet with the nth client token of the intent. -ENOMEM. */
int ec2_template_order(const struct web_provider *p, bool stops, struct buf *body);
int ec2_fleet_order(const struct web_provider *p, const struct web_op *op, uint32_t nth,
                    struct buf *body);

/* Writes the name of the template of the settings; the first `kept` bytes are those of every template of the cloud. */
int ec2_template_name(const struct web_provider *p, bool stops, char ret[EC2_TEMPLATE_BYTES],
                      size_t *ret_kept);

/* A create through CreateFleet (ec2_fleet.c): the request, and what its reply means. */
void ec2_fleet_ask(const struct web_provider *p, struct web_op *op, uint32_t stage, int64_t wall_us,
                   struct web_step *ret);
void ec2_fleet_take(const struct ec2_reading *read, const struct web_reply *r,
                    struct web_step *ret);

/* Clears one launch template away that is of other settings, as the end of WEB_PRICES. `r` NULL: it begins. */
void ec2_fleet_sweep(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                     int64_t wall_us, struct web_step *ret);

/* The step of WEB_PRICES (ec2_prices.c). */
void ec2_prices(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                int64_t wall_us, struct web_step *ret);
