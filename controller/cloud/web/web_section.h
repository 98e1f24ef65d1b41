/* web_section.h - declares the `clouds` section of muster.yaml and turns each of its clouds into settings.
 *
 * Layer:    controller/cloud/web (base/io/config)
 * Lifetime: what web_settings_make makes lives in its arena and borrows the section's texts
 * Rules:    (1) no secret stands in the file: credentials are a path or the name of a variable
 *           (2) a setting that the cloud's kind does not read is refused, so that none does nothing
 */
#pragma once
#include "base/io/config/config.h"
#include "base/io/metrics.h"
#include "controller/cloud/web/provider.h"

#define WEB_CLOUDS_MAX 12
#define WEB_ZONES_MAX 16
#define WEB_TYPES_MAX 7  /* beside the first */
#define WEB_WORDS_MAX 32 /* of a program and its arguments */
#define WEB_RATES_MAX 8
#define WEB_CURRENCY_BYTES 8

struct web_offer_section {
    struct str name, type, hardware;
    struct config_texts types, zones;
    bool spot;
    double price_h; /* below 0: not said */
    int64_t reserved, pull_bytes;
    double disk_price_h, pull_price_gb;
    double spot_price_max_h;         /* 0: the provider's own limit */
    struct str capacity_reservation; /* empty: none */
    int64_t gpus;
    struct str gpu_type; /* empty: the machine's type has them */
    int64_t lead_us, max_num_seqs;
    double perf_step_s, perf_prefill_s, perf_decode_s, perf_read_s;
};

struct web_section {
    struct str name;
    int kind; /* index of web_kinds */
    struct str endpoint, fleet;
    struct str credentials_file, credentials_env, profile;
    struct str region, project, group, tenant, account; /* see the rows */
    struct str image, launch_template;
    struct config_texts networks, firewalls, ssh_keys;
    int64_t disk_bytes;
    bool public_address;
    struct config_texts exchange_rates; /* EUR=1.08 */
    struct str user_data, muster_url, muster_sha256;
    struct config_texts program, environment;
    int64_t timeout_us, lag_us;   /* 0: the kind's */
    int64_t poll_us;              /* 0: the kind's */
    double calls_per_s;           /* 0: the kind's */
    struct config_records offers; /* struct web_offer_section */
};

extern const struct config_section clouds_section; /* a list of struct web_section */

/* One offer as the cloud sells it. */
struct web_offer {
    const struct web_offer_section *section;
    struct offer offer;
    struct str type;
    const struct str *zone; /* in order of preference; none: the kind says what that means */
    uint32_t zone_count;
    bool price_given; /* by the file: the provider's is not looked at */
};

struct web_rate {
    char currency[WEB_CURRENCY_BYTES];
    double dollars; /* for one unit */
};

struct web_meters {          /* metrics that the controller exports; NULL: none */
    struct metrics *metrics; /* borrowed */
    uint32_t requests; /* counter; labels provider, op, result: the class of the status, or none */
    uint32_t seconds;  /* histogram; labels provider, op: of one request */
    /* Counter; label provider: time that ops waited for budget or throttle. */
    uint32_t waited_seconds;
};

struct web_settings {
    const struct web_section *section;
    const struct web_kind *kind;
    struct str name, endpoint, fleet;
    struct web_offer *offer;
    uint32_t offer_count;
    struct web_rate rate[WEB_RATES_MAX];
    uint32_t rate_count;
    struct str user_data; /* the template's text */
    /* PEM of the CAs that agents trust; the caller sets it; empty: they are on the machines. */
    struct str ca;
    int64_t timeout_us; /* of one call, where the kind reads the setting; 0: the kind's own */
    int64_t lag_us, poll_us;
    double calls_per_s;
    struct web_meters meters;        /* the caller sets it */
    const struct cloud_fence *fence; /* NULL: no other process makes calls; the caller sets it */
};

/* Checks what the schema cannot, and reads the template. -EINVAL and a sentence that names cloud and setting. */
int web_settings_make(const struct web_section *section, struct arena *arena,
                      struct web_settings *ret, struct err *err);

/* The same for each cloud of the section; *ret has as many. */
int web_settings_make_all(const struct web_section *sections, size_t count, struct arena *arena,
                          struct web_settings **ret, struct err *err);

/* Returns NULL: it sells no such offer. */
const struct web_offer *web_settings_offer(const struct web_settings *s, struct str name);

/* Turns a price in a currency into dollars. False: no rate is known for it, and so no price. */
bool web_dollars(const struct web_settings *s, struct str currency, double price, double *ret);
