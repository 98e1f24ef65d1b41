/* cloud_fake.h - a cloud in memory that fails as told: for tests and the simulator.
 *
 * Layer:   controller/cloud
 * Script:  { operation, nth call of it, fault }: the rest goes well. Instances are what a provider
 *          knows: they outlive every controller that is tested against it.
 */
#pragma once
#include "controller/cloud/cloud.h"

#define FAKE_INSTANCES_MAX 1024
#define FAKE_SCRIPT_MAX 64

enum fake_op { FAKE_CREATE, FAKE_LIST, FAKE_REMOVE, FAKE_OP_COUNT };

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

struct fake_config {
    int64_t boot_us; /* from create to the first report of the agent */
    int64_t lag_us;  /* listings show the world of then */
    bool keyless;    /* the provider knows no idempotency keys: a second create makes a second */
    struct fake_step script[FAKE_SCRIPT_MAX];
    uint32_t step_count;
};

struct fake_cloud;

/* `offers` is copied. */
int fake_cloud_new(const struct fake_config *config, const struct offer *offers,
                   uint32_t offer_count, struct fake_cloud **ret);
void fake_cloud_free(struct fake_cloud *f);
struct cloud fake_cloud(struct fake_cloud *f); /* close does nothing: the world stays */

/* The truth, for oracles. */
struct fake_instance {
    char handle[NAME_BYTES];
    char intent[NAME_BYTES], service[NAME_BYTES], pool[NAME_BYTES], offer[NAME_BYTES];
    int64_t made_us;    /* may lie in the future: late success */
    int64_t ready_us;   /* its agent reports from then on */
    int64_t removed_us; /* 0: it runs */
    bool dead;          /* ended by itself */
};
const struct fake_instance *fake_cloud_instances(const struct fake_cloud *f, uint32_t *ret_count);
uint32_t fake_cloud_running(const struct fake_cloud *f, int64_t now_us);
uint32_t fake_cloud_calls(const struct fake_cloud *f, enum fake_op op);

/* A machine dies, or the provider takes it (index of fake_cloud_instances). */
void fake_cloud_kill(struct fake_cloud *f, uint32_t index);

/* Somebody else's hand, or an older controller's: an instance nobody asked for in this life. */
void fake_cloud_plant(struct fake_cloud *f, const char *intent, const char *service,
                      const char *pool, const char *offer, int64_t now_us);
