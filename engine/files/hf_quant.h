/* hf_quant.h - reads quantization_config of a folder's config.json: how its weights of few bits are stored.
 *
 * Layer:   engine/files (base/core)
 * Methods: gptq and awq (4 bits), compressed-tensors (pack-quantized 4 bits, int-quantized 8 bits, float-quantized
 *          F8_E4M3), fp8 (F8_E4M3 with a scale for each block), mxfp4 (experts of gpt-oss)
 * Trust:   none. Keys that say how weights are stored are read or refused by name. Lists of modules that are not
 *          quantised (modules_to_not_convert, ignore) are checked to be lists and passed over: the tensors of a
 *          module say which it is
 */
#pragma once
#include "base/core/err.h"
#include "base/core/json.h"

enum hf_quant_method {
    HF_QUANT_NONE,
    HF_QUANT_GPTQ,
    HF_QUANT_AWQ,
    HF_QUANT_PACKED, /* compressed-tensors: eight weights of 4 bits in an I32 */
    HF_QUANT_INT8,   /* compressed-tensors */
    HF_QUANT_FLOAT8, /* compressed-tensors and fp8 */
    HF_QUANT_MXFP4,
    HF_QUANT_METHODS
};

struct hf_quant {
    enum hf_quant_method method;
    int32_t group;     /* columns with one scale, as config.json says; -1: all; 0: not said */
    uint32_t block[2]; /* rows and columns of F8_E4M3 with one scale; 0: not said */
    bool symmetric;    /* GPTQ: all zero points are 8 */
    bool zeros_whole;  /* GPTQ: zero points are stored as they are (gptq_v2), not less one */
};

/* Returns "GPTQ, 4 bits", ... for people; NULL for HF_QUANT_NONE. */
const char *hf_quant_text(enum hf_quant_method method);

/* Reads the value of quantization_config, the reader's current token: an object. -EINVAL: malformed; -ENOTSUP:
 * another method, number of bits or layout. */
int hf_quant_read(struct json_reader *r, struct hf_quant *ret, struct err *err);
