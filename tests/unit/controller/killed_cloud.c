/* killed_cloud.c - the run that tests of clouds with real processes share. */
#include "tests/unit/controller/killed_cloud.h"

#include "base/core/bits.h"
#include "base/core/fault.h"
#include "controller/cloud/cloud_fake.h"
#include "policies/place/place.h"
#include "policies/scale/scale.h"
#include "tests/unit/unit.h"

#include <stdio.h>

static struct plan_service service(const char *provider)
{
    struct plan_service s = {
        .name = "chat",
        .pool_count = 1,
        .max = 4,
        .ttft_slo_s = 2,
        .tpot_slo_s = 0.1,
        .policy = &scale_static,
        .place = &place_joint,
        .scale = { .count = 0, .zero_after_s = 1 },
        .shape = { .down_window_s = 1 },
        .pool = { { .name = "small", .offer_count = 1, .max = 4, .manual = -1 } },
    };
    snprintf(s.pool[0].provider, sizeof s.pool[0].provider, "%s", provider);
    return s;
}

void killed_cloud_report(struct control *c, const char *intent, int64_t now_us)
{
    struct agent_report r = { .instance = str_from(intent),
                              .intent = str_from(intent),
                              .boot = 1,
                              .seq = (uint64_t)now_us,
                              .state = AGENT_UP,
                              .has_engine = true,
                              .engine = {
                                  .host = STR("127.0.0.1"), .port = 1, .health = ENGINE_READY } };
    struct agent_reply reply;
    control_report(c, &r, now_us, &reply);
    if (!reply.drain) return;
    r.state = AGENT_STOPPED;
    r.seq++;
    control_report(c, &r, now_us, &reply);
}

static int64_t no_latency(void *ctx, const struct cloud_call *call)
{
    (void)ctx, (void)call;
    return 0;
}

struct killed_count killed_cloud_run(const struct killed_cloud *k, const char *step, uint64_t nth,
                                     uint64_t seed)
{
    static const struct str args[] = { { "engine", 6 } };
    static const struct control_launch launch[1][SCALE_POOLS_MAX] = {
        { { .engine_args = args, .engine_arg_count = 1 } }
    };
    struct plan_service sv = service(k->provider);
    struct store *store;
    struct cloud_delay *delay;
    must(store_memory_open(1000, &store, NULL) == 0);
    must(cloud_delay_new(k->backend, k->backend_ctx, no_latency, &delay) == 0);
    struct cloud cloud = cloud_delay_cloud(delay, &(struct cloud){ 0 });
    struct control_setup setup = { .service = &sv,
                                   .service_count = 1,
                                   .launch = launch,
                                   .cloud = &cloud,
                                   .cloud_count = 1,
                                   .store = store,
                                   .merge = MERGE_CONFIG_DEFAULT,
                                   .host = STR("127.0.0.1"),
                                   .port = 1,
                                   .engine_host = STR("127.0.0.1"),
                                   .secret = k->secret,
                                   .lease_ms = 1000,
                                   .decisions_max = 100,
                                   .seed = seed };
    struct control *c;
    struct killed_count ret = { 0 };
    int quiet = 0;
    must(control_new(&setup, *k->now_us, &c, NULL) == 0);
    must(control_scale(c, STR("chat"), STR("small"), 2, NULL) == 0);
    fault_arm(step, nth);
    for (int t = 0; t < k->turns || (t < 600 && quiet < k->quiet); t++) {
        if (t == 25) must(control_scale(c, STR("chat"), STR("small"), 0, NULL) == 0);
        if (k->second(k->ground, c) == -ECANCELED) {
            ret.crashes++;
            control_free(c);
            cloud_delay_cut(delay, k->carried_out, *k->now_us);
            setup.seed += 100;
            must(control_new(&setup, *k->now_us, &c, NULL) == 0);
        }
        ret.left = k->there(k->ground);
        quiet = ret.left > 0 ? 0 : quiet + 1;
        ret.most = max_u32(ret.most, ret.left);
        if (t == 24 && ret.left != 2) fail_msg("%s: %u run", step, ret.left);
    }
    fault_disarm();
    control_free(c);
    cloud_delay_free(delay);
    store_close(store);
    return ret;
}
