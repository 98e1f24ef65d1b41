/* fake_ec2_answer.h - has what answers of the fake of EC2 are made with: a request's parameters, refusals, XML.
 *
 * Layer: tests/fakes/cloud (base/core)
 */
#pragma once
#include "tests/fakes/cloud/fake_ec2.h"

/* In the order of ec2_action_names. */
enum ec2_action {
    RUN,
    TAG_AT_CREATE,
    DESCRIBE,
    TERMINATE,
    STOP,
    START,
    IMAGES,
    SPOT_PRICES,
    PRODUCTS,
    CREATE_FLEET,
    CREATE_TEMPLATE,
    LIST_TEMPLATES,
    DROP_TEMPLATE,
    RESERVATIONS,
};

/* Holds the reply to one request. */
struct ec2_answer {
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

void fake_ec2_refuse(struct ec2_answer *a, int status, const char *code, const char *message);

/* Refuses a launch template, named below `prefix`, that is not the user's or lacks the version; false: it is, or none is
 * named. */
bool fake_ec2_lacks_template(struct ec2_answer *a, const char *prefix);

/* The same for a request that the API would not understand, which is counted. */
void fake_ec2_refuse_form(struct ec2_answer *a, const char *code, const char *why);

/* Answers what the fault stands for in this API; false: it is none of those. */
bool fake_ec2_refuse_fault(struct ec2_answer *a);
const char *fake_ec2_code_of(enum fleet_fault fault); /* NULL: it is no refusal */

/* Refuses a parameter that is not in `known`, where # stands for a number, or is there twice. False: it did. */
bool fake_ec2_check_names(struct ec2_answer *a, const char *const *known);

struct str fake_ec2_get(const struct ec2_answer *a, const char *name); /* data NULL: absent */
const char *fake_ec2_text(struct ec2_answer *a, const char *name);     /* "" : absent */
struct str fake_ec2_get_n(const struct ec2_answer *a, const char *format, int n); /* # is n */

void fake_ec2_put(struct ec2_answer *a, const char *name, const char *value);
void fake_ec2_begin(struct ec2_answer *a, const char *action);
void fake_ec2_end(struct ec2_answer *a, const char *action);

/* Instances (fake_ec2.c). */
void fake_ec2_id_of(const struct fleet_machine *m, char ret[24]);
uint32_t fake_ec2_read_tags(struct ec2_answer *a, struct fleet_tag *ret);
/* The zone that is meant by name or by subnet, the first with stock where none is. NULL: there is no such. */
const char *fake_ec2_zone_of(struct ec2_answer *a, struct str zone, struct str subnet);
/* Makes one as the fault of a->row says. False: the reply is an error already, or nobody gets one. */
bool fake_ec2_make(struct ec2_answer *a, const struct fleet_order *o, struct fleet_machine **ret);

/* Prices (fake_ec2_prices.c). */
void fake_ec2_describe_spot_prices(struct ec2_answer *a);
void fake_ec2_get_products(struct ec2_answer *a);
void fake_ec2_describe_reservations(struct ec2_answer *a);
uint32_t fake_ec2_reserved(const struct ec2_answer *a); /* instances that use it up */

/* Launch templates and fleets (fake_ec2_fleet.c). */
void fake_ec2_create_fleet(struct ec2_answer *a);
void fake_ec2_create_template(struct ec2_answer *a);
void fake_ec2_list_templates(struct ec2_answer *a);
void fake_ec2_drop_template(struct ec2_answer *a);
