/* arch_bert.c - reads BERT, RoBERTa and XLM-RoBERTa: what files call "bert".
 *
 * MiniLM, BGE, E5 and GTE are BERTs; BGE-M3, multilingual E5 and the BGE rerankers XLM-RoBERTas. They
 * differ in tokenizer, positions and token types, which files say by their tensors, and in nothing that
 * is computed. */
#include "engine/model/encoder.h"

/* clang-format off */
static const struct key_rule keys[] = {
    { "vocab_size", KEY_READ },
    { "context_length", KEY_READ },
    { "embedding_length", KEY_READ },
    { "block_count", KEY_READ },
    { "feed_forward_length", KEY_READ },
    { "attention.head_count", KEY_READ },
    { "attention.layer_norm_epsilon", KEY_READ },
    { "attention.causal", KEY_ZERO },
    { "pooling_type", KEY_READ },
    { "classifier.activation", KEY_READ },
    { "classifier.output_labels", KEY_IGNORED },
    { "tensor_data_layout", KEY_IGNORED },
};
/* clang-format on */

static int load(struct loader *l, struct model *m, struct err *err)
{
    int rc = loader_check_keys(l, keys, COUNT_OF(keys), err);
    return rc < 0 ? rc : encoder_load(l, m, err);
}

const struct model_arch arch_bert = {
    .name = "bert",
    .about =
        "BERT, RoBERTa, XLM-RoBERTa: encoders with LayerNorm behind each half, and cross-encoders",
    .load = load,
    .state_new = encoder_state_new,
    .state_free = encoder_state_free,
    .step = encoder_step,
};
