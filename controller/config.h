/* config.h - holds the sections of muster.yaml that the controller reads: controller, services, local; the
 * sections `kubernetes` and `clouds` are their drivers' (cloud/kube/kube_section.h, cloud/web/web_section.h).
 *
 * Layer: controller (base/io)
 */
#pragma once
#include "base/io/config/config.h"
#include "base/io/net/tls_rows.h"

#define STORE_FILE "file"     /* the store in the state folder */
#define CONTROL_COUNT_MAX 256 /* instances of a pool: a router knows as many */

struct control_setup;
struct kube_section;
struct web_section;
struct local_config;

struct controller_section {
    struct str listen;
    struct str state;            /* folder: store, secret, local instances */
    struct str secret_file;      /* empty: `secret` in the state folder */
    struct str metrics_key_file; /* opens /metrics and nothing else */
    struct str store;            /* "file", or the URL of a Redis */
    struct str store_password_file, store_fleet, store_ca, store_certificate, store_key;
    int64_t store_timeout_us, leader_lease_us;
    struct config_texts controllers; /* addresses of all controllers on this store */
    struct str agents_reach;         /* HOST:PORT for agents; empty: the listen address */
    struct tls_section tls;
    struct config_texts hosts; /* further Host values that requests may name */
    bool require_secret, require_keys, send_secret;
    int64_t tick_us;
    int64_t lease_us, grace_us, age_us, drain_us, boot_us, silent_us;
    int64_t join_within_us; /* 0: boot_us */
    int join_twice;         /* enum join_twice */
    int64_t decisions_max;
    int64_t seed;
    struct str crash_at;
    int64_t log_max;
    int log_level;
};

enum join_twice { JOIN_TWICE_REPLACE, JOIN_TWICE_REPORT };

struct pool_section {
    struct str name, provider;
    struct config_texts offers;
    int64_t min, max;
    struct config_texts engine_flags;
    int engine_kind; /* enum engine_kind */
    struct config_texts engine_command;
    struct str model, tokenizer, device;
    int64_t context, max_num_seqs;
    bool kv_events;
    bool tunnel;
    int64_t keep_stopped;
    int role;     /* enum role */
    int priority; /* enum priority */
};

/* Policies of the engine's kinds by name; empty: the engine's own default. */
struct engine_rows_section {
    struct str preset, fair, order, admit, preempt, chunk, evict, draft, perf, predict;
    struct str draft_model; /* as `model` */
};

struct service_section {
    struct str name, model;
    int64_t slo_ttft_us, slo_tpot_us;
    int overload; /* enum route_overload_rule */
    double budget_h, budget_day, budget_month;
    int64_t min, max;
    struct str scale, shaper, forecast, mix, place, role, power;
    double power_limit_watts, row_watts; /* the latter: former name of the same */
    double margin, utilisation_max, attainment, queue_target, concurrency;
    double ongoing_target, qps_target, kv_target;
    int64_t count, kv_link_bytes_s;
    int64_t clear_us, life_us, zero_after_us;
    int64_t down_window_us, down_step_max, up_step_max;
    struct engine_rows_section engine;
    struct str engine_program; /* empty: this program */
    struct config_texts engine_flags;
    struct config_records pools; /* struct pool_section */
};

struct offer_section {
    struct str name;
    double share, price_h;
    int64_t launch_us, lead_us, max_num_seqs;
    double perf_step_s, perf_prefill_s, perf_decode_s, perf_read_s;
    struct str zone;
    bool spot;
    int64_t spot_life_us, spot_notice_us, spot_outage_us, spot_step_us;
    struct config_texts spot_prices;
};

struct local_section {
    double cores;                 /* 0: those of the machine */
    struct config_records offers; /* struct offer_section */
    int64_t poll_us;
    double calls_per_s;
};

/* Policies that people look for at the top of the file or in a service, each with the place where it
 * belongs. */
extern const struct config_absent config_absent_policies[];

extern const struct config_section controller_section;
extern const struct config_section services_section; /* a list of struct service_section */
extern const struct config_section local_section;

/* The controller's whole configuration. */
struct controller_config {
    const struct controller_section *controller;
    const struct service_section *service;
    size_t service_count;
    const struct local_section *local;
    const struct kube_section *kube; /* NULL: none */
    const struct web_section *cloud; /* of `clouds` */
    size_t cloud_count;
    const struct models_section *models; /* NULL: every `model` is a path */
    const struct config *whole;    /* all engines begin with its `engine` section; NULL: none */
    struct config_sources sources; /* that `whole` was loaded from: for what is applied later */
    int (*check)(const struct config *config, struct err *err); /* of a later one; NULL: none */
};

/* Fills the sections from a whole configuration; sources and check stay. */
void controller_config_fill(struct controller_config *c, const struct config *whole);
