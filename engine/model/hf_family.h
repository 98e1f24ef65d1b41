/* hf_family.h - names what folders of each model_type hold, and what that is in a GGUF file.
 *
 * Layer: engine/model
 * Trust: a tensor whose name is not in the family's tables is refused by the caller
 */
#pragma once
#include "engine/model/gguf.h"

struct hf_row {
    const char *from, *to; /* below model.layers.N. and blk.N.; '*' stands for an expert's number */
};

struct hf_family {
    const char *model_type;    /* in config.json */
    const char *arch;          /* general.architecture of its GGUF files */
    const char *activation;    /* hidden_act or hidden_activation */
    bool pairs;                /* GGUF files have the rows of Q and K reordered */
    bool one_plus;             /* norms multiply by 1 + w; GGUF files store that */
    bool encoder;              /* tensors and further keys are those of hf_encoder.h */
    bool padded_positions;     /* begin behind the padding token */
    bool windows_by_switch;    /* the window counts only with use_sliding_window */
    const struct hf_row *rows; /* looked up before the rows that all have; ends with { NULL } */
};

#define HF_NO_EXPERT UINT32_MAX

/* Returns NULL for a type that is not there. */
const struct hf_family *hf_family_of(struct str model_type);

/* Writes "llama, mistral, ..." for messages. */
#define HF_FAMILY_NAMES_BYTES 256
void hf_family_names(char ret[HF_FAMILY_NAMES_BYTES]);

/* Writes the GGUF name of a tensor, and which expert's it is in a stack of them. Returns false for a
 * tensor that the family does not have. */
bool hf_family_tensor(const struct hf_family *f, struct str name, char ret[GGUF_NAME_BYTES_MAX + 1],
                      uint32_t *ret_expert);
