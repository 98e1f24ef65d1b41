/* config.h - holds the settings of the `router` section of muster.yaml.
 *
 * Layer: router (base/io)
 */
#pragma once
#include "base/io/config/config.h"
#include "base/io/net/tls_rows.h"
#include "base/io/trace/trace_settings.h"
#include "base/wire/sync.h"

struct router_config {
    struct str listen;
    struct str controller;           /* host:port; empty: none but the next */
    struct config_texts controllers; /* of which one leads; none of both: static endpoints only */
    struct str secret_file;          /* the fleet's; empty: none */
    bool send_secret;
    struct str name;
    struct str agents_reach; /* where agents may dial it; empty: they are not told */
    int64_t tunnels_max, tunnel_silence_us;
    struct config_texts endpoints; /* [https://]host:port[/role], besides the controller's */
    struct config_texts cors_origins, hosts;
    struct str metrics_key_file; /* opens /metrics and nothing else */
    struct str keys_file;        /* empty: router.keys beside the secret, if there is one */
    struct str route, predict, migrate, predict_file;
    struct str record; /* empty: none */
    int64_t record_max, log_max;
    int64_t threads;
    int64_t text_threads, text_queue; /* bytes */
    int64_t requests_max, held_max, hold_us_max;
    int64_t quarantine_us;                            /* 0: nothing is quarantined */
    int64_t connections_max, connections_address_max; /* a byte loop */
    struct config_texts proxies;
    int64_t index_bytes;
    int64_t request_us_max;
    int64_t ping_us, held_comment_us;
    int64_t engine_head_us, engine_gap_us, other_first_us, other_gap_us;
    int64_t sync_us;
    int64_t slo_ttft_us, slo_tpot_us;
    int64_t kv_link; /* bytes a second; 0: engines do not copy */
    int64_t seed;
    bool require_key;
    struct tls_section tls;
    struct trace_section trace;
};

static inline bool router_has_controller(const struct router_config *c)
{
    return c->controller.len > 0 || c->controllers.count > 0;
}

/* Shares of the usable descriptors, in per cent: clients, their engines, the decision thread's calls. */
#define ROUTER_CLIENTS_SHARE 50
#define ROUTER_UPSTREAM_SHARE 37
#define ROUTER_DECIDE_SHARE 12

extern const struct config_section router_section;

/* Splits "HOST:PORT" or "[V6]:PORT"; -EINVAL with a sentence. `host` points into `text`. */
int router_address(struct str text, struct str *ret_host, uint16_t *ret_port, struct err *err);

/* An address with an optional "https://" before it and an optional role behind it: "HOST:PORT/prefill". */
struct router_endpoint {
    bool tls;
    struct str host;
    uint16_t port;
    enum role role;
};
int router_endpoint(struct str text, struct router_endpoint *ret, struct err *err);
