/* cloud_fake.h - gives tests a cloud in memory that fails, is slow and takes instances away as scripted, and
 * a driver over a backend whose calls take as long as a script says, both under the test's clock.
 *
 * Layer:   controller/cloud
 * Script:  { operation, nth call of it, fault }: the other calls succeed. { operation, nth call,
 *          latency }: the other calls complete at once. { offer, time, price or loss }: a spot market
 * Truth:   instances are the provider's knowledge: they outlive every controller under test
 * Delay:   (1) a call without latency is made when it is submitted, and its event is there at once;
 *              with a latency it is made at the end of it, in the order of these ends
 *          (2) calls under way belong to the process that made them: cloud_delay_cut is its end.
 *              They are made or not, as the caller says; no process gets their events
 */
#pragma once
#include "controller/cloud/cloud.h"

/* Returns how long the call takes, in microseconds. */
typedef int64_t (*cloud_latency_fn)(void *ctx, const struct cloud_call *call);
struct cloud_delay;

int cloud_delay_new(const struct cloud_backend *backend, void *ctx, cloud_latency_fn latency,
                    struct cloud_delay **ret);

void cloud_delay_free(struct cloud_delay *d); /* not the backend */

/* `pace` gives lag_us, poll_us, calls_per_s; close does nothing: the world stays. */
struct cloud cloud_delay_cloud(struct cloud_delay *d, const struct cloud *pace);
void cloud_delay_cut(struct cloud_delay *d, bool made, int64_t now_us);
uint32_t cloud_delay_under_way(const struct cloud_delay *d);

#define FAKE_INSTANCES_MAX 1024
#define FAKE_SCRIPT_MAX 64
#define FAKE_SLOW_MAX 16
#define FAKE_MARKET_MAX 32

enum fake_op {
    FAKE_CREATE,
    FAKE_LIST,
    FAKE_REMOVE,
    FAKE_STOP,
    FAKE_START,
    FAKE_PRICES,
    FAKE_OP_COUNT
};

enum fake_fault {
    FAKE_FINE,
    FAKE_STOCK_OUT,
    FAKE_QUOTA,
    FAKE_THROTTLE,
    FAKE_AUTH,
    FAKE_INVALID,
    FAKE_LOST_REPLY,   /* done, but the call times out */
    FAKE_LATE_SUCCESS, /* the call times out, and it is done delay_us later */
    FAKE_DOWN,         /* the call times out and nothing was done */
    FAKE_SLOW_BOOT,    /* the agent starts delay_us later than usual (create) */
    FAKE_FAULT_COUNT
};

struct fake_step {
    enum fake_op op;
    uint32_t nth; /* 1-based; 0: every call */
    enum fake_fault fault;
    int64_t delay_us;
    const char *offer; /* create: only for this offer (counted for it alone); NULL: any */
};

struct fake_slow {
    enum fake_op op;
    uint32_t nth; /* 1-based, of the calls submitted; 0: every call */
    int64_t latency_us;
};

struct fake_market { /* at `at_us` (fleet time) the offer's price changes, or its instances go */
    const char *offer;
    int64_t at_us;
    double price_h; /* the new price, where `takes` is false */
    bool takes;
    int64_t notice_us; /* listings say so this long before */
};

struct fake_config {
    int64_t boot_us; /* from create to the first report of the agent */
    int64_t lag_us;  /* listings show the world this long ago */
    bool keyless;    /* the provider knows no idempotency keys: a second create makes a second */
    struct fake_step script[FAKE_SCRIPT_MAX];
    uint32_t step_count;
    struct fake_slow slow[FAKE_SLOW_MAX];
    uint32_t slow_count;
    struct fake_market market[FAKE_MARKET_MAX];
    uint32_t market_count;
    int64_t poll_us; /* 0: a listing with each tick */
    double calls_per_s;
    const struct cloud_fence *fence; /* of the controller under test; NULL: none */
};

struct fake_cloud;

/* `offers` is copied. */
int fake_cloud_new(const struct fake_config *config, const struct offer *offers,
                   uint32_t offer_count, struct fake_cloud **ret);

void fake_cloud_free(struct fake_cloud *f);
struct cloud fake_cloud(struct fake_cloud *f); /* close does nothing: the world stays */

/* Its calls one by one, with a struct fake_cloud as ctx. */
const struct cloud_backend *fake_cloud_backend(void);

/* Plays the death of the controller's process: the provider has the calls under way, but no process gets
 * their events. */
void fake_cloud_cut(struct fake_cloud *f, int64_t now_us);

/* Takes instances away when their time has come; each call of the driver does so too. */
void fake_cloud_turn(struct fake_cloud *f, int64_t now_us);

/* The truth, for oracles. */
struct fake_instance {
    char handle[NAME_BYTES];
    char intent[NAME_BYTES], service[NAME_BYTES], pool[NAME_BYTES], offer[NAME_BYTES];
    int64_t made_us;    /* may lie in the future: late success */
    int64_t ready_us;   /* its agent reports from then on */
    int64_t removed_us; /* 0: it runs */
    int64_t leaves_us;  /* the market takes it away then; 0: not announced */
    bool dead;          /* ended by itself, or taken away */
    bool stopped;
    uint32_t starts; /* after stops */
};

const struct fake_instance *fake_cloud_instances(const struct fake_cloud *f, uint32_t *ret_count);
uint32_t fake_cloud_running(const struct fake_cloud *f, int64_t now_us); /* stopped ones too */
uint32_t fake_cloud_calls(const struct fake_cloud *f, enum fake_op op);  /* made */
uint32_t fake_cloud_under_way(const struct fake_cloud *f);

/* Ends a machine, as if it died or the provider took it (index of fake_cloud_instances). */
void fake_cloud_kill(struct fake_cloud *f, uint32_t index);

/* Adds an instance that this controller never asked for: another person's, or an older controller's. */
void fake_cloud_plant(struct fake_cloud *f, const char *intent, const char *service,
                      const char *pool, const char *offer, int64_t now_us);
