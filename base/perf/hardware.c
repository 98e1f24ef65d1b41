/* hardware.c - holds the table of accelerators.
 *
 * Peaks are from vendors' data sheets. Constants are fitted to the published kernel tables of
 * microsoft/vidur and casys-kaist/LLMServingSim; `muster perf fit` repeats the fit. Hardware without a
 * table starts at about the mean of the fitted ones; mi300x at less, since public runs of its matrices
 * reach about half of its peak. Memory kept free of KV follows the step budget that devices of the size
 * usually run with: 5.5 GiB at 8,192 tokens, a quarter of it at 2,048. */
#include "base/perf/hardware.h"

#include "base/core/bits.h"

#include <string.h>

#define GIB 1073741824.0
#define LARGE (5.5 * GIB)   /* 8,192 tokens a step */
#define SMALL (1.375 * GIB) /* 2,048 tokens a step */
/* These come from the attention tables of two devices; all accelerators share them. */
#define GPU                                                                               \
    .host_s = 0.8e-3, .seq_s = 4.4e-6, .link_s = 30e-6, .attn_s = 9e-6, .attn_tile = 224, \
    .attn_spare = 128, .attn_seq = 48, .attn_mixed = 1.75
#define UNFITTED                                                                              \
    .eff_bytes = 0.80, .eff_flops = 0.75, .eff_rows = 0.6, .layer_s = 31e-6, .eff_attn = 0.6, \
    .eff_link = 0.6

// clang-format off
const struct hardware hardware_table[] = {
    { .name = "t4", .flops = 65e12, .bytes_s = 0.32e12, .mem_bytes = 15 * GIB,
      .activation_bytes = SMALL, .watts_idle = 10, .watts_max = 70,
      .link_bytes_s = 16e9, GPU, UNFITTED },
    { .name = "a10g", .flops = 70e12, .bytes_s = 0.60e12, .mem_bytes = 22.5 * GIB,
      .activation_bytes = SMALL, .watts_idle = 20, .watts_max = 300,
      .link_bytes_s = 32e9, GPU, UNFITTED },
    { .name = "l4", .flops = 121e12, .bytes_s = 0.30e12, .mem_bytes = 22.5 * GIB,
      .activation_bytes = SMALL, .watts_idle = 16, .watts_max = 72,
      .link_bytes_s = 32e9, GPU, UNFITTED },
    { .name = "l40s", .flops = 362e12, .bytes_s = 0.864e12, .mem_bytes = 45 * GIB,
      .activation_bytes = SMALL, .watts_idle = 35, .watts_max = 350,
      .link_bytes_s = 32e9, GPU, UNFITTED },
    { .name = "a40", .flops = 149.7e12, .bytes_s = 0.696e12, .mem_bytes = 45 * GIB,
      .activation_bytes = SMALL, .watts_idle = 30, .watts_max = 300,
      .link_bytes_s = 56e9, GPU,
      .eff_bytes = 0.796, .eff_flops = 0.774, .eff_rows = 0.668, .layer_s = 25.4e-6,
      .eff_attn = 0.6, .eff_link = 0.6, .tokens_validated_max = 4096, .validated = true },
    { .name = "a100-80", .alias = "a100", .flops = 312e12, .bytes_s = 2.04e12,
      .mem_bytes = 80 * GIB, .activation_bytes = LARGE, .watts_idle = 60, .watts_max = 400,
      .link_bytes_s = 300e9, GPU,
      .eff_bytes = 0.843, .eff_flops = 0.704, .eff_rows = 0.719, .layer_s = 38.9e-6,
      .eff_attn = 0.6, .eff_link = 0.511, .tokens_validated_max = 32768, .validated = true,
      .link_validated = true },
    { .name = "h100", .flops = 989e12, .bytes_s = 3.35e12, .mem_bytes = 80 * GIB,
      .activation_bytes = LARGE, .watts_idle = 70, .watts_max = 700,
      .link_bytes_s = 450e9, GPU,
      .eff_bytes = 0.859, .eff_flops = 0.784, .eff_rows = 0.468, .layer_s = 30.5e-6,
      .eff_attn = 0.5, .eff_link = 0.792, .tokens_validated_max = 4096, .validated = true,
      .link_validated = true },
    { .name = "h200", .flops = 989e12, .bytes_s = 4.8e12, .mem_bytes = 141e9,
      .activation_bytes = LARGE, .watts_idle = 75, .watts_max = 700,
      .link_bytes_s = 450e9, GPU, UNFITTED },
    { .name = "mi300x", .flops = 1307e12, .bytes_s = 5.3e12, .mem_bytes = 192 * GIB,
      .activation_bytes = LARGE, .watts_idle = 140, .watts_max = 750,
      .link_bytes_s = 448e9, GPU,
      .eff_bytes = 0.75, .eff_flops = 0.45, .eff_rows = 0.5, .layer_s = 31e-6,
      .eff_attn = 0.4, .eff_link = 0.6 },
    { .name = "rtx4090", .flops = 165.2e12, .bytes_s = 1.008e12, .mem_bytes = 24 * GIB,
      .activation_bytes = SMALL, .watts_idle = 20, .watts_max = 450,
      .link_bytes_s = 32e9, GPU,
      .eff_bytes = 0.902, .eff_flops = 1, .eff_rows = 1, .layer_s = 0, .eff_attn = 0.695,
      .eff_link = 0.6, .tokens_validated_max = 2048, .validated = true, .attn_validated = true },
    { .name = "rtxpro6000", .flops = 503e12, .bytes_s = 1.792e12, .mem_bytes = 96 * GIB,
      .activation_bytes = LARGE, .watts_idle = 30, .watts_max = 600,
      .link_bytes_s = 64e9, GPU,
      .eff_bytes = 0.787, .eff_flops = 0.849, .eff_rows = 0.938, .layer_s = 0, .eff_attn = 0.419,
      .eff_link = 0.6, .tokens_validated_max = 2048, .validated = true, .attn_validated = true },
    /* One core with AVX-512 that runs our own engine with muster-tiny, small enough for its caches.
     * Fitted to the faster steps of a busy machine, so not validated. */
    { .name = "cpu", .flops = 116e9, .bytes_s = 60e9, .mem_bytes = 8 * GIB,
      .activation_bytes = 0.1 * GIB, .watts_idle = 10, .watts_max = 32, .cores = 1,
      .host_s = 0, .seq_s = 143e-6, .attn_tile = 1, .attn_mixed = 1,
      .eff_bytes = 0.885, .eff_flops = 0.767, .eff_rows = 0.3, .layer_s = 0, .eff_attn = 0.338,
      .eff_link = 0 },
};
// clang-format on
const uint32_t hardware_count = COUNT_OF(hardware_table);

const struct hardware *hardware_find(struct str name)
{
    for (uint32_t i = 0; i < hardware_count; i++) {
        const struct hardware *h = &hardware_table[i];
        if (str_eq(str_from(h->name), name)) return h;
        if (h->alias && str_eq(str_from(h->alias), name)) return h;
    }
    return NULL;
}

/* Words that a driver's name of a product has, and that it has not. */
static const struct {
    const char *name, *words[3], *without[3];
} products[] = {
    { "t4", { "T4" }, { 0 } },
    { "a10g", { "A10G" }, { 0 } },
    { "l4", { "L4" }, { 0 } },
    { "l40s", { "L40S" }, { 0 } },
    { "a40", { "A40" }, { 0 } },
    { "a100-80", { "A100" }, { 0 } },
    { "h100", { "H100" }, { "PCIe", "NVL" } },
    { "h200", { "H200" }, { "NVL" } },
    { "mi300x", { "MI300X" }, { 0 } },
    { "rtx4090", { "RTX", "4090" }, { "Laptop" } },
    { "rtxpro6000", { "RTX", "PRO", "6000" }, { "Max" } },
};

static bool is_alnum(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Returns true if `text` has the word, between anything but letters and digits. */
static bool has_word(struct str text, const char *word)
{
    struct str w = str_from(word);
    for (size_t at = 0; at + w.len <= text.len; at++) {
        if (memcmp(text.data + at, w.data, w.len) != 0) continue;
        bool begins = at == 0 || !is_alnum(text.data[at - 1]);
        size_t end = at + w.len;
        if (begins && (end == text.len || !is_alnum(text.data[end]))) return true;
    }
    return false;
}

const struct hardware *hardware_of_product(struct str product, double mem_bytes)
{
    for (size_t i = 0; i < COUNT_OF(products); i++) {
        bool is = true;
        for (size_t k = 0; k < COUNT_OF(products[i].words); k++) {
            const char *with = products[i].words[k], *without = products[i].without[k];
            is = is && (!with || has_word(product, with));
            is = is && (!without || !has_word(product, without));
        }
        const struct hardware *h = is ? hardware_find(str_from(products[i].name)) : NULL;
        /* A100 and others are sold in sizes; drivers keep a little of what data sheets say. */
        if (h && (mem_bytes <= 0 || mem_bytes > 0.85 * h->mem_bytes)) return h;
    }
    return NULL;
}

#define NAMES_MAX 64

int hardware_unknown(struct str name, struct err *err)
{
    const char *names[NAMES_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < hardware_count && count + 1 < NAMES_MAX; i++) {
        names[count++] = hardware_table[i].name;
        if (hardware_table[i].alias) names[count++] = hardware_table[i].alias;
    }
    const char *near = str_nearest(name, names, count);
    if (near) {
        return err_set(err, -ENOENT, "no hardware '" STR_FMT "', did you mean '%s'?", STR_ARG(name),
                       near);
    }
    char list[ERR_TEXT_MAX];
    str_list(names, count, list, sizeof list);
    return err_set(err, -ENOENT, "no hardware '" STR_FMT "'; there are %s", STR_ARG(name), list);
}
