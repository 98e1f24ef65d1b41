/* foresight.h - what the clairvoyant bound would have, from all that will come.
 *
 * Layer: simulator (policies)
 * Rules: no policy sees it; it is set as a person's hand would set a count, past signal and shaper
 */
#pragma once
#include "simulator/control.h"

struct foresight {
    uint16_t *need; /* by second; NULL: nobody foresees anything */
    uint32_t count;
};

/* From setup->future. -ENOMEM. */
int foresight_init(struct foresight *ret, const struct sim_control_setup *setup, struct err *err);
void foresight_fini(struct foresight *f);

/* Sets the counts of the service's pools; what the first cannot have goes to the next. */
void foresight_set(const struct foresight *f, struct plan_service *service, int64_t now_us);
