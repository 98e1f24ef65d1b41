/* config.h - the `agent` section of muster.yaml and the flags of `muster agent`.
 *
 * Layer: agent (base/io)
 */
#pragma once
#include "base/io/config/config.h"

struct agent_config {
    struct str spec; /* the launch document */
    int64_t report_us;
    int64_t start_us, sick_us, settle_us, stop_us;
    int64_t back_off_min_us, back_off_max_us, stable_us;
    int64_t failures_max;
    bool send_secret;
    int64_t engine_port; /* not 0: become the engine on this port */
    int64_t log_max;
    int log_level;
};

extern const struct config_section agent_section;
