/* hf_family.h - names what folders of each model_type hold, and what that is in a GGUF file.
 *
 * Layer: engine/files
 * Trust: a tensor whose name is not in the family's tables is refused by the caller
 */
#pragma once
#include "engine/files/gguf.h"

struct hf_row {
    const char *from, *to; /* below model.layers.N. and blk.N.; '*' stands for an expert's number */
};

/* A part of a tensor with the weights of all experts: rows first, first + step, ... */
struct hf_stack_row {
    const char *from, *to; /* without .weight and .bias */
    uint32_t first, step;
};

struct hf_family {
    const char *model_type; /* in config.json */
    const char *arch;       /* general.architecture of its GGUF files */
    const char *activation; /* hidden_act or hidden_activation */
    bool pairs;             /* GGUF files have the rows of Q and K reordered */
    bool one_plus;          /* norms multiply by 1 + w; GGUF files store that */
    bool windows_by_switch; /* the window counts only with use_sliding_window */
    bool biased;            /* config.json has attention_bias: true; all others have false */
    bool yarn_exact;        /* YaRN has truncate: false; all others have true */
    bool expert_ff;         /* intermediate_size is that of the experts */
    bool encoder;           /* tensors and further keys are those of hf_encoder.h */
    bool latent;            /* latent attention, and experts in groups: keys of hf_latent.h */
    bool sigmoid;           /* of these: the router takes sigmoids, and weights sum to 1 */
    bool padded_positions;  /* begin behind the padding token */
    const struct hf_stack_row *stacks; /* NULL, or ends with { NULL } */
    const struct hf_row *rows; /* looked up before the rows that all have; ends with { NULL } */
};

#define HF_NO_EXPERT UINT32_MAX

/* Returns NULL for a type that is not there. */
const struct hf_family *hf_family_of(struct str model_type);

/* Writes "llama, mistral, ..." for messages. */
#define HF_FAMILY_NAMES_BYTES 256
void hf_family_names(char ret[HF_FAMILY_NAMES_BYTES]);

/* Returns true for a tensor of a layer, and its number. */
bool hf_family_layer(struct str name, uint32_t *ret);

/* Writes the GGUF name of a tensor, and which expert's it is in a stack of them. Returns false for a
 * tensor that the family does not have. */
bool hf_family_tensor(const struct hf_family *f, struct str name, char ret[GGUF_NAME_BYTES_MAX + 1],
                      uint32_t *ret_expert);

/* Finds the `index`th part that comes of a tensor with the weights of all experts, which may end with _blocks, _scales
 * or _bias: returns its row, or NULL. Writes the GGUF name without .weight, and what the tensor's name ends with. */
const struct hf_stack_row *hf_family_stack(const struct hf_family *f, struct str name,
                                           uint32_t index, char ret[GGUF_NAME_BYTES_MAX + 1],
                                           struct str *ret_end);
