/* config.h - the `router` section of muster.yaml.
 *
 * Layer: router (base/io)
 */
#pragma once
#include "base/io/config.h"
#include "base/wire/sync.h"

struct router_config {
    struct str listen;
    struct str controller;  /* host:port; empty: static endpoints only */
    struct str secret_file; /* the fleet's; empty: none */
    struct str name;
    struct config_texts endpoints; /* host:port[/role] of engines, besides the controller's */
    struct config_texts cors_origins;
    struct str route, predict, migrate, predict_file;
    struct str record; /* empty: none */
    int64_t record_max;
    int64_t threads;
    int64_t requests_max, held_max, hold_us_max;
    int64_t index_bytes;
    int64_t request_us_max;
    int64_t sync_us;
    int64_t slo_ttft_us, slo_tpot_us;
    int64_t kv_link; /* bytes a second; 0: engines do not copy */
    int64_t seed;
    bool require_key;
};

extern const struct config_section router_section;

/* Splits "HOST:PORT" or "[V6]:PORT"; -EINVAL with a sentence. `host` points into `text`. */
int router_address(struct str text, struct str *ret_host, uint16_t *ret_port, struct err *err);

/* The same with a role behind it or none: "HOST:PORT/prefill". */
int router_endpoint(struct str text, struct str *ret_host, uint16_t *ret_port,
                    enum endpoint_role *ret_role, struct err *err);
