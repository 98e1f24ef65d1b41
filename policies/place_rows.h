/* place_rows.h - the rows of the tables, for place.c and the tests.
 *
 * Layer: policies
 */
#pragma once
#include "policies/place.h"

extern const struct place_policy place_joint;
extern const struct place_policy place_order;
extern const struct place_policy place_on_demand;
extern const struct place_policy place_spot;
extern const struct place_policy place_melange;
extern const struct place_policy place_single_type;
extern const struct place_policy place_gpipe;
extern const struct place_policy place_pipedream;
extern const struct place_policy place_hexgen;
extern const struct place_policy place_helix;
extern const struct place_policy place_spotserve;
extern const struct place_policy place_in_order;
extern const struct place_policy place_serverlessllm;
extern const struct place_policy place_least_loaded;
extern const struct place_policy place_nearest_tier;
