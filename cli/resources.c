/* resources.c - the table of what `muster get` lists, one line a kind. */
#include "cli/resources.h"

#include "base/core/bits.h"

// clang-format off
static const struct table_column service_columns[] = {
    { "SERVICE", "service", TABLE_TEXT },        { "READY", "ready", TABLE_COUNT },
    { "STARTING", "starting", TABLE_COUNT },     { "DRAINING", "draining", TABLE_COUNT },
    { "MIN", "min", TABLE_COUNT },               { "MAX", "max", TABLE_COUNT },
    { "REQ/S", "demand.arrivals_per_s", TABLE_DECIMAL },
    { "IN FLIGHT", "demand.in_flight", TABLE_COUNT },
    { "HELD", "demand.held", TABLE_COUNT },      { "$/H", "cost_per_h", TABLE_MONEY },
    { "PAUSED", "paused", TABLE_YES },           { "POLICY", "policy", TABLE_TEXT },
    { "REASON", "reason", TABLE_TEXT },
};
static const struct table_column pool_columns[] = {
    { "SERVICE", "service", TABLE_TEXT },    { "POOL", "pool", TABLE_TEXT },
    { "ROLE", "role", TABLE_TEXT },
    { "READY", "ready", TABLE_COUNT },       { "STARTING", "starting", TABLE_COUNT },
    { "DRAINING", "draining", TABLE_COUNT }, { "TARGET", "target", TABLE_COUNT },
    { "MIN", "min", TABLE_COUNT },           { "MAX", "max", TABLE_COUNT },
    { "BY HAND", "manual", TABLE_COUNT },    { "PROVIDER", "provider", TABLE_TEXT },
    { "OFFERS", "offers", TABLE_LIST },
};
static const struct table_column instance_columns[] = {
    { "INSTANCE", "instance", TABLE_TEXT },   { "SERVICE", "service", TABLE_TEXT },
    { "POOL", "pool", TABLE_TEXT },           { "ROLE", "role", TABLE_TEXT },
    { "PHASE", "phase", TABLE_STATE },
    { "AGENT", "agent", TABLE_STATE },        { "ENGINE", "engine.health", TABLE_STATE },
    { "PORT", "engine.port", TABLE_COUNT },   { "AGE", "age_s", TABLE_AGE },
    { "RUNNING", "engine.running", TABLE_COUNT },
    { "WAITING", "engine.waiting", TABLE_COUNT },
    { "RESTARTS", "restarts", TABLE_COUNT },
    { "CLOCK", "clock", TABLE_RARE },
    { "$/H", "price_per_h", TABLE_MONEY },
    { "COST", "cost", TABLE_MONEY },          { "WHY", "why", TABLE_TEXT },
    { "TROUBLE", "trouble", TABLE_TEXT },
};
static const struct table_column intent_columns[] = {
    { "INTENT", "id", TABLE_TEXT },           { "STATE", "state", TABLE_STATE },
    { "SERVICE", "service", TABLE_TEXT },     { "POOL", "pool", TABLE_TEXT },
    { "PROVIDER", "provider", TABLE_TEXT },   { "OFFER", "offer", TABLE_TEXT },
    { "HANDLE", "handle", TABLE_TEXT },       { "CALLS", "create_calls", TABLE_COUNT },
    { "WANTED", "wanted_us", TABLE_SINCE },   { "CREATED", "created_us", TABLE_SINCE },
    { "ENDED", "ended_us", TABLE_SINCE },     { "WHY", "why", TABLE_TEXT },
};
static const struct table_column offer_columns[] = {
    { "OFFER", "offer", TABLE_TEXT },          { "PROVIDER", "provider", TABLE_TEXT },
    { "$/H", "price_per_h", TABLE_MONEY },     { "SHARE", "share", TABLE_DECIMAL },
    { "LEAD", "lead_s", TABLE_AGE },           { "AVAILABLE", "available", TABLE_YES },
    { "AGAIN IN", "again_in_s", TABLE_AGE },   { "LAST ERROR", "last_error", TABLE_TEXT },
    { "ERROR", "error", TABLE_TEXT },
};
static const struct table_column decision_columns[] = {
    { "ID", "id", TABLE_COUNT },               { "AGE", "decision.at_us", TABLE_SINCE },
    { "SERVICE", "decision.service", TABLE_TEXT },
    { "$/H", "decision.cost_per_h", TABLE_MONEY },
    { "$/H AFTER", "decision.cost_per_h_after", TABLE_MONEY },
    { "REASON", "decision.reason", TABLE_TEXT }, { "HELD BACK", "decision.blocked", TABLE_TEXT },
};
static const struct table_column tenant_columns[] = {
    { "TENANT", "tenant", TABLE_TEXT },
    { "REQ/MIN", "requests_per_min", TABLE_COUNT },
    { "TOKENS/MIN", "tokens_per_min", TABLE_COUNT },
    { "CONCURRENT", "concurrency", TABLE_COUNT },
    { "WEIGHT", "weight", TABLE_FACTOR },
    { "REQUESTS", "requests_total", TABLE_COUNT },
    { "REJECTED", "rejected_total", TABLE_COUNT },
    { "PROMPT", "prompt_tokens_total", TABLE_COUNT },
    { "CACHED", "cached_tokens_total", TABLE_COUNT },
    { "GENERATED", "generated_tokens_total", TABLE_COUNT },
    { "AGE", "created_us", TABLE_SINCE },
};
static const struct table_column token_columns[] = {
    { "TOKEN", "token", TABLE_TEXT }, { "ROLE", "role", TABLE_TEXT },
    { "AGE", "created_us", TABLE_SINCE },
};

#define COLUMNS(list) .column = list, .column_count = COUNT_OF(list)
const struct resource kind_table[] = {
    { "services", "/api/v1/services", "services", "service",
      "The configuration names no service.", COLUMNS(service_columns) },
    { "pools", "/api/v1/pools", "pools", "pool",
      "The configuration names no pool.", COLUMNS(pool_columns) },
    { "instances", "/api/v1/instances", "instances", "instance",
      "No instance is there; one starts when a request comes or a minimum asks for it.",
      COLUMNS(instance_columns) },
    { "intents", "/api/v1/intents", "intents", "id",
      "No intent is recorded: nothing was launched yet.", COLUMNS(intent_columns) },
    { "offers", "/api/v1/offers", "offers", "offer",
      "No provider offers anything.", COLUMNS(offer_columns) },
    { "decisions", "/api/v1/decisions", "decisions", "id",
      "Nothing was decided yet.", COLUMNS(decision_columns) },
    { "tenants", "/api/v1/tenants", "tenants", "tenant",
      "There is no tenant. `muster keys create NAME` makes one; `muster keys open` serves requests "
      "without a key once there was one.",
      COLUMNS(tenant_columns) },
    { "tokens", "/api/v1/tokens", "tokens", "token",
      "There is no token. `muster tokens create NAME --role admin` makes one.",
      COLUMNS(token_columns) },
};
// clang-format on
const uint32_t kind_count = COUNT_OF(kind_table);

const struct resource *resource_find(struct str name)
{
    for (uint32_t i = 0; i < kind_count; i++) {
        struct str full = str_from(kind_table[i].name);
        if (str_eq(full, name) || str_eq(str_of(full.data, full.len - 1), name))
            return &kind_table[i];
    }
    return NULL;
}
