/* fake_ec2.h - speaks the API of Amazon EC2 over a fake fleet, with the token service, the price list and a machine's
 * metadata behind the same address.
 *
 * Layer: tests/fakes/cloud (base/core)
 * Has:   RunInstances, DescribeInstances, TerminateInstances, DescribeImages, DescribeSpotPriceHistory, CreateFleet of
 *        type instant, StopInstances, StartInstances, CreateLaunchTemplate, DescribeLaunchTemplates,
 *        DeleteLaunchTemplate of 2016-11-15; GetProducts; what fake_aws.h has. A parameter that these actions do
 *        not document, one that is missing or of another form is refused as the API does, and counted in
 *        fleet->refused_form
 * As EC2: a client token holds in its zone, and with other parameters is refused; an instance that has ended is
 *        listed for an hour; subnets are named subnet-ZONE
 */
#pragma once
#include "base/core/hash.h"
#include "tests/fakes/cloud/fake_aws.h"
#include "tests/fakes/cloud/fake_fleet.h"

/* A launch template that a user has made, by its id and its name; its versions are 1 to 3. */
#define EC2_USER_TEMPLATE "lt-0fedcba9876543210"
#define EC2_USER_TEMPLATE_NAME "house"
#define EC2_USER_IMAGE "ami-0000000000000house"
#define EC2_TEMPLATES_MAX 16
#define EC2_REFUSED_MAX 64

struct ec2_extra {
    struct hash128 form; /* of the parameters that made it */
    bool reserved;       /* it uses up the reservation */
    const char *reason;  /* why it ended, in place of what the fleet knows; NULL: that */
};

struct ec2_template {
    char name[FLEET_TEXT], fleet[FLEET_TEXT]; /* its tag muster-fleet */
    uint64_t id;
    int64_t made_us;
};

/* A fleet that made nothing: its token brings the errors back. */
struct ec2_refused {
    char token[FLEET_TEXT];
    char errors[512]; /* of the reply */
};

struct ec2_reservation {
    const char *id, *type, *zone; /* id NULL: there is none */
    uint32_t total;
};

struct fake_ec2 {
    struct fake_fleet *fleet;
    struct fake_aws aws;
    bool no_price_list;                         /* the key has no right to it */
    struct ec2_extra extra[FLEET_MACHINES_MAX]; /* beside fleet->machine */
    bool no_reservations;                       /* nor to reservations */
    struct ec2_reservation reservation;
    bool no_fleets; /* the key has no right to CreateFleet */
    struct ec2_template template[EC2_TEMPLATES_MAX];
    uint32_t template_count;
    uint64_t template_last;
    struct ec2_refused refused[EC2_REFUSED_MAX]; /* a ring */
    uint32_t refused_next;
    uint32_t actions; /* a bit for each in ec2_action_names that was asked for */
};

/* Actions as policies name them, "ec2:RunInstances", with the tagging that one of RunInstances asks for; ends with
 * NULL. */
extern const char *const ec2_action_names[];

extern const struct cloud_fake fake_ec2; /* ctx: struct fake_ec2 */
