/* keyless_tests.h - tests that every kind over web_keyless.h must pass, over a fake of its API.
 *
 * Layer: tests/fakes/cloud (controller)
 * Use:   a test's main sets keyless_kind and puts KEYLESS_TESTS into its list. The fake sells, as its first type in
 *        its first two zones, what the offer `small` of the YAML asks for; `zones` tells whether it names both
 */
#pragma once
#include "tests/fakes/cloud/fleet_world.h"
#include "tests/unit/unit.h"

struct keyless_kind {
    const struct cloud_fake *fake;
    const char *yaml; /* one cloud with an offer `small` */
    const char *const *environ;
    const char *token;
    bool
        several; /* another zone, or another machine of the market, is asked when one is sold out */
    const char *others_data; /* user data of a machine of another fleet, where tags stand in it */
};
extern struct keyless_kind keyless_kind;

struct keyless_ground {
    struct fake_fleet fleet;
    void *ctx; /* the fake's */
    struct web_rig rig;
};

struct keyless_ground *keyless_open(const struct fleet_row *script, uint32_t count);
void keyless_close(struct keyless_ground *g); /* fails if a request had a wrong form */
uint32_t keyless_running(const struct keyless_ground *g);
struct cloud_price keyless_price(const struct cloud_event *e, const char *offer);

/* Runs the start command's decoding with the variables of a JSON object, as a container would, and fails the test unless
 * it gives the script with the launch document and the instance's own key. */
void keyless_check_container(struct str env);

void keyless_one_intent_is_one_machine(void **state);
void keyless_a_lost_create_is_removed_by_its_intent(void **state);
void keyless_others_machines_are_left(void **state);
void keyless_faults_of_a_create(void **state);
void keyless_faults_of_other_calls(void **state);
void keyless_duplicates_go(void **state);
void keyless_expired_credentials(void **state);
void keyless_killed_at_every_step(void **state);
void keyless_random_faults(void **state);

#define KEYLESS_TESTS                                                                             \
    cmocka_unit_test(keyless_one_intent_is_one_machine),                                          \
        cmocka_unit_test(keyless_a_lost_create_is_removed_by_its_intent),                         \
        cmocka_unit_test(keyless_others_machines_are_left),                                       \
        cmocka_unit_test(keyless_faults_of_a_create),                                             \
        cmocka_unit_test(keyless_faults_of_other_calls), cmocka_unit_test(keyless_duplicates_go), \
        cmocka_unit_test(keyless_expired_credentials),                                            \
        cmocka_unit_test(keyless_killed_at_every_step), cmocka_unit_test(keyless_random_faults)
