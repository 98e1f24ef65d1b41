/* report.c - encodes and decodes the agent's report, the engine's part of it, and the reply. */
#include "base/wire/report.h"

#include "base/core/bits.h"
#include "base/core/hash.h"

const char *const engine_health_names[ENGINE_HEALTH_COUNT] = { "down", "loading", "ready",
                                                               "failing" };
const char *const agent_state_names[AGENT_STATE_COUNT] = { "down",     "starting", "up",
                                                           "draining", "waiting",  "stopped" };

static const struct field perf_rows[] = {
    FIELD_AS("a", struct perf_coef, step_s, FIELD_F64, .required = true, FIELD_POSITIVE),
    FIELD_AS("b", struct perf_coef, prefill_token_s, FIELD_F64, .required = true, FIELD_POSITIVE),
    FIELD_AS("c", struct perf_coef, decode_seq_s, FIELD_F64, .required = true, FIELD_POSITIVE),
    FIELD_AS("d", struct perf_coef, kv_read_s, FIELD_F64, .required = true, FIELD_POSITIVE),
    FIELD(struct perf_coef, samples, FIELD_F64, FIELD_POSITIVE),
    FIELD(struct perf_coef, ratio_p90, FIELD_F64, FIELD_POSITIVE),
    FIELD_AS("e", struct perf_coef, attend_s, FIELD_F64, FIELD_POSITIVE),
};
const struct field_set wire_perf_set = FIELD_SET(struct perf_coef, perf_rows);

static const struct field owed_rows[] = {
    FIELD(struct wire_owed, prompt_tokens, FIELD_U64, .required = true),
};
static const struct field_set owed_set = FIELD_SET(struct wire_owed, owed_rows);

static const struct field work_rows[] = {
    FIELD(struct wire_work, span_s, FIELD_F64, .required = true, FIELD_POSITIVE),
    FIELD(struct wire_work, busy_s, FIELD_F64, .required = true, FIELD_POSITIVE),
    FIELD(struct wire_work, steps, FIELD_U64, .required = true),
    FIELD(struct wire_work, prefill_tokens, FIELD_U64),
    FIELD(struct wire_work, prefill_chunks, FIELD_U64),
    FIELD(struct wire_work, decoding_seqs, FIELD_U64),
    FIELD(struct wire_work, kv_tokens, FIELD_U64),
    FIELD(struct wire_work, kv_tokens_decoding, FIELD_U64),
};
static const struct field_set work_set = FIELD_SET(struct wire_work, work_rows);

/* The bounds are those of model_spec.c, because seconds are computed from these numbers. */
#define SPEC_COUNT_OF(member, most) \
    FIELD(struct model_spec, member, FIELD_U32, .required = true, .min = 1, .max = (most))
static const struct field spec_rows[] = {
    SPEC_COUNT_OF(layers, 1024),
    SPEC_COUNT_OF(hidden, 1 << 20),
    SPEC_COUNT_OF(heads, 4096),
    SPEC_COUNT_OF(kv_heads, 4096),
    SPEC_COUNT_OF(head_dim, 4096),
    SPEC_COUNT_OF(ffn, 1 << 22),
    SPEC_COUNT_OF(vocab, 1 << 24),
    FIELD(struct model_spec, gated, FIELD_BOOL),
    FIELD(struct model_spec, weight_bytes, FIELD_F64, .required = true, .min = 0.1, .max = 8),
    FIELD(struct model_spec, kv_element_bytes, FIELD_F64, .required = true, .min = 0.1, .max = 8),
};
static const struct field_set spec_set = FIELD_SET(struct model_spec, spec_rows);

static const struct field adapter_rows[] = {
    FIELD(struct wire_adapter, name, FIELD_STR, .required = true, .min = 1,
          .max = REPORT_NAME_BYTES_MAX),
    FIELD(struct wire_adapter, digest, FIELD_STR, .required = true, .min = 1, .max = SHA256_HEX),
};
const struct field_set wire_adapter_set = FIELD_SET(struct wire_adapter, adapter_rows);

static const struct field engine_rows[] = {
    FIELD_AS("v", struct engine_report, host, FIELD_VERSION),
    FIELD(struct engine_report, host, FIELD_STR, .max = REPORT_NAME_BYTES_MAX),
    FIELD(struct engine_report, port, FIELD_U32, .max = 65535),
    FIELD(struct engine_report, tls, FIELD_BOOL),
    FIELD(struct engine_report, kind, FIELD_ENUM, .names = engine_kind_names,
          .max = ENGINE_KIND_COUNT),
    FIELD(struct engine_report, agent_host, FIELD_STR, .max = REPORT_NAME_BYTES_MAX),
    FIELD(struct engine_report, agent_port, FIELD_U32, .max = 65535),
    FIELD(struct engine_report, agent_tls, FIELD_BOOL),
    FIELD(struct engine_report, kv_events, FIELD_BOOL),
    FIELD(struct engine_report, health, FIELD_ENUM, .required = true, .names = engine_health_names,
          .max = ENGINE_HEALTH_COUNT),
    FIELD(struct engine_report, stalled_s, FIELD_F64, .max = 1e9),
    FIELD(struct engine_report, model, FIELD_STR, .max = REPORT_TEXT_BYTES_MAX),
    FIELD(struct engine_report, service, FIELD_STR, .max = REPORT_NAME_BYTES_MAX),
    FIELD(struct engine_report, digest, FIELD_STR, .max = REPORT_NAME_BYTES_MAX),
    FIELD_ARRAY("adapters", struct engine_report, adapters, adapter_count, FIELD_LIST,
                WIRE_ADAPTERS_MAX, .of = &wire_adapter_set),
    FIELD(struct engine_report, numerics, FIELD_STR, .max = REPORT_NAME_BYTES_MAX),
    FIELD(struct engine_report, boot, FIELD_HEX64),
    FIELD(struct engine_report, page_tokens, FIELD_U32),
    FIELD(struct engine_report, context_tokens, FIELD_U32),
    FIELD(struct engine_report, step_tokens, FIELD_U32),
    FIELD(struct engine_report, kv_token_bytes, FIELD_U32),
    FIELD(struct engine_report, task, FIELD_ENUM, .names = model_task_names,
          .max = MODEL_TASK_COUNT),
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
    FIELD(struct engine_report, clock, FIELD_F64, .max = 1),
    FIELD(struct engine_report, cores, FIELD_F64, .max = 4096),
    FIELD(struct engine_report, hardware, FIELD_STR, .max = REPORT_NAME_BYTES_MAX),
    FIELD(struct engine_report, work, FIELD_OBJECT, .of = &work_set,
          .present_offset = offsetof(struct engine_report, has_work)),
    FIELD(struct engine_report, spec, FIELD_OBJECT, .of = &spec_set,
          .present_offset = offsetof(struct engine_report, has_spec)),
    FIELD(struct engine_report, requests_total, FIELD_U64),
    FIELD(struct engine_report, prompt_tokens_total, FIELD_U64),
    FIELD(struct engine_report, cached_tokens_total, FIELD_U64),
    FIELD(struct engine_report, generated_tokens_total, FIELD_U64),
};
static const struct field_set engine_set = FIELD_SET(struct engine_report, engine_rows);

static const struct field clock_rows[] = {
    FIELD_AS("v", struct engine_clock, clock, FIELD_VERSION),
    FIELD(struct engine_clock, clock, FIELD_F64, .required = true, .min = WIRE_CLOCK_MIN, .max = 1),
};
static const struct field_set clock_set = FIELD_SET(struct engine_clock, clock_rows);

#define AGE .max = 1e13 /* milliseconds */
static const struct field agent_rows[] = {
    FIELD_AS("v", struct agent_report, instance, FIELD_VERSION),
    FIELD(struct agent_report, instance, FIELD_STR, .required = true, .min = 1,
          .max = REPORT_NAME_BYTES_MAX),
    FIELD(struct agent_report, intent, FIELD_STR, .max = REPORT_NAME_BYTES_MAX),
    FIELD(struct agent_report, service, FIELD_STR, .max = REPORT_NAME_BYTES_MAX),
    FIELD(struct agent_report, pool, FIELD_STR, .max = REPORT_NAME_BYTES_MAX),
    FIELD(struct agent_report, boot, FIELD_HEX64, .required = true),
    FIELD(struct agent_report, seq, FIELD_U64, .required = true),
    FIELD(struct agent_report, state, FIELD_ENUM, .required = true, .names = agent_state_names,
          .max = AGENT_STATE_COUNT),
    FIELD(struct agent_report, restarts, FIELD_U32),
    FIELD(struct agent_report, trouble, FIELD_STR, .max = REPORT_TEXT_BYTES_MAX),
    FIELD(struct agent_report, version, FIELD_STR, .max = REPORT_VERSION_BYTES_MAX),
    FIELD(struct agent_report, date_us, FIELD_I64, .max = 9e15),
    FIELD(struct agent_report, unfinished, FIELD_U32),
    FIELD(struct agent_report, leaves_ms, FIELD_U32),
    FIELD(struct agent_report, booted_ms, FIELD_U64, AGE),
    FIELD(struct agent_report, begun_ms, FIELD_U64, AGE),
    FIELD(struct agent_report, started_ms, FIELD_U64, AGE),
    FIELD(struct agent_report, loaded_ms, FIELD_U64, AGE),
    FIELD(struct agent_report, leaves_why, FIELD_STR, .max = REPORT_TEXT_BYTES_MAX),
    FIELD(struct agent_report, at_risk, FIELD_BOOL),
    FIELD(struct agent_report, weights, FIELD_OBJECT, .of = &wire_weights_set,
          .present_offset = offsetof(struct agent_report, has_weights)),
    FIELD(struct agent_report, machine, FIELD_ENUM, .names = machine_health_names,
          .max = MACHINE_HEALTH_COUNT),
    FIELD(struct agent_report, machine_code, FIELD_STR, .max = WIRE_FAULT_CODE_BYTES_MAX),
    FIELD(struct agent_report, machine_why, FIELD_STR, .max = REPORT_TEXT_BYTES_MAX),
    FIELD_ARRAY("gpus", struct agent_report, gpus, gpu_count, FIELD_LIST, WIRE_GPUS_MAX,
                .of = &wire_gpu_set),
    FIELD_ARRAY("faults", struct agent_report, faults, fault_count, FIELD_LIST, WIRE_FAULTS_MAX,
                .of = &wire_fault_set),
    FIELD(struct agent_report, engine, FIELD_OBJECT, .of = &engine_set,
          .present_offset = offsetof(struct agent_report, has_engine)),
};
static const struct field_set agent_set = FIELD_SET(struct agent_report, agent_rows);

static const struct field reply_rows[] = {
    FIELD_AS("v", struct agent_reply, known, FIELD_VERSION),
    FIELD(struct agent_reply, known, FIELD_BOOL, .required = true),
    FIELD(struct agent_reply, drain, FIELD_BOOL),
    FIELD(struct agent_reply, stop, FIELD_BOOL),
    FIELD(struct agent_reply, clock, FIELD_F64, .max = 1),
    FIELD(struct agent_reply, lease_ms, FIELD_U32, .required = true),
    FIELD(struct agent_reply, leaves_ms, FIELD_U32),
    FIELD(struct agent_reply, epoch, FIELD_U64),
    FIELD_ARRAY("routers", struct agent_reply, routers, router_count, FIELD_STRS, WIRE_ROUTERS_MAX,
                .each_bytes_max = REPORT_NAME_BYTES_MAX),
    FIELD_ARRAY("seeds", struct agent_reply, seeds, seed_count, FIELD_LIST, WIRE_SEEDS_MAX,
                .of = &wire_seed_set),
};
static const struct field_set reply_set = FIELD_SET(struct agent_reply, reply_rows);

/* Checks the numbers of an engine against each other. */
static int check_engine(const struct engine_report *e, const char *what, struct err *err)
{
    /* Subtracted, not summed: the sum of a peer's numbers may wrap. */
    if (e->pages_free > e->pages_total || e->pages_cached > e->pages_total - e->pages_free)
        return err_set(err, -EINVAL, "%s: %u free and %u cached pages are more than %u", what,
                       e->pages_free, e->pages_cached, e->pages_total);
    if (e->health == ENGINE_READY && (e->port == 0 || e->host.len == 0))
        return err_set(err, -EINVAL, "%s: ready, but no host and port to reach it", what);
    if (e->has_work && e->work.kv_tokens_decoding > e->work.kv_tokens)
        return err_set(err, -EINVAL, "%s: work: more tokens read to decode than read", what);
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

int engine_clock_encode(const struct engine_clock *c, struct buf *out)
{
    return fields_encode(&clock_set, c, out);
}

int engine_clock_decode(struct str text, struct arena *arena, struct engine_clock *ret,
                        struct err *err)
{
    return fields_decode(&clock_set, text, arena, ret, "clock", err);
}

int agent_reply_encode(const struct agent_reply *r, struct buf *out)
{
    return fields_encode(&reply_set, r, out);
}

int agent_reply_decode(struct str text, struct arena *arena, struct agent_reply *ret,
                       struct err *err)
{
    struct agent_reply r;
    int rc = fields_decode(&reply_set, text, arena, &r, "reply to the agent report", err);
    if (rc == 0 && r.clock > 0 && r.clock < WIRE_CLOCK_MIN)
        rc = err_set(err, -EINVAL, "reply to the agent report: clock: %g is below %g", r.clock,
                     WIRE_CLOCK_MIN);
    if (rc == 0) *ret = r;
    return rc;
}

static const struct field standby_rows[] = {
    FIELD(struct standby_reply, leader, FIELD_STR, .required = true, .max = REPORT_NAME_BYTES_MAX),
    FIELD(struct standby_reply, lease_ms, FIELD_U32),
};
static const struct field_set standby_set = FIELD_SET(struct standby_reply, standby_rows);

int standby_reply_decode(struct str text, struct arena *arena, struct standby_reply *ret)
{
    return fields_decode(&standby_set, text, arena, ret, "reply of a controller", NULL);
}
