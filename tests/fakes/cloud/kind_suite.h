/* kind_suite.h - tests that every kind of cloud must pass, over a fake of its API.
 *
 * Layer: tests/fakes/cloud (controller)
 * Use:   a test's main sets kind_suite and puts KIND_TESTS into its list; a kind over web_keyless.h KEYLESS_TESTS too.
 *        The offer `small` of the YAML asks for the fake's first type, in its first two zones where it names any
 */
#pragma once
#include "tests/fakes/cloud/fleet_world.h"
#include "tests/unit/unit.h"

#include <stdio.h>

struct kind_ground {
    struct fake_fleet fleet;
    void *ctx; /* the fake's */
    struct web_rig rig;
    char handle[NAME_BYTES]; /* of kind_make_once */
    FILE *record;
};

struct kind_suite {
    const struct cloud_fake *fake;
    const struct fleet_config *fleet;        /* what it sells; NULL: fake->fleet */
    void *(*open)(struct fake_fleet *fleet); /* its ctx, for free(); NULL: fake->open */
    const char *yaml;                        /* one cloud */
    const char *const *environ;
    const char *secret; /* what the file of credentials holds; NULL: there is none */
    const char *token;  /* of fake->open */
    const char *hidden; /* stands in no sentence of an error; NULL: the token */
    const char *record; /* the variable that names a file for requests; NULL: none */
    void (*before_kills)(struct kind_ground *g); /* NULL: nothing to do */

    /* How the kind differs from others. */
    bool keyless; /* a create that may have made something is not repeated within its call */
    bool several; /* the next zone, or the next on the market, is asked where one is sold out */
    bool several_types;   /* another type is given where that of `small` is sold out */
    bool takes_any_order; /* one without stock too, of which a listing tells later */
    bool late_wins; /* a repeated create gives the first one's machine, which comes through later */
    bool remembers_refusals; /* of an intent that was sold out, as long as a request id lives */
    bool signed_date;        /* a wrong clock is refused */
    bool operations;         /* a create is looked at until it is done, under FLEET_PRICES */
    bool unique;             /* a name or an intent has one machine at most: no duplicates */
    bool ageless;            /* listings tell no time of making */
    bool machine_login;      /* without credentials the machine's own are asked for */
    const char *quiet_offer; /* its create asks for no listing and no prices; NULL: `small` */
    /* Of kinds that stop machines: one that switches itself off is as one that a call has stopped.
     */
    bool halts_by_machine;
    int64_t end_us; /* from a remove to the end of its machine */

    /* The machine of `small` has these; NULL: the kind's own tests look. */
    const char *zone, *image, *service_tag, *data /* in its user data */, *handle;
    const char *others_data; /* user data of a machine of another fleet, where tags stand in it */
};
extern struct kind_suite kind_suite;

struct kind_ground *kind_open(const struct fleet_row *script, uint32_t count);
/* NULL: what the suite has. Requests are recorded after kind_record only. */
struct kind_ground *kind_open_as(const struct fleet_config *config, const char *yaml,
                                 const char *const *environ);
struct kind_ground *kind_record(struct kind_ground *g);
void kind_close(struct kind_ground *g); /* fails if a request had a wrong form */
uint32_t kind_running(const struct kind_ground *g);

const struct cloud_event *kind_well(const struct cloud_event *e); /* fails where the call did */
struct cloud_price kind_price(const struct cloud_event *e, const char *offer);
bool kind_costs(const struct cloud_event *e, const char *offer, double dollars_h);

/* Creates "i-1" twice and finds one machine, made and listed as it must be; kind_end_once removes it in every way. */
const struct fleet_machine *kind_make_once(struct kind_ground *g, const char *offer);
void kind_end_once(struct kind_ground *g);

/* Makes `count` machines, on the two offers by turns, and finds each of them once in one listing. */
const struct cloud_event *kind_check_pages(struct kind_ground *g, uint32_t count, const char *offer,
                                           const char *other);

struct kind_refused {
    const char *text, *problem;
};
void kind_check_refused(const struct kind_refused *rows, size_t count);

/* Runs the start command's decoding with the variables of a JSON object, as a container would, and fails the test
 * unless it gives the script with the launch document and the instance's own key. */
void kind_check_container(struct str env);

void kind_one_intent_is_one_machine(void **state);
void kind_a_lost_create_is_removed_by_its_intent(void **state);
void kind_faults_of_a_create(void **state);
void kind_faults_of_other_calls(void **state);
void kind_outage(void **state);
void kind_expired_credentials(void **state);
void kind_killed_at_every_step(void **state);
void kind_crash_points(void **state);
void kind_random_faults(void **state);
void keyless_others_machines_are_left(void **state);
void keyless_duplicates_go(void **state);

#define KIND_TESTS                                                                               \
    cmocka_unit_test(kind_one_intent_is_one_machine),                                            \
        cmocka_unit_test(kind_a_lost_create_is_removed_by_its_intent),                           \
        cmocka_unit_test(kind_faults_of_a_create), cmocka_unit_test(kind_faults_of_other_calls), \
        cmocka_unit_test(kind_outage), cmocka_unit_test(kind_expired_credentials),               \
        cmocka_unit_test(kind_killed_at_every_step), cmocka_unit_test(kind_crash_points),        \
        cmocka_unit_test(kind_random_faults)
/* Of kinds that stop machines and start them again. */
void kind_a_machine_is_stopped_and_started(void **state);
void kind_faults_of_stops_and_starts(void **state);
void kind_stopped_machines_survive_crashes(void **state);
#define STOP_TESTS                                           \
    cmocka_unit_test(kind_a_machine_is_stopped_and_started), \
        cmocka_unit_test(kind_faults_of_stops_and_starts),   \
        cmocka_unit_test(kind_stopped_machines_survive_crashes)
#define KEYLESS_TESTS \
    cmocka_unit_test(keyless_others_machines_are_left), cmocka_unit_test(keyless_duplicates_go)
