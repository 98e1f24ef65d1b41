/* cloud_delay.h - a backend in memory, as a driver whose calls take as long as a script says: for
 * tests, under a clock of their own.
 *
 * Layer:   controller/cloud
 * Rules:   (1) a call without latency is made when it is submitted, and its event is there at once;
 *              with a latency it is made at the end of it, in the order of these ends
 *          (2) calls under way belong to the process that made them: cloud_delay_cut is its end.
 *              They are made or not, as the caller says; nobody hears of them
 */
#pragma once
#include "controller/cloud/cloud.h"

/* How long this call takes, in microseconds. */
typedef int64_t (*cloud_latency_fn)(void *ctx, const struct cloud_call *call);

struct cloud_delay;
int cloud_delay_new(const struct cloud_backend *backend, void *ctx, cloud_latency_fn latency,
                    struct cloud_delay **ret);
void cloud_delay_free(struct cloud_delay *d); /* not the backend */

/* `pace` gives lag_us, poll_us, calls_per_s; close does nothing: the world stays. */
struct cloud cloud_delay_cloud(struct cloud_delay *d, const struct cloud *pace);

void cloud_delay_cut(struct cloud_delay *d, bool made, int64_t now_us);
uint32_t cloud_delay_under_way(const struct cloud_delay *d);
