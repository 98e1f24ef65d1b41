/* sim_fleet.h - a fleet as people write it.
 *
 * Layer: cli (simulator)
 */
#pragma once
#include "simulator/sim.h"

/* COUNTxHARDWARE[:SUFFIX...][@DOLLARS_AN_INSTANCE_HOUR], joined by commas or plus signs. COUNT may
 * be MIN-MAX or MIN-START-MAX where the fleet scales; suffixes are tpN, a role, spot, zoneN. */
int sim_fleet_parse(struct str text, struct sim_config *ret, struct sim_control_setup *control,
                    struct err *err);
