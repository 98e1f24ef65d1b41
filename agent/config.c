/* config.c - lists the settings of section `agent`. */
#include "agent/config.h"

#include "agent/dialler.h"
#include "agent/metadata.h"
#include "base/io/log.h"
#include "base/wire/launch.h"
#include "base/wire/report.h"
#include "fleet/defaults.h"

#define AT(member) .offset = offsetof(struct agent_config, member)
static const char *const engine_logs[] = { "file", "inherit", NULL };

// clang-format off
static const struct config_field rows[] = {
    { .name = "spec", .type = CONFIG_TEXT, AT(spec),
      .about = "Path of the launch document that came with this instance." },
    { .name = "await", .type = CONFIG_BOOL, .default_text = "false", AT(await),
      .about = "spec: wait while the document is empty, as it is in a Pod of a workload until an instance is "
               "bound to it." },
    { .name = "adopt", .type = CONFIG_TEXT, AT(adopt),
      .about = "In place of `spec`: http://HOST:PORT of an engine that somebody else started. It is reported and "
               "drained, and never ended." },
    { .name = "engine_kind", .type = CONFIG_ENUM, .default_text = "openai", .names = engine_kind_names,
      AT(engine_kind), .about = "adopt: what that engine is." },
    { .name = "service", .type = CONFIG_TEXT, .max = REPORT_NAME_BYTES_MAX, AT(service),
      .about = "adopt: service that it serves, as the controller has it." },
    { .name = "pool", .type = CONFIG_TEXT, .max = REPORT_NAME_BYTES_MAX, AT(pool),
      .about = "adopt: pool of that service, of provider `adopted`." },
    { .name = "name", .type = CONFIG_TEXT, .max = 15, AT(name),
      .about = "adopt: name of the instance; by default it is made of the address." },
    { .name = "controller", .type = CONFIG_TEXT, AT(controller),
      .about = "adopt: [https://]HOST:PORT of the controller; without one, routers list the agent's port in "
               "`router.endpoints`." },
    { .name = "secret_file", .type = CONFIG_TEXT, AT(secret_file),
      .about = "adopt: file with the fleet's secret." },
    { .name = "tokenizer", .type = CONFIG_TEXT, .max = LAUNCH_ARG_BYTES_MAX, AT(tokenizer),
      .about = "adopt: GGUF file, Hugging Face folder, or file of `muster tokenizer`, with the engine's own tokenizer; without it the engine "
               "is routed to by load alone." },
    { .name = "kv_events", .type = CONFIG_TEXT, AT(kv_events),
      .about = "adopt: tcp://HOST:PORT or ipc://PATH where vLLM or SGLang publishes KV events." },
    { .name = "kv_replay", .type = CONFIG_TEXT, AT(kv_replay),
      .about = "adopt: its replay endpoint, where it has one: what was missed is asked for there." },
    { .name = "serve", .type = CONFIG_TEXT, AT(serve_at),
      .about = "HOST:PORT at which the agent serves routers for an engine of another kind; port 0: a free one from "
               "8100 on; by default the engine's host, or 127.0.0.1 for an adopted one." },
    { .name = "metrics_key_file", .type = CONFIG_TEXT, AT(metrics_key_file),
      .about = "File with one key a line that opens /metrics of that port and nothing else, for a scraper on another "
               "machine." },
    TLS_ROW(struct agent_config, tls, ca, "adopt: PEM file with the CAs of the controller and the engine; without it the "
            "system's."),
    TLS_ROW(struct agent_config, tls, certificate, "adopt: PEM file with the agent's certificate chain: its own port then "
            "speaks TLS."),
    TLS_ROW(struct agent_config, tls, key, "adopt: PEM file with its key."),
    { .name = "listen", .type = CONFIG_TEXT, .default_text = "", AT(listen),
      .about = "HOST:PORT for an orchestrator's probes, /health and /ready; empty: none." },
    { .name = "engine_host", .type = CONFIG_TEXT, .default_text = "", AT(engine_host),
      .about = "Address at which the engine listens and routers reach it, where only the machine "
               "itself knows it; empty: the launch document's." },
    { .name = "tunnel", .type = CONFIG_BOOL, .default_text = "false", AT(tunnel),
      .about = "Routers cannot reach this machine: the agent dials each, and they call the engine through that. An engine "
               "that it starts then listens on 127.0.0.1." },
    { .name = "routers", .type = CONFIG_TEXTS, .min = 0, .max = DIALLER_ROUTERS_MAX, AT(routers),
      .about = "tunnel: [https://]HOST:PORT of routers to dial, besides those that the controller names." },
    { .name = "notice", .type = CONFIG_ENUM, .default_text = "none", .names = notice_source_names, AT(notice),
      .about = "Metadata service of the machine that is asked whether its provider takes it away: the drain then begins "
               "with the notice, not with the provider's next listing." },
    { .name = "notice_url", .type = CONFIG_TEXT, .default_text = "", .max = 127, AT(notice_url),
      .about = "http://HOST[:PORT] of that service; empty: where the provider has it." },
    { .name = "gpus", .type = CONFIG_TEXT, .default_text = "", .max = 1023, AT(gpus),
      .about = "GPUs that the engine uses and the agent watches, by index or UUID, by commas; empty: those of the "
               "pool's `device`, or all; none: it looks for none." },
    { .name = "local_disk", .type = CONFIG_TEXT, .default_text = "none", .max = 191, AT(local_disk),
      .about = "Folder on a disk of the machine's own to which an engine of another kind downloads models (HF_HOME); auto: "
               "a mounted one is looked for; none: it is not said." },
    { .name = "sysfs", .type = CONFIG_TEXT, .default_text = "/sys", .max = 255, .debug = true, AT(sysfs),
      .about = "Root of the file system in which the kernel shows its devices." },
    { .name = "give_weights", .type = CONFIG_BOOL, .default_text = "true", AT(give_weights),
      .about = "Give a model that was fetched here to other agents of the fleet, on a port from 8101 on of the engine's "
               "address; where engines speak TLS none is given." },
    { .name = "give_rate", .type = CONFIG_BYTES, .default_text = "1GB", .min = 0, .max = 1e12, .unit = "bytes/s", AT(give_rate),
      .about = "Bytes a second of all that is given so; 0: any." },
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
    { .name = "engine_log", .type = CONFIG_ENUM, .default_text = "file", .names = engine_logs,
      AT(engine_log),
      .about = "Where the engine's output goes: a `file` in the instance's folder, or `inherit`: the "
               "agent's own output, as containers want it." },
    { .name = "log_max", .type = CONFIG_BYTES, .default_text = "16MiB", .min = 65536,
      .max = 64e9, AT(log_max),
      .about = "The log files of agent and engine are turned at this size: the older one is "
               "FILE.1." },
    { .name = "engine_port", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 65535,
      .debug = true, AT(engine_port),
      .about = "Write down the process's identity and become the engine on this port; the agent "
               "starts engines so." },
};
// clang-format on

static const struct config_record record = CONFIG_RECORD_OF(struct agent_config, rows);

const struct config_section agent_section = {
    .name = "agent",
    .about = "The part that supervises one engine.",
    .record = &record,
};
