/* t_handoff.c - which instance goes on after a prefill instance: the one whose step slows the least. */
#include "policies/route/pd_handoff.h"
#include "tests/unit/policies/role_rig.h"

static void the_least_slowed_goes_on(void **state)
{
    (void)state;
    struct route_instance in[3] = { 0 };
    for (uint32_t i = 0; i < 3; i++) {
        in[i] =
            (struct route_instance){ .id = i, .accepts = true, .has_perf = true, .seqs_max = 8 };
        in[i].perf = role_rig_instance(i).perf;
        in[i].in_flight = 4;
        in[i].kv_tokens = 8000;
    }
    struct route_view view = { .instance = in, .instance_count = 3 };
    const struct route_req req = { .prompt_tokens = 1000 };
    struct rng rng;
    rng_seed(&rng, 1);
    in[1].kv_tokens = 4000;
    assert_int_equal(handoff_pick(&view, &req, &rng), 1);
    in[1].in_flight = 8; /* no slot */
    in[2].perf.step_s *= 0.5;
    assert_int_equal(handoff_pick(&view, &req, &rng), 2);
    in[2].accepts = false;
    assert_int_equal(handoff_pick(&view, &req, &rng), 0);
    in[0].in_flight = 8; /* slots nowhere: the least slowed all the same */
    assert_int_equal(handoff_pick(&view, &req, &rng), 1);
    in[0].accepts = in[1].accepts = false;
    assert_int_equal(handoff_pick(&view, &req, &rng), ROUTE_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_slowed_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
