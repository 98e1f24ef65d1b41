/* arch_bert.c - reads BERT, RoBERTa and XLM-RoBERTa: what files call "bert".
 *
 * MiniLM, BGE, E5 and GTE are BERTs; BGE-M3, multilingual E5 and the BGE rerankers XLM-RoBERTas. They
 * differ in tokenizer, positions and token types, which files say by their tensors, and in nothing that
 * is computed. */
#include "engine/model/encoder.h"

/* clang-format off */
static const struct key_rule keys[] = {
    ENCODER_KEYS,
};
/* clang-format on */

static const struct encoder_form form = {
    .keys = keys, .key_count = COUNT_OF(keys), .positions = true, .biased = true
};

const struct model_arch arch_bert = {
    .name = "bert",
    .about =
        "BERT, RoBERTa, XLM-RoBERTa: encoders with LayerNorm behind each half, and cross-encoders",
    .encoder = &form,
    ENCODER,
};
