/* launch.c - encodes and decodes the launch document and the messages of a join. */
#include "base/wire/launch.h"

#include "base/core/bits.h"

#define NAME .max = REPORT_NAME_BYTES_MAX
#define PATH .max = LAUNCH_ARG_BYTES_MAX

static const struct field rows[] = {
    FIELD(struct launch_spec, v, FIELD_U32, .required = true, .min = 1, .max = LAUNCH_VERSION),
    FIELD(struct launch_spec, instance, FIELD_STR, .required = true, .min = 1, NAME),
    FIELD(struct launch_spec, service, FIELD_STR, .required = true, .min = 1, NAME),
    FIELD(struct launch_spec, pool, FIELD_STR, .required = true, .min = 1, NAME),
    FIELD(struct launch_spec, offer, FIELD_STR, .required = true, .min = 1, NAME),
    FIELD(struct launch_spec, controller_host, FIELD_STR, .required = true, .min = 1, NAME),
    FIELD(struct launch_spec, controller_port, FIELD_U32, .required = true, .min = 1, .max = 65535),
    FIELD(struct launch_spec, controller_tls, FIELD_BOOL),
    FIELD_ARRAY("controllers", struct launch_spec, controllers, controller_count, FIELD_STRS,
                LAUNCH_CONTROLLERS_MAX, .each_bytes_max = REPORT_NAME_BYTES_MAX),
    FIELD(struct launch_spec, engine_tls, FIELD_BOOL),
    FIELD(struct launch_spec, tls_ca, FIELD_STR, PATH),
    FIELD(struct launch_spec, tls_certificate, FIELD_STR, PATH),
    FIELD(struct launch_spec, tls_key, FIELD_STR, PATH),
    FIELD(struct launch_spec, secret_file, FIELD_STR, PATH),
    FIELD(struct launch_spec, join_file, FIELD_STR, PATH),
    FIELD(struct launch_spec, kind, FIELD_ENUM, .names = engine_kind_names,
          .max = ENGINE_KIND_COUNT),
    FIELD(struct launch_spec, engine_host, FIELD_STR, .required = true, .min = 1, NAME),
    FIELD_ARRAY("engine_args", struct launch_spec, engine_args, engine_arg_count, FIELD_STRS,
                LAUNCH_ARGS_MAX, .each_bytes_max = LAUNCH_ARG_BYTES_MAX, .required = true),
    FIELD_ARRAY("engine_flags", struct launch_spec, engine_flags, engine_flag_count, FIELD_STRS,
                LAUNCH_ARGS_MAX, .each_bytes_max = LAUNCH_ARG_BYTES_MAX),
    FIELD(struct launch_spec, model, FIELD_STR, PATH),
    FIELD(struct launch_spec, served_name, FIELD_STR, PATH),
    FIELD(struct launch_spec, device, FIELD_STR, NAME),
    FIELD(struct launch_spec, tokenizer, FIELD_STR, PATH),
    FIELD(struct launch_spec, weights_url, FIELD_STR, PATH),
    FIELD(struct launch_spec, weights_endpoint, FIELD_STR, PATH),
    FIELD(struct launch_spec, weights_path, FIELD_STR, PATH),
    FIELD(struct launch_spec, weights_sha256, FIELD_STR, NAME),
    FIELD(struct launch_spec, weights_max, FIELD_U64),
    FIELD(struct launch_spec, context_tokens, FIELD_U32),
    FIELD(struct launch_spec, seqs_max, FIELD_U32),
    FIELD(struct launch_spec, kv_events, FIELD_BOOL),
    FIELD(struct launch_spec, tunnel, FIELD_BOOL),
    FIELD(struct launch_spec, folder, FIELD_STR, PATH),
    FIELD(struct launch_spec, share, FIELD_F64, FIELD_POSITIVE),
    FIELD(struct launch_spec, start_wall_us, FIELD_I64, .min = 0, .max = 9e15),
    FIELD(struct launch_spec, boot, FIELD_HEX64),
    FIELD(struct launch_spec, born_mono_us, FIELD_I64, .min = 0, .max = 9e15),
    FIELD(struct launch_spec, start_mono_us, FIELD_I64, .min = 0, .max = 9e15),
    FIELD(struct launch_spec, created_us, FIELD_I64, .min = 0, .max = 9e15),
    FIELD(struct launch_spec, grace_ms, FIELD_U64),
    FIELD(struct launch_spec, age_ms, FIELD_U64),
    FIELD(struct launch_spec, drain_ms, FIELD_U64),
};
static const struct field_set set = FIELD_SET(struct launch_spec, rows);

int launch_spec_encode(const struct launch_spec *s, struct buf *out)
{
    struct launch_spec now = *s;
    now.v = s->join_file.len > 0 ? LAUNCH_VERSION : 1;
    return fields_encode(&set, &now, out);
}

int launch_spec_decode(struct str text, struct arena *arena, struct launch_spec *ret,
                       struct err *err)
{
    struct launch_spec s = { 0 };
    int rc = fields_decode(&set, text, arena, &s, "the launch document", err);
    if (rc < 0) return rc;
    if (s.engine_arg_count == 0)
        return err_set(err, -EINVAL, "the launch document: engine_args: name the program");
    *ret = s;
    return 0;
}

#define HEX .max = JOIN_HEX_BYTES_MAX, .required = true, .min = 1

static const struct field request_rows[] = {
    FIELD(struct join_request, instance, FIELD_STR, .required = true, .min = 1, NAME),
    FIELD(struct join_request, enc, FIELD_STR, HEX),
    FIELD(struct join_request, seal, FIELD_STR, HEX),
};
static const struct field_set request_set = FIELD_SET(struct join_request, request_rows);

static const struct field reply_rows[] = {
    FIELD(struct join_reply, nonce, FIELD_STR, HEX),
    FIELD(struct join_reply, seal, FIELD_STR, HEX),
};
static const struct field_set reply_set = FIELD_SET(struct join_reply, reply_rows);

int join_request_encode(const struct join_request *r, struct buf *out)
{
    return fields_encode(&request_set, r, out);
}

int join_request_decode(struct str text, struct arena *arena, struct join_request *ret,
                        struct err *err)
{
    return fields_decode(&request_set, text, arena, ret, "the join", err);
}

int join_reply_encode(const struct join_reply *r, struct buf *out)
{
    return fields_encode(&reply_set, r, out);
}

int join_reply_decode(struct str text, struct arena *arena, struct join_reply *ret, struct err *err)
{
    return fields_decode(&reply_set, text, arena, ret, "the reply to a join", err);
}
