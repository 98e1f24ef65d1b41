/* config.h - the `agent` section of muster.yaml and the flags of `muster agent`.
 *
 * Layer: agent (base/io)
 */
#pragma once
#include "base/io/config/config.h"
#include "base/io/net/tls_rows.h"

enum engine_log { ENGINE_LOG_FILE, ENGINE_LOG_INHERIT }; /* where the engine's output goes */

struct agent_config {
    struct str spec;  /* the launch document; empty: adopt */
    bool await;       /* spec is empty until the instance is bound to this Pod */
    struct str adopt; /* URL of an engine that somebody else started */
    int engine_kind;  /* of that engine; enum engine_kind */
    struct str name, service, pool;
    struct str controller, secret_file;
    struct str tokenizer, kv_events, kv_replay;
    struct str serve_at; /* of the agent's own API; empty: where the engine is, on a free port */
    struct str metrics_key_file;
    struct tls_section tls;
    struct str listen; /* for probes; empty: none */
    bool tunnel;       /* routers cannot reach this machine: they are dialled */
    struct config_texts routers;
    struct str engine_host; /* instead of the launch document's; empty: that */
    int notice;             /* enum notice_source */
    struct str notice_url;
    struct str gpus, sysfs;
    struct str local_disk;
    bool give_weights; /* to other agents of the fleet */
    int64_t give_rate; /* bytes a second; 0: any */
    int64_t report_us;
    int64_t start_us, sick_us, settle_us, stop_us;
    int64_t back_off_min_us, back_off_max_us, stable_us;
    int64_t failures_max;
    bool send_secret;
    int64_t engine_port; /* not 0: become the engine on this port */
    int engine_log;      /* enum engine_log */
    int64_t log_max;
    int log_level;
};

extern const struct config_section agent_section;
