/* weights.c - lists the fields of what agents say of model files. */
#include "base/wire/weights.h"

#include "base/core/hash.h"

#define NAME_BYTES_MAX 128 /* of an address, as in report.h */
#define ID_BYTES_MAX 512   /* names an owner and a reader */

static const struct field weights_rows[] = {
    FIELD(struct wire_weights, sha256, FIELD_STR, .max = SHA256_HEX),
    FIELD(struct wire_weights, whole, FIELD_BOOL),
    FIELD(struct wire_weights, bytes, FIELD_U64),
    FIELD(struct wire_weights, total, FIELD_U64),
    FIELD(struct wire_weights, seed_bytes, FIELD_U64),
    FIELD(struct wire_weights, rate, FIELD_F64, FIELD_POSITIVE),
    FIELD(struct wire_weights, fetch_s, FIELD_F64, FIELD_POSITIVE),
    FIELD(struct wire_weights, load_s, FIELD_F64, FIELD_POSITIVE),
    FIELD(struct wire_weights, port, FIELD_U32, .max = 65535),
};
const struct field_set wire_weights_set = FIELD_SET(struct wire_weights, weights_rows);

static const struct field seed_rows[] = {
    FIELD(struct wire_seed, host, FIELD_STR, .required = true, .min = 1, .max = NAME_BYTES_MAX),
    FIELD(struct wire_seed, port, FIELD_U32, .required = true, .min = 1, .max = 65535),
    FIELD(struct wire_seed, tls, FIELD_BOOL),
    FIELD(struct wire_seed, id, FIELD_STR, .max = ID_BYTES_MAX),
    FIELD(struct wire_seed, key, FIELD_STR, .max = 64),
};
const struct field_set wire_seed_set = FIELD_SET(struct wire_seed, seed_rows);
