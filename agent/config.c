/* config.c - the agent's rows of the configuration schema. */
#include "agent/config.h"

#include "base/io/log.h"
#include "fleet/periods.h"

#define AT(member) .offset = offsetof(struct agent_config, member)

// clang-format off
static const struct config_field rows[] = {
    { .name = "spec", .type = CONFIG_TEXT, .required = true, AT(spec),
      .about = "Path of the launch document that came with this instance." },
    { .name = "report", .type = CONFIG_DURATION, .default_text = REPORT_PERIOD_TEXT, .min = 1e5,
      .max = 6e7, AT(report_us), .about = "How often the engine is asked and the controller is told." },
    { .name = "start", .type = CONFIG_DURATION, .default_text = "2m", .min = 1e6, .max = 864e8,
      AT(start_us), .about = "Time for an engine from its start to ready; killed beyond." },
    { .name = "sick", .type = CONFIG_DURATION, .default_text = "15s", .min = 1e6, .max = 36e8,
      AT(sick_us), .about = "A ready engine that does not answer for so long is killed." },
    { .name = "settle", .type = CONFIG_DURATION, .default_text = "1500ms", .min = 0, .max = 36e8,
      AT(settle_us), .about = "A draining engine is empty once nothing was in flight for so long." },
    { .name = "stop", .type = CONFIG_DURATION, .default_text = "35s", .min = 1e5, .max = 36e8,
      AT(stop_us), .about = "From SIGTERM to SIGKILL; longer than the engine's own `drain`." },
    { .name = "back_off_min", .type = CONFIG_DURATION, .default_text = "500ms", .min = 1e4,
      .max = 36e8, AT(back_off_min_us), .about = "Wait before a dead engine is started again." },
    { .name = "back_off_max", .type = CONFIG_DURATION, .default_text = "30s", .min = 1e4,
      .max = 36e8, AT(back_off_max_us), .about = "The wait doubles up to this." },
    { .name = "stable", .type = CONFIG_DURATION, .default_text = "60s", .min = 1e6, .max = 864e8,
      AT(stable_us), .about = "Up for so long, earlier failures are forgotten." },
    { .name = "failures_max", .type = CONFIG_INT, .default_text = "8", .min = 1, .max = 1000,
      .unit = "failures", AT(failures_max),
      .about = "Failures in a row after which the instance ends itself." },
    { .name = "send_secret", .type = CONFIG_BOOL, .default_text = "false", AT(send_secret),
      .about = "Send the fleet's secret itself to an engine or a controller of a release that knows no "
               "signatures, where the launch document names it." },
    { .name = "log_level", .type = CONFIG_ENUM, .default_text = "info", .names = log_level_names,
      AT(log_level), .about = "Least level that is logged." },
    { .name = "log_max", .type = CONFIG_BYTES, .default_text = "16MiB", .min = 65536,
      .max = 64e9, AT(log_max),
      .about = "The log files of agent and engine are turned at this size: the older one is "
               "FILE.1." },
    { .name = "engine_port", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 65535,
      .debug = true, AT(engine_port),
      .about = "Write down who we are and become the engine on this port; the agent starts engines "
               "so." },
};
// clang-format on

static const struct config_record record = CONFIG_RECORD_OF(struct agent_config, rows);

const struct config_section agent_section = {
    .name = "agent",
    .about = "The part that supervises one engine.",
    .record = &record,
};
