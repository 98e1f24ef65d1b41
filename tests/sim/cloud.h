/* cloud.h - the scripted cloud of the product's tests behind a driver that fails by chance.
 *
 * Layer: tests/sim
 * Truth: controller/cloud/cloud_fake keeps the provider's knowledge; this driver decides which call
 *        goes through and how long it takes, and boots the agent of each machine
 */
#pragma once
#include "controller/cloud/cloud_fake.h"
#include "tests/sim/controller.h"
#include "tests/sim/timeline.h"

#define SIM_OFFERS 3
#define SIM_NOTICES_MAX 8
#define SIM_CALL_US (40 * SECOND) /* the slowest call */

struct cloud_node {
    struct fake_cloud *fake;
    struct sim_caller {
        struct world *w;
        uint32_t index; /* of the controller that calls */
        struct cloud_delay *delay;
    } caller[SIM_CONTROLLERS];
    /* calls of a process that is gone go through, because the provider had them already */
    bool cutting;
    struct offer offer[SIM_OFFERS];
    double speed[SIM_OFFERS];
    int64_t lag_us, poll_us;
    double calls_per_s;
    int64_t price_unknown_us; /* prices are unknown until then */
    int64_t list_empty_us;    /* a mutant: listings are empty until then */
    struct sim_notice {
        char handle[NAME_BYTES];
        int64_t leaves_us;
    } notice[SIM_NOTICES_MAX];
    uint32_t notice_count;
};

void cloud_begin(struct world *w);
void cloud_end(struct world *w);
struct cloud cloud_outer(struct world *w, const struct controller_node *n);

/* The controller has died, or leads no more; calls under way may still go through. */
void cloud_cut(struct world *w, const struct controller_node *n);
void cloud_machine_dies(struct world *w, uint32_t index);
void cloud_gives_notice(struct world *w, uint32_t index, int64_t in_us);

/* Returns true if the machine runs, as the provider knows it now. */
bool cloud_runs(const struct world *w, uint32_t index);
double cloud_machine_price(const struct world *w, uint32_t index);
double cloud_price(const struct world *w, const char *offer);
