/* sync.c - encodes and decodes the router's demand and the rules that it gets back. */
#include "base/wire/sync.h"

#include "base/core/bits.h"
#include "base/core/hash.h"

#define NAME .max = REPORT_NAME_BYTES_MAX
#define NAME_NEEDED .required = true, .min = 1, NAME
#define MODEL .max = REPORT_TEXT_BYTES_MAX

const char *const endpoint_state_names[ENDPOINT_STATE_COUNT] = { "starting", "ready", "draining" };

static const struct field quantile_rows[] = {
    FIELD(struct wire_quantiles, count, FIELD_U64, .required = true),
    FIELD(struct wire_quantiles, mean, FIELD_F64, FIELD_POSITIVE),
    FIELD(struct wire_quantiles, p50, FIELD_F64, FIELD_POSITIVE),
    FIELD(struct wire_quantiles, p90, FIELD_F64, FIELD_POSITIVE),
    FIELD(struct wire_quantiles, p99, FIELD_F64, FIELD_POSITIVE),
};
static const struct field_set quantile_set = FIELD_SET(struct wire_quantiles, quantile_rows);

static const struct field length_rows[] = {
    FIELD(struct lengths, count, FIELD_F64, .required = true, FIELD_POSITIVE),
    FIELD(struct lengths, age_s, FIELD_F64, FIELD_POSITIVE),
    FIELD(struct lengths, prompt, FIELD_F64, .required = true, FIELD_POSITIVE),
    FIELD(struct lengths, output, FIELD_F64, .required = true, FIELD_POSITIVE),
    FIELD(struct lengths, prompt_sq, FIELD_F64, .required = true, FIELD_POSITIVE),
    FIELD(struct lengths, output_sq, FIELD_F64, .required = true, FIELD_POSITIVE),
    FIELD(struct lengths, cross, FIELD_F64, .required = true, FIELD_POSITIVE),
    FIELD_AS("bins", struct lengths, bin, FIELD_COUNTS, .required = true,
             .max = LENGTH_BINS * LENGTH_BINS),
};
static const struct field_set length_set = FIELD_SET(struct lengths, length_rows);

static const struct field demand_rows[] = {
    FIELD(struct service_demand, service, FIELD_STR, .required = true, .min = 1, MODEL),
    FIELD(struct service_demand, arrivals_total, FIELD_U64),
    FIELD(struct service_demand, finished_total, FIELD_U64),
    FIELD(struct service_demand, failed_total, FIELD_U64),
    FIELD(struct service_demand, rejected_total, FIELD_U64),
    FIELD(struct service_demand, prompt_tokens_total, FIELD_U64),
    FIELD(struct service_demand, cached_tokens_total, FIELD_U64),
    FIELD(struct service_demand, generated_tokens_total, FIELD_U64),
    FIELD(struct service_demand, slo_met_total, FIELD_U64),
    FIELD(struct service_demand, slo_missed_total, FIELD_U64),
    FIELD(struct service_demand, arrival_per_s, FIELD_F64, FIELD_POSITIVE),
    FIELD(struct service_demand, late_refused_per_s, FIELD_F64, FIELD_POSITIVE),
    FIELD(struct service_demand, prompt_tokens_mean, FIELD_F64, FIELD_POSITIVE),
    FIELD(struct service_demand, predicted_tokens_mean, FIELD_F64, FIELD_POSITIVE),
    FIELD(struct service_demand, in_flight, FIELD_U32),
    FIELD(struct service_demand, held, FIELD_U32),
    FIELD(struct service_demand, held_prompt_tokens, FIELD_U64),
    FIELD(struct service_demand, held_oldest_s, FIELD_F64, FIELD_POSITIVE),
    FIELD(struct service_demand, queued_s, FIELD_F64, FIELD_POSITIVE),
    FIELD(struct service_demand, ttft_s, FIELD_OBJECT, .of = &quantile_set),
    FIELD(struct service_demand, tpot_s, FIELD_OBJECT, .of = &quantile_set),
    FIELD(struct service_demand, e2e_s, FIELD_OBJECT, .of = &quantile_set),
    FIELD(struct service_demand, expected, FIELD_OBJECT, .of = &length_set,
          .present_offset = offsetof(struct service_demand, has_expected)),
    FIELD(struct service_demand, queued, FIELD_OBJECT, .of = &length_set,
          .present_offset = offsetof(struct service_demand, has_queued)),
};
static const struct field_set demand_set = FIELD_SET(struct service_demand, demand_rows);

static const struct field endpoint_demand_rows[] = {
    FIELD(struct endpoint_demand, instance, FIELD_STR, NAME_NEEDED),
    FIELD(struct endpoint_demand, in_flight, FIELD_U32),
    FIELD(struct endpoint_demand, perf, FIELD_OBJECT, .of = &wire_perf_set,
          .present_offset = offsetof(struct endpoint_demand, has_perf)),
};
static const struct field_set endpoint_demand_set =
    FIELD_SET(struct endpoint_demand, endpoint_demand_rows);

static const struct field work_rows[] = {
    FIELD(struct tenant_work, service, FIELD_STR, NAME_NEEDED),
    FIELD(struct tenant_work, computed_tokens_total, FIELD_U64),
};
static const struct field_set work_set = FIELD_SET(struct tenant_work, work_rows);

static const struct field usage_rows[] = {
    FIELD(struct tenant_usage, tenant, FIELD_STR, NAME_NEEDED),
    FIELD(struct tenant_usage, requests_total, FIELD_U64),
    FIELD(struct tenant_usage, rejected_total, FIELD_U64),
    FIELD(struct tenant_usage, prompt_tokens_total, FIELD_U64),
    FIELD(struct tenant_usage, cached_tokens_total, FIELD_U64),
    FIELD(struct tenant_usage, generated_tokens_total, FIELD_U64),
    FIELD_ARRAY("work", struct tenant_usage, work, work_count, FIELD_LIST, TENANT_SERVICES_MAX,
                .of = &work_set),
};
static const struct field_set usage_set = FIELD_SET(struct tenant_usage, usage_rows);

static const struct field refused_rows[] = {
    FIELD(struct refused_prompt, fingerprint, FIELD_HEX64, .required = true),
    FIELD(struct refused_prompt, left_ms, FIELD_U32, .required = true),
};
static const struct field_set refused_set = FIELD_SET(struct refused_prompt, refused_rows);

static const struct field sync_rows[] = {
    FIELD_AS("v", struct router_sync, router, FIELD_VERSION),
    FIELD(struct router_sync, router, FIELD_STR, NAME_NEEDED),
    FIELD(struct router_sync, boot, FIELD_HEX64, .required = true),
    FIELD(struct router_sync, seq, FIELD_U64, .required = true),
    FIELD(struct router_sync, host, FIELD_STR, NAME),
    FIELD(struct router_sync, port, FIELD_U32, .max = 65535),
    FIELD(struct router_sync, reach, FIELD_STR, NAME),
    FIELD(struct router_sync, window_s, FIELD_F64, .required = true, .max = 86400),
    FIELD(struct router_sync, tenants_version, FIELD_U64),
    FIELD(struct router_sync, version, FIELD_STR, .max = REPORT_VERSION_BYTES_MAX),
    FIELD(struct router_sync, date_us, FIELD_I64, .max = 9e15),
    FIELD_ARRAY("services", struct router_sync, services, service_count, FIELD_LIST,
                SYNC_SERVICES_MAX, .of = &demand_set),
    FIELD_ARRAY("endpoints", struct router_sync, endpoints, endpoint_count, FIELD_LIST,
                SYNC_ENDPOINTS_MAX, .of = &endpoint_demand_set),
    FIELD_ARRAY("usage", struct router_sync, usage, usage_count, FIELD_LIST, SYNC_TENANTS_MAX,
                .of = &usage_set),
    FIELD_ARRAY("refused", struct router_sync, refused, refused_count, FIELD_LIST, SYNC_REFUSED_MAX,
                .of = &refused_set),
};
static const struct field_set sync_set = FIELD_SET(struct router_sync, sync_rows);

static const struct field endpoint_rows[] = {
    FIELD(struct endpoint, instance, FIELD_STR, NAME_NEEDED),
    FIELD(struct endpoint, service, FIELD_STR, .required = true, .min = 1, MODEL),
    FIELD(struct endpoint, pool, FIELD_STR, NAME),
    FIELD(struct endpoint, model, FIELD_STR, MODEL),
    FIELD(struct endpoint, digest, FIELD_STR, NAME),
    FIELD_ARRAY("adapters", struct endpoint, adapters, adapter_count, FIELD_LIST, WIRE_ADAPTERS_MAX,
                .of = &wire_adapter_set),
    FIELD(struct endpoint, host, FIELD_STR, NAME_NEEDED),
    FIELD(struct endpoint, port, FIELD_U32, .required = true, .min = 1, .max = 65535),
    FIELD(struct endpoint, tls, FIELD_BOOL),
    FIELD(struct endpoint, kind, FIELD_ENUM, .required = true, .names = engine_kind_names,
          .max = ENGINE_KIND_COUNT),
    FIELD(struct endpoint, agent_host, FIELD_STR, NAME),
    FIELD(struct endpoint, agent_port, FIELD_U32, .max = 65535),
    FIELD(struct endpoint, agent_tls, FIELD_BOOL),
    FIELD(struct endpoint, kv_events, FIELD_BOOL),
    FIELD(struct endpoint, state, FIELD_ENUM, .required = true, .names = endpoint_state_names,
          .max = ENDPOINT_STATE_COUNT),
    FIELD(struct endpoint, boot, FIELD_HEX64),
    FIELD(struct endpoint, role, FIELD_ENUM, .names = role_names, .max = ROLE_COUNT),
    FIELD(struct endpoint, price_per_h, FIELD_F64, FIELD_POSITIVE),
    FIELD(struct endpoint, context_tokens, FIELD_U32),
    FIELD(struct endpoint, page_tokens, FIELD_U32),
    FIELD(struct endpoint, pages_total, FIELD_U32),
    FIELD(struct endpoint, running_max, FIELD_U32),
    FIELD(struct endpoint, step_tokens, FIELD_U32),
    FIELD(struct endpoint, kv_token_bytes, FIELD_U32),
    FIELD(struct endpoint, task, FIELD_ENUM, .names = model_task_names, .max = MODEL_TASK_COUNT),
    FIELD(struct endpoint, perf, FIELD_OBJECT, .of = &wire_perf_set,
          .present_offset = offsetof(struct endpoint, has_perf)),
    FIELD(struct endpoint, clock, FIELD_F64, .max = 1),
    FIELD(struct endpoint, leaves_ms, FIELD_U32),
    FIELD(struct endpoint, at_risk, FIELD_BOOL),
};
static const struct field_set endpoint_set = FIELD_SET(struct endpoint, endpoint_rows);

static const struct field starting_rows[] = {
    FIELD(struct starting, service, FIELD_STR, .required = true, .min = 1, MODEL),
    FIELD(struct starting, eta_ms, FIELD_U32, .required = true),
};
static const struct field_set starting_set = FIELD_SET(struct starting, starting_rows);

static const struct field service_rows[] = {
    FIELD(struct service_rules, service, FIELD_STR, .required = true, .min = 1, MODEL),
    FIELD(struct service_rules, policy, FIELD_STR, NAME),
    FIELD(struct service_rules, paused, FIELD_BOOL),
    FIELD(struct service_rules, may_start, FIELD_BOOL),
    FIELD(struct service_rules, slo_ttft_s, FIELD_F64, FIELD_POSITIVE),
    FIELD(struct service_rules, slo_tpot_s, FIELD_F64, FIELD_POSITIVE),
    FIELD(struct service_rules, refuse_late, FIELD_BOOL),
    FIELD(struct service_rules, has_kv_link, FIELD_BOOL),
    FIELD(struct service_rules, kv_link_bytes_s, FIELD_F64, FIELD_POSITIVE),
    FIELD(struct service_rules, wake_ms, FIELD_U32),
};
static const struct field_set service_set = FIELD_SET(struct service_rules, service_rows);

static const struct field tenant_rows[] = {
    FIELD(struct tenant_rules, tenant, FIELD_STR, NAME_NEEDED),
    FIELD_ARRAY("key_hashes", struct tenant_rules, key_hashes, key_hash_count, FIELD_STRS,
                SYNC_KEYS_MAX, .each_bytes_max = SHA256_HEX),
    FIELD(struct tenant_rules, requests_per_min, FIELD_U32),
    FIELD(struct tenant_rules, tokens_per_min, FIELD_U32),
    FIELD(struct tenant_rules, concurrency, FIELD_U32),
    FIELD(struct tenant_rules, salt, FIELD_STR, NAME),
    FIELD(struct tenant_rules, weight, FIELD_F64, .max = TENANT_WEIGHT_MAX),
};
static const struct field_set tenant_set = FIELD_SET(struct tenant_rules, tenant_rows);

static const struct field token_rows[] = {
    FIELD(struct token_rules, hash, FIELD_STR, .required = true, .min = SHA256_HEX,
          .max = SHA256_HEX),
    FIELD(struct token_rules, admin, FIELD_BOOL),
};
static const struct field_set token_set = FIELD_SET(struct token_rules, token_rows);

static const struct field rules_rows[] = {
    FIELD_AS("v", struct router_rules, endpoints, FIELD_VERSION),
    FIELD_ARRAY("endpoints", struct router_rules, endpoints, endpoint_count, FIELD_LIST,
                SYNC_ENDPOINTS_MAX, .of = &endpoint_set),
    FIELD(struct router_rules, complete, FIELD_BOOL,
          .present_offset = offsetof(struct router_rules, has_complete)),
    FIELD_ARRAY("starting", struct router_rules, starting, starting_count, FIELD_LIST,
                SYNC_STARTING_MAX, .of = &starting_set),
    FIELD_ARRAY("services", struct router_rules, services, service_count, FIELD_LIST,
                SYNC_SERVICES_MAX, .of = &service_set),
    FIELD(struct router_rules, router_index, FIELD_U32, .max = 1024),
    FIELD(struct router_rules, router_count, FIELD_U32, .max = 1024),
    FIELD(struct router_rules, keys_required, FIELD_BOOL, .required = true),
    FIELD(struct router_rules, keys_opened, FIELD_BOOL),
    FIELD(struct router_rules, tenants_version, FIELD_U64),
    FIELD(struct router_rules, has_tenants, FIELD_BOOL),
    FIELD_ARRAY("tenants", struct router_rules, tenants, tenant_count, FIELD_LIST, SYNC_TENANTS_MAX,
                .of = &tenant_set),
    FIELD_ARRAY("tokens", struct router_rules, tokens, token_count, FIELD_LIST, SYNC_TOKENS_MAX,
                .of = &token_set),
    FIELD_ARRAY("refused", struct router_rules, refused, refused_count, FIELD_LIST,
                SYNC_ELSEWHERE_MAX, .of = &refused_set),
    FIELD(struct router_rules, again_ms, FIELD_U32, .required = true, .min = 1, .max = 3600000),
    FIELD(struct router_rules, epoch, FIELD_U64),
};
static const struct field_set rules_set = FIELD_SET(struct router_rules, rules_rows);

int router_sync_encode(const struct router_sync *s, struct buf *out)
{
    return fields_encode(&sync_set, s, out);
}

/* Refuses a distribution if its bins do not sum to its count: scaling would plan with it unchecked. */
static int check_lengths(const struct lengths *l, uint32_t service, const char *what,
                         struct err *err)
{
    double sum = 0;
    for (uint32_t i = 0; i < LENGTH_BINS; i++)
        for (uint32_t k = 0; k < LENGTH_BINS; k++)
            sum += (double)l->bin[i][k];
    if (sum > l->count - 0.5 && sum < l->count + 0.5) return 0;
    return err_set(err, -EINVAL, "router sync: services[%u]: %s: %g requests in the bins, not %g",
                   service, what, sum, l->count);
}

int router_sync_decode(struct str text, struct arena *arena, struct router_sync *ret,
                       struct err *err)
{
    struct router_sync s;
    int rc = fields_decode(&sync_set, text, arena, &s, "router sync", err);
    for (uint32_t i = 0; rc == 0 && i < s.service_count; i++) {
        const struct service_demand *d = &s.services[i];
        if (d->has_expected) rc = check_lengths(&d->expected, i, "expected", err);
        if (rc == 0 && d->has_queued) rc = check_lengths(&d->queued, i, "queued", err);
    }
    if (rc == 0) *ret = s;
    return rc;
}

int router_rules_encode(const struct router_rules *r, struct buf *out)
{
    return fields_encode(&rules_set, r, out);
}

/* Refuses key hashes that are no SHA-256: they would match no key and lock the tenant out silently. */
static int check_hashes(const struct router_rules *r, struct err *err)
{
    uint8_t digest[SHA256_BYTES];
    for (uint32_t i = 0; i < r->tenant_count; i++)
        for (uint32_t k = 0; k < r->tenants[i].key_hash_count; k++)
            if (hex_to(r->tenants[i].key_hashes[k], digest, sizeof digest) < 0)
                return err_set(err, -EINVAL,
                               "router rules: tenants[%u]: key_hashes[%u] is no SHA-256", i, k);
    return 0;
}

int router_rules_decode(struct str text, struct arena *arena, struct router_rules *ret,
                        struct err *err)
{
    struct router_rules r;
    int rc = fields_decode(&rules_set, text, arena, &r, "router rules", err);
    if (rc == 0) rc = check_hashes(&r, err);
    if (rc == 0) *ret = r;
    return rc;
}
