/* cloud_adopted.h - the provider `adopted`: engines that somebody else started, as their agents report them.
 *
 * Layer:   controller/cloud (controller/core)
 * Threads: the controller's loop
 * Rules:   (1) an instance is what an agent with `adopt` reports; it is listed for as long as it reports, and
 *              ADOPTED_SILENT_US longer
 *          (2) nothing can be bought: every create is refused as sold out
 *          (3) remove takes the instance off the list; its agent is told to stop, and the engine goes on
 *              without the fleet
 *          (4) after a start of the controller agents need a moment to report: a listing lags by
 *              ADOPTED_LAG_US, so that nothing is proven absent before
 */
#pragma once
#include "controller/cloud/cloud.h"

#define ADOPTED_NAME "adopted" /* of the provider, and of its only offer */
#define ADOPTED_SILENT_US INT64_C(600000000)
#define ADOPTED_LAG_US INT64_C(10000000)
#define ADOPTED_MAX 256 /* instances; further ones are not listed, and counted in the log */

/* Opens the provider; *ret is closed by cloud_close. -ENOMEM. */
int cloud_adopted_open(struct cloud *ret, struct err *err);

/* Takes the report of an agent that adopted an engine; `ctx` is that of the cloud. */
void cloud_adopted_heard(void *ctx, const struct agent_report *r, int64_t now_us);

/* Fills the only offer. */
void cloud_adopted_offer(struct offer *ret);
