/* market_stalls.h - a generated market behind the fakes of three providers, sold through our drivers: the world of
 * `muster simulate clouds` with EC2, Compute Engine and Azure between controller and market.
 *
 * Layer: tests/fakes/cloud (controller, cli/simulate)
 * Has:   stock and spot capacity by type and zone, spot prices, outages of APIs, lost replies, notices, as the market
 *        says; what a provider's own API does with them is the fake's
 * Bound: FLEET_MACHINES_MAX machines of a provider in all, which is some months
 */
#pragma once
#include "cli/simulate/clouds_world.h"
#include "tests/fakes/cloud/fake_fleet.h"

struct market_stalls;

struct market_stalls *market_stalls_new(const struct market *market,
                                        struct clouds_seller *ret_sellers);

/* Requests that an API would not have understood, of all providers, and the last of them. */
uint32_t market_stalls_bad_forms(const struct market_stalls *f, const char **ret_last);
uint32_t market_stalls_calls(const struct market_stalls *f, enum fleet_op op);
void market_stalls_free(struct market_stalls *f);
