/* t_role_fleet.c - tests fleets by `muster up` with prefill and decode instances, by pool or by role policy:
 * the commands that show the roles, requests that two instances share, and refusals with their sentences.
 *
 * Real binary, real model. The SLOs are so loose that distserve always finds a split. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "tests/proc/rig/up_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OFFERS      \
    "local:\n"      \
    "  cores: 64\n" \
    "  offers: [ { name: bit, share: 0.2, price_per_hour: 0.1 } ]\n"
#define SERVICE(name)        \
    "  - name: " name "\n"   \
    "    model: " MODEL "\n" \
    "    slo_ttft: 10m\n"    \
    "    slo_tpot: 10m\n"    \
    "    engine_flags: [--threads, '1', --max-num-seqs, '2', --kv-cache-memory-bytes, 16MiB]\n"

static void write_config(const char *services)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    buf_printf(&text,
               "controller: { tick: 100ms }\nrouter: { sync: 100ms }\n" OFFERS "services:\n%s",
               services);
    buf_byte(&text, 0);
    places_config(text.data);
}

/* Asks with a prompt longer than a page of K and V, so that there is something to copy. */
static void ask(const char *model)
{
    char url[64];
    snprintf(url, sizeof url, "http://%s", places.router_at);
    WANT(0, "generated", "chat", "--url", url, "--model", model, "--max-tokens", "6",
         "What is the moon, and what is the sun, and how far is the one from the other? Tell me of "
         "the stars as well, of their number and of the night.");
}

/* Returns a metric of the pool's engine, which requires the fleet's secret for it. */
static double engine_metric(const char *pool, const char *name)
{
    CLEANUP(buf_fini) struct buf out = { 0 }, text = { 0 };
    char path[192], bearer[RIG_BEARER], what[64];
    assert_int_equal(MUSTER(&out, "get", "instances", STATE, "-o", "json"), 0);
    snprintf(what, sizeof what, "\"pool\":\"%s\"", pool);
    const char *at = strstr(out.data, what);
    at = at ? strstr(at, "\"port\":") : NULL;
    assert_non_null(at);
    uint16_t port = (uint16_t)strtoul(at + strlen("\"port\":"), NULL, 10);
    snprintf(path, sizeof path, "%s/secret", places.state);
    rig_bearer(path, bearer);
    assert_int_equal(rig_call_with(port, "/metrics", bearer, NULL, &text), 200);
    buf_byte(&text, 0);
    snprintf(what, sizeof what, "\n%s ", name);
    at = strstr(text.data, what);
    assert_non_null(at);
    return strtod(at + strlen(what), NULL);
}

/* Counts the instances with this role in the controller's reply. */
static uint32_t with_role(const char *role)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    char what[64];
    uint32_t count = 0;
    snprintf(what, sizeof what, "\"phase\":\"ready\",\"role\":\"%s\"", role);
    assert_int_equal(MUSTER(&out, "get", "instances", STATE, "-o", "json"), 0);
    for (const char *at = out.data; (at = strstr(at, what)); at++)
        count++;
    return count;
}

static void await_roles(uint32_t both, uint32_t prefill, uint32_t decode)
{
    int64_t until_us = clock_mono_us() + 2 * (int64_t)RIG_WAIT_US;
    while (with_role("both") != both || with_role("prefill") != prefill ||
           with_role("decode") != decode) {
        if (clock_mono_us() > until_us)
            fail_msg("%u both, %u prefill, %u decode", with_role("both"), with_role("prefill"),
                     with_role("decode"));
        usleep(100000);
    }
}

static double pd_handoffs(void)
{
    return rig_metric(places.router_port, "muster_router_pd_handoffs_total");
}

/* Asks until a request has gone to two engines: the router hears of roles half a second later. */
static void ask_until_handed_over(const char *service)
{
    int64_t until_us = clock_mono_us() + RIG_WAIT_US;
    double before = pd_handoffs();
    do {
        ask(service);
        if (clock_mono_us() > until_us) fail_msg("no request to %s was handed over", service);
    } while (pd_handoffs() < before + 1);
}

static void roles_reach_the_fleet(void **state)
{
    (void)state;
    write_config(SERVICE(
        "pools") "    pools:\n"
                 "      - { name: front, offers: [bit], min: 1, max: 1, role: prefill }\n"
                 "      - { name: back, offers: [bit], min: 1, max: 1, role: decode }\n" SERVICE(
                     "row") "    role: distserve\n"
                            "    pools: [ { name: only, offers: [bit], min: 2, max: 2 } ]\n");
    WANT(0, "API", UP);
    await_roles(2, 1, 1); /* the pools' at once; the policy has seen no demand */
    WANT(0, "ROLE", "get", "instances", STATE);
    WANT(0, "ROLE", "status", STATE);
    WANT(0, "prefill", "get", "pools", STATE);
    for (int i = 0; i < 8; i++) /* at least one of its engines learns its speed */
        ask("row");
    await_roles(0, 2, 2);
    AWAIT("\"role_reason\":\"as many of each", "get", "services", "row", STATE, "-o", "json");
    WANT(0, "\"role_reason\":\"roles as the pools have them\"", "get", "services", "pools", STATE,
         "-o", "json");
    assert_true(rig_metric(places.controller_port,
                           "muster_controller_role_instances{service=\"row\","
                           "role=\"decode\"}") > 0);
    WANT(0, "(role policy distserve)", "explain", "--last", "500", STATE);
    /* The front engine computes the first token, the back engine the rest with K and V from the front. */
    ask_until_handed_over("row");
    ask_until_handed_over("pools");
    assert_true(engine_metric("back", "muster_engine_kv_fetched_tokens_total") > 0);
    assert_true(engine_metric("front", "muster_engine_kv_sent_bytes_total") > 0);
    assert_true(engine_metric("front", "muster_engine_kv_fetched_tokens_total") <= 0);
}

/* Impossible settings are refused in a sentence, by the check and by the start alike. */
static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *service, *says;
    } rows[] = {
        { "    pools: [ { name: a, offers: [bit], role: prefill } ]\n",
          "pools of role prefill alone answer no request: add a pool of role decode or both" },
        { "    pools: [ { name: a, offers: [bit], role: prefil } ]\n", "did you mean prefill?" },
        { "    role: distserv\n    pools: [ { name: a, offers: [bit] } ]\n",
          "did you mean distserve?" },
        { "    role: distserve\n    kv_link: 0\n    pools: [ { name: a, offers: [bit] } ]\n",
          "role: distserve needs them to" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(buf_fini) struct buf text = { 0 };
        buf_printf(&text, SERVICE("tiny") "%s", rows[i].service);
        buf_byte(&text, 0);
        write_config(text.data);
        WANT(1, rows[i].says, "config", "check", places.config);
        WANT(1, rows[i].says, UP);
    }
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    rig_hurry_agents();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(roles_reach_the_fleet, places_make, places_end),
        cmocka_unit_test_setup_teardown(what_cannot_be_is_refused, places_make, places_end),
    };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}
