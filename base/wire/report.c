/* report.c - tables of the agent's report, the engine's part of it, and the reply. */
#include "base/wire/report.h"

#include "base/core/bits.h"
#include "base/wire/rows.h"

const char *const engine_kind_names[ENGINE_KIND_COUNT] = { "muster", "openai" };
const char *const engine_health_names[ENGINE_HEALTH_COUNT] = { "down", "loading", "ready",
                                                               "failing" };
const char *const agent_state_names[AGENT_STATE_COUNT] = { "down",     "starting", "up",
                                                           "draining", "waiting",  "stopped" };

static const struct field perf_rows[] = {
    FIELD(struct wire_perf, a, FIELD_F64, .required = true, FIELD_POSITIVE),
    FIELD(struct wire_perf, b, FIELD_F64, .required = true, FIELD_POSITIVE),
    FIELD(struct wire_perf, c, FIELD_F64, .required = true, FIELD_POSITIVE),
    FIELD(struct wire_perf, d, FIELD_F64, .required = true, FIELD_POSITIVE),
    FIELD(struct wire_perf, samples, FIELD_F64, FIELD_POSITIVE),
    FIELD(struct wire_perf, ratio_p90, FIELD_F64, FIELD_POSITIVE),
    FIELD(struct wire_perf, e, FIELD_F64, FIELD_POSITIVE),
};
const struct field_set wire_perf_set = FIELD_SET(struct wire_perf, perf_rows);

static const struct field owed_rows[] = {
    FIELD(struct wire_owed, prompt_tokens, FIELD_U64, .required = true),
};
static const struct field_set owed_set = FIELD_SET(struct wire_owed, owed_rows);

static const struct field engine_rows[] = {
    FIELD_AS("v", struct engine_report, host, FIELD_VERSION),
    FIELD(struct engine_report, host, FIELD_STR, .max = REPORT_NAME_BYTES_MAX),
    FIELD(struct engine_report, port, FIELD_U32, .max = 65535),
    FIELD(struct engine_report, kind, FIELD_ENUM, .names = engine_kind_names,
          .max = ENGINE_KIND_COUNT),
    FIELD(struct engine_report, health, FIELD_ENUM, .required = true, .names = engine_health_names,
          .max = ENGINE_HEALTH_COUNT),
    FIELD(struct engine_report, model, FIELD_STR, .max = REPORT_TEXT_BYTES_MAX),
    FIELD(struct engine_report, digest, FIELD_STR, .max = REPORT_NAME_BYTES_MAX),
    FIELD(struct engine_report, numerics, FIELD_STR, .max = REPORT_NAME_BYTES_MAX),
    FIELD(struct engine_report, boot, FIELD_HEX64),
    FIELD(struct engine_report, page_tokens, FIELD_U32),
    FIELD(struct engine_report, context_tokens, FIELD_U32),
    FIELD(struct engine_report, step_tokens, FIELD_U32),
    FIELD(struct engine_report, kv_token_bytes, FIELD_U32),
    FIELD(struct engine_report, running, FIELD_U32),
    FIELD(struct engine_report, running_max, FIELD_U32),
    FIELD(struct engine_report, waiting, FIELD_U32),
    FIELD(struct engine_report, pages_total, FIELD_U32),
    FIELD(struct engine_report, pages_free, FIELD_U32),
    FIELD(struct engine_report, pages_cached, FIELD_U32),
    FIELD(struct engine_report, perf, FIELD_OBJECT, .of = &wire_perf_set,
          .present_offset = offsetof(struct engine_report, has_perf)),
    FIELD(struct engine_report, owed, FIELD_OBJECT, .of = &owed_set,
          .present_offset = offsetof(struct engine_report, has_owed)),
    FIELD(struct engine_report, requests_total, FIELD_U64),
    FIELD(struct engine_report, prompt_tokens_total, FIELD_U64),
    FIELD(struct engine_report, cached_tokens_total, FIELD_U64),
    FIELD(struct engine_report, generated_tokens_total, FIELD_U64),
};
static const struct field_set engine_set = FIELD_SET(struct engine_report, engine_rows);

static const struct field agent_rows[] = {
    FIELD_AS("v", struct agent_report, instance, FIELD_VERSION),
    FIELD(struct agent_report, instance, FIELD_STR, .required = true, .min = 1,
          .max = REPORT_NAME_BYTES_MAX),
    FIELD(struct agent_report, intent, FIELD_STR, .max = REPORT_NAME_BYTES_MAX),
    FIELD(struct agent_report, boot, FIELD_HEX64, .required = true),
    FIELD(struct agent_report, seq, FIELD_U64, .required = true),
    FIELD(struct agent_report, state, FIELD_ENUM, .required = true, .names = agent_state_names,
          .max = AGENT_STATE_COUNT),
    FIELD(struct agent_report, restarts, FIELD_U32),
    FIELD(struct agent_report, trouble, FIELD_STR, .max = REPORT_TEXT_BYTES_MAX),
    FIELD(struct agent_report, engine, FIELD_OBJECT, .of = &engine_set,
          .present_offset = offsetof(struct agent_report, has_engine)),
};
static const struct field_set agent_set = FIELD_SET(struct agent_report, agent_rows);

static const struct field reply_rows[] = {
    FIELD_AS("v", struct agent_reply, known, FIELD_VERSION),
    FIELD(struct agent_reply, known, FIELD_BOOL, .required = true),
    FIELD(struct agent_reply, drain, FIELD_BOOL),
    FIELD(struct agent_reply, stop, FIELD_BOOL),
    FIELD(struct agent_reply, lease_ms, FIELD_U32, .required = true),
};
static const struct field_set reply_set = FIELD_SET(struct agent_reply, reply_rows);

/* What no bound of a single number can say. */
static int check_engine(const struct engine_report *e, const char *what, struct err *err)
{
    /* Subtracted, not summed: three numbers of a peer may wrap. */
    if (e->pages_free > e->pages_total || e->pages_cached > e->pages_total - e->pages_free)
        return err_set(err, -EINVAL, "%s: %u free and %u cached pages are more than %u", what,
                       e->pages_free, e->pages_cached, e->pages_total);
    if (e->health == ENGINE_READY && (e->port == 0 || e->host.len == 0))
        return err_set(err, -EINVAL, "%s: ready, but no host and port to reach it", what);
    return 0;
}

int agent_report_encode(const struct agent_report *r, struct buf *out)
{
    return fields_encode(&agent_set, r, out);
}

int agent_report_decode(struct str text, struct arena *arena, struct agent_report *ret,
                        struct err *err)
{
    struct agent_report r;
    int rc = fields_decode(&agent_set, text, arena, &r, "agent report", err);
    if (rc == 0 && r.has_engine) rc = check_engine(&r.engine, "agent report: engine", err);
    if (rc == 0) *ret = r;
    return rc;
}

int engine_report_encode(const struct engine_report *r, struct buf *out)
{
    return fields_encode(&engine_set, r, out);
}

int engine_report_decode(struct str text, struct arena *arena, struct engine_report *ret,
                         struct err *err)
{
    struct engine_report r;
    int rc = fields_decode(&engine_set, text, arena, &r, "engine info", err);
    if (rc == 0) rc = check_engine(&r, "engine info", err);
    if (rc == 0) *ret = r;
    return rc;
}

int agent_reply_encode(const struct agent_reply *r, struct buf *out)
{
    return fields_encode(&reply_set, r, out);
}

int agent_reply_decode(struct str text, struct arena *arena, struct agent_reply *ret,
                       struct err *err)
{
    return fields_decode(&reply_set, text, arena, ret, "reply to the agent report", err);
}
